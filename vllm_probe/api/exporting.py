"""Exporting: a runtime config as a file of another system."""

import logging
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from vllm_probe.api.advising import refusal
from vllm_probe.api.commands import negotiating
from vllm_probe.api.looking import discover, judged_devices, naming, open_host
from vllm_probe.api.planning import obtaining, planned_words
from vllm_probe.core.errors import (
    BadUsage,
    InputError,
    NoImage,
    Unavailable,
    UnreadableFile,
    UnsupportedModel,
    UnsupportedVersion,
    WeightsUnavailable,
)

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.device import Device
    from vllm_probe.core.system import Host
    from vllm_probe.export.container import Container, Target
    from vllm_probe.vendors.registry import PortableDeviceManager

Form: TypeAlias = Literal["vllm", "docker", "compose", "k8s"]

_NOBODY = 65534  # the group that a user namespace shows for those it hides
_log = logging.getLogger(__name__)


def read_config(path: Path) -> "RuntimeConfig":
    """The runtime config in a file.

    Raises:
        UnreadableFile, InvalidJson, SchemaViolation, UnsupportedVersion: it holds none that this release reads.
    """
    from vllm_probe.core.codec import from_json
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.files import read_json

    with naming(path, "runtime"):
        config = from_json(RuntimeConfig, read_json(path))
    if not config.schema_version.startswith("1."):
        message = f"{path} is a runtime config of version {config.schema_version}"
        raise UnsupportedVersion(message, hint="this release reads version 1: update vllm-probe")
    return config


def kept_config(path: Path) -> str | None:
    """Which config the file at `path` still holds, for one whose successor failed; null where it holds none."""
    try:
        config = read_config(path)
    except InputError:
        return None
    return f"{path} is kept as it was: {config.model} on {planned_words(config)}, engine {config.engine}"


@dataclass(frozen=True, slots=True)
class Exported:
    """A file's text, and the command that uses it."""

    text: str
    command: str


def export(form: Form, path: Path | None = None, host: "Host | None" = None, *, file: str | None = None) -> Exported:
    """The config at `path`, `./runtime.json` by default, as the file of vLLM, Docker, Compose or Kubernetes.

    `file` is the name that it will have, for the command.

    Raises:
        UnreadableFile, InvalidJson, SchemaViolation, UnsupportedVersion: there is no config, or it cannot be used.
        DoesNotFit: it would not boot.
        WeightsUnavailable: it is for a checkpoint that has to be obtained first.
        BadUsage: it is for the bundled runtime, which has no file of vLLM's.
        NoImage: no container image is known for its device or its model.
        UnsupportedModel: it is for the bundled runtime, which refuses its model.
    """
    path = path or Path("runtime.json")
    if not path.exists():
        both = "" if form == "vllm" else " (for the bundled runtime without --engine vllm)"
        hint = f"run `vllm-probe negotiate --engine vllm MODEL`{both} first, or name a runtime config"
        raise UnreadableFile(f"there is no file {path}", hint=hint)
    config = exportable(read_config(path))
    if form == "vllm":
        from vllm_probe.export.vllm import missing_of, vllm_serve, vllm_yaml

        require_vllm(config)
        if missing := missing_of(config):
            _log.warning(missing)
        command = vllm_serve(config, file or "FILE.yaml")
        return Exported(vllm_yaml(config, command), command)
    container, name = _container(config, path, host or open_host()), shlex.quote(file or "FILE")
    if form == "k8s":
        from vllm_probe.export.kubernetes import kubernetes_yaml

        return Exported(kubernetes_yaml(container), f"kubectl apply -f {name}")
    from vllm_probe.export.docker import compose_yaml, docker_command

    if form == "docker":
        return Exported(docker_command(container), f"sh {name}")
    return Exported(compose_yaml(container), f"docker compose -f {name} up")


def exportable(config: "RuntimeConfig") -> "RuntimeConfig":
    """`config` as another system can run it: with the checkpoint that there is, and its model found from every folder.

    Raises:
        DoesNotFit: it would not boot.
        WeightsUnavailable: it needs a checkpoint that has to be obtained first, and its own format will not do.
    """
    from vllm_probe.export.vllm import as_model, own_format

    if refused := refusal(config):
        raise refused
    if not config.requires:
        return as_model(config)
    own, needed = own_format(config), config.requires[0]
    if own is None:
        message = f"the config is for {needed}, which has to be obtained first"
        again = negotiating(config, "--model CHECKPOINT", without=("--quantization",))
        hint = f"{obtaining(config)}; then `{again}`, with its repository or folder as CHECKPOINT"
        raise WeightsUnavailable(message, hint=hint)
    said = f"{needed} has to be obtained first: until then these are the values for {config.model} as it is"
    _log.warning(said)
    return as_model(replace(own, warnings=(said, *own.warnings)))


def require_vllm(config: "RuntimeConfig") -> None:
    """Raises BadUsage for a config of another engine."""
    if config.engine != "vllm":
        command = f"vllm-probe negotiate --engine vllm --model {shlex.quote(config.model)}"
        message = f"the config is for the {config.engine} runtime, which reads no file of vLLM's"
        raise BadUsage(message, hint=f"`{command}` makes one for vLLM; docker, compose and k8s export this one too")


def _container(config: "RuntimeConfig", path: Path, host: "Host") -> "Container":
    from vllm_probe.export.container import bundled_container, vllm_container

    target = _target(config, host)
    if config.engine == "vllm":
        return vllm_container(config, target)
    _require_bundled(config, host)
    from vllm_probe.core.codec import dumps

    return bundled_container(config, target, dumps(config), path)


def _require_bundled(config: "RuntimeConfig", host: "Host") -> None:
    """Raises UnsupportedModel for a model that the bundled runtime refuses; one that is not here is not asked."""
    from vllm_probe.models.resolve import resolve_model
    from vllm_probe.negotiate.case import refusal_of

    try:
        spec = resolve_model(config.model, host)
    except (InputError, Unavailable):
        return
    if reason := refusal_of("bundled", spec):
        message = f"the container would not start: {reason}"
        raise UnsupportedModel(message, hint=f"vllm-probe negotiate --engine vllm {shlex.quote(config.model)}")


def _target(config: "RuntimeConfig", host: "Host") -> "Target":
    """What the vendor's plug-in says, and of this machine's nodes and devices what the config is for."""
    from vllm_probe.export.container import Target
    from vllm_probe.host.fingerprint import host_fingerprint

    manager = discover(host)
    plugin = manager.plugin_for(config.device_type)
    if plugin is None:
        known = ", ".join(each.name for each in manager.plugins)
        message = f"no vendor plug-in knows the device type {config.device_type!r}"
        raise NoImage(message, hint=f"the plug-ins here are {known}; install the vendor's")
    is_here = config.host_fingerprint == host_fingerprint(host)
    here = judged_devices(manager) if is_here and plugin.name != "cpu" else ()
    device = next((each for each in here if each.id == config.device), None)
    groups = {}
    for gate in plugin.container.groups_of:
        own = (
            [gate.replace("*", str(device.indices["drm_render"]))] if device and "drm_render" in device.indices else []
        )
        node = next(iter([*own, *(host.glob(gate) if is_here else ())]), gate.replace("*", "128"))  # the first, if any
        stat = host.stat(node) if is_here else None
        groups[node] = None if stat is None or stat.gid == _NOBODY else str(stat.gid)
    described = device or _described(config, manager, plugin.name)
    return Target(vendor=plugin.name, access=plugin.container, groups=groups, device=described)


def _described(config: "RuntimeConfig", manager: "PortableDeviceManager", vendor: str) -> "Device | None":
    """The device as far as the config's descriptor tells it, where that can be read."""
    from vllm_probe.core.device import Device
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import named_capability

    name = config.capability.partition(" (sha256:")[0]
    try:
        _, capability = named_capability(name, manager, host_fingerprint(manager.host))
    except (InputError, Unavailable):
        return None
    known = capability.device
    return Device(id=config.device or "", vendor=vendor, kind="gpu", arch=known.arch, driver=known.driver)

"""What a container needs to run a config: image, devices, groups, shared memory, variables, arguments.

`images.json` has, by engine and vendor, the images with the first version that each holds (`{version}` is the
engine's), what else they need, and the source. Device nodes, groups and mounts are those of the vendor's plug-in.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.device import Device
from vllm_probe.core.errors import BadUsage, NoImage
from vllm_probe.core.plugin import ContainerAccess
from vllm_probe.export.options import Row, row_of, settings_of, version_of
from vllm_probe.export.vllm import about, missing_of, reason_of

PORT = 8000
CONFIG_TARGET = "/etc/vllm-probe/runtime.json"
_SEVERAL_HOSTS = ("distributed-executor-backend", "ray")
_CACHE = "/root/.cache/huggingface"
_SECRETS = ("HF_TOKEN", "VLLM_API_KEY")
_NAME_LENGTH = 40  # a label of Kubernetes has at most 63 characters, and generated names add to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the container will run.

    Attributes:
        vendor: vendor of the device.
        access: what the vendor's plug-in says that a container needs.
        groups: numeric group by device node that the process must be able to open, null where that is not known.
        device: the device as this machine shows it, else as far as its descriptor tells.
    """

    vendor: str
    access: ContainerAccess
    groups: Mapping[str, str | None] = field(default_factory=dict)
    device: Device | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that serves one config.

    Attributes:
        name: a DNS label.
        image: with its tag.
        entrypoint: program, empty for the image's own.
        arguments: its arguments.
        env: variables.
        passes: variables that are passed on where they are set, such as secrets.
        access: nodes, groups, mounts and runtime.
        groups: numeric group by node, null where this machine does not show it.
        files: files and folders to mount at the same place, read only.
        config: text of a runtime config to mount as `CONFIG_TARGET`, empty for none.
        config_path: file on this machine that holds it.
        cache: folder of the model cache in the container.
        shared_memory: size of /dev/shm.
        security: security options.
        capabilities: Linux capabilities beyond the default.
        resource: Kubernetes resource that stands for a device, null for none.
        resource_doubt: why it may be another one, empty where it is sure.
        devices: how many.
        cpus: processors, null where the device is none.
        memory_bytes: what the engine requests of a CPU's memory.
        comments: what a reader should know.
    """

    name: str
    image: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]
    env: dict[str, str]
    access: ContainerAccess
    groups: dict[str, str | None]
    passes: tuple[str, ...] = _SECRETS
    files: tuple[str, ...] = ()
    config: str = ""
    config_path: str = ""
    cache: str = _CACHE
    shared_memory: str
    security: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    resource: str | None = None
    resource_doubt: str = ""
    devices: int = 1
    cpus: int | None = None
    memory_bytes: int | None = None
    comments: tuple[str, ...] = ()


@cache
def table() -> Row:
    """`images.json`."""
    loaded: Row = json.loads(Path(__file__).with_name("images.json").read_bytes())
    return loaded


def vllm_container(config: RuntimeConfig, target: Target) -> Container:
    """The container that runs vLLM with `config`, its options in the words of the version in the image.

    Raises:
        NoImage: none is known for the vendor, for this version, or with what reads the model.
        BadUsage: the engine version is none, or the ranks are on several hosts.
    """
    row = _row(config, target.vendor)
    version, image, notes = _image(config, row, target)
    settings = settings_of(config, version)
    ranks = config.tensor_parallel_size * config.pipeline_parallel_size
    exceeds = ranks > _devices_of_host(config, row)
    if exceeds or any((each.option, each.value) == _SEVERAL_HOSTS for each in settings.options):
        message = "the ranks of this config are on several hosts, and a container is on one"
        message += f": {ranks} such devices are more than one has" if exceeds else ""
        raise BadUsage(
            message, hint="start Ray on every host, and vLLM there with the file of `vllm-probe export vllm`"
        )
    return Container(
        name=_name(config),
        image=image,
        entrypoint=("vllm",),
        arguments=("serve", config.model, *settings.words()),
        env=settings.env,
        access=replace(
            target.access, nodes=_nodes(config, row, target), env=target.access.env | _mask(config, row, target.device)
        ),
        groups=dict(target.groups),
        files=(config.model,) if Path(config.model).is_absolute() else (),
        shared_memory=row["shared_memory"],
        security=tuple(row.get("security", ())),
        capabilities=tuple(row.get("capabilities", ())),
        resource=_resource(row, target),
        resource_doubt=_doubt(row, target),
        devices=config.tensor_parallel_size * config.pipeline_parallel_size,
        cpus=config.threads,
        memory_bytes=config.budget.requested_bytes if config.threads else None,
        comments=(
            *about(config, f"vLLM {version}", (*notes, *settings.notes)),
            *(f"--{each.option}: {reason_of(each)}" for each in settings.options),
        ),
    )


def _devices_of_host(config: RuntimeConfig, row: Row) -> int:
    """Devices of the host that the config was made on, else the most that such hosts are built with."""
    known = next((each.inputs.get("devices") for each in config.decisions if each.key == "tensor_parallel_size"), None)
    return known if isinstance(known, int) else int(row["most_devices"])


def bundled_container(config: RuntimeConfig, target: Target, text: str, path: Path) -> Container:
    """The container of this project's Dockerfile, with the runtime config `text` of `path` mounted.

    Raises:
        NoImage: the Dockerfile has no build of torch for the vendor.
    """
    index, image = _row(config, target.vendor)["index"], f"vllm-probe:{config.tool_version}"
    return Container(
        name=_name(config),
        image=image,
        entrypoint=(),
        arguments=(CONFIG_TARGET, "--host", "0.0.0.0"),  # noqa: S104 - inside the container
        env={},
        access=target.access,
        groups=dict(target.groups),
        files=(config.model,) if Path(config.model).is_absolute() else (),
        config=text,
        config_path=str(path.resolve()),
        shared_memory="1g",
        resource=_resource(table()["vllm"][target.vendor], target),
        resource_doubt=_doubt(table()["vllm"][target.vendor], target),
        cpus=config.threads,
        memory_bytes=config.budget.requested_bytes if config.threads else None,
        comments=(
            *about(config, "the bundled runtime"),
            f"build the image first: docker build --build-arg TORCH_INDEX={index} -t {image} .",
            "on another machine than the config was made on it is negotiated again, with its pins",
        ),
    )


def _row(config: RuntimeConfig, vendor: str) -> Row:
    rows = table()[config.engine]
    if vendor not in rows:
        message = f"no image with {config.engine} for {config.device_type} devices is known"
        hint = f"known are {', '.join(rows)}; `vllm-probe export vllm` writes the options for an image of the vendor's"
        raise NoImage(message, hint=hint)
    found: Row = rows[vendor]
    return found


def _image(config: RuntimeConfig, row: Row, target: Target) -> tuple[str, str, list[str]]:
    """Version in the image, its name, and what to know: the newest release that is not newer than the config's."""
    wanted, notes = version_of(config.engine_version), []
    version = ".".join(map(str, wanted))
    if "releases" in row:
        version = next((each for each in row["releases"] if version_of(each) <= wanted), row["releases"][-1])
        if version_of(version) != wanted:
            notes.append(
                f"the image holds vLLM {version}, the config is for {config.engine_version}: "
                f"negotiate with --engine-version {version} for its memory law"
            )
    found = row_of(row["images"], version_of(version))
    if found is None:
        message = f"no image with vLLM {version} for {config.device_type} devices is known"
        first = row["images"][-1]["since"]
        raise NoImage(message, hint=f"negotiate with --engine-version {first} or newer")
    arch = target.device.arch if target.device else None
    suffix = next((tag for pattern, tag in row.get("suffixes", {}).items() if arch and fnmatchcase(arch, pattern)), "")
    if "suffixes" in row and arch is None:
        notes.append(row["suffix_note"])
    if "note" in found:
        notes.append(found["note"].format(version=version))
    image = found["image"].format(version=version, suffix=suffix)
    if missing_of(replace(config, engine_version=version)):
        hint = "build one from it that installs vllm-gguf-plugin, and run the file of `vllm-probe export vllm` there"
        raise NoImage(f"{image} has no vllm-gguf-plugin, without which vLLM {version} reads no GGUF file", hint=hint)
    return version, image, notes


def _nodes(config: RuntimeConfig, row: Row, target: Target) -> tuple[str, ...]:
    """Device nodes; one that ends in 0 stands for the first device, and becomes one for each rank."""
    index = _index(row.get("nodes", ()), target.device) or 0
    ranks = config.tensor_parallel_size * config.pipeline_parallel_size
    first = index if ranks == 1 else 0
    found: list[str] = []
    for node in target.access.nodes:
        found += [f"{node[:-1]}{first + rank}" for rank in range(ranks)] if re.search(r"\D0$", node) else [node]
    return tuple(found)


def device_mask(config: RuntimeConfig, device: Device) -> dict[str, str]:
    """The variable that shows a process on this machine `device` alone, where one rank is to take one of several."""
    row = table()["vllm"].get(device.vendor, {})
    return _mask(config, {"mask": row.get("own_mask") or row.get("mask")}, device)


def _mask(config: RuntimeConfig, row: Row, device: Device | None) -> dict[str, str]:
    mask = row.get("mask")
    index = _index(mask["numbers"], device) if mask else None
    if mask is None or index is None or config.tensor_parallel_size * config.pipeline_parallel_size > 1:
        return {}
    return {mask["env"]: str(index)}


def _index(numbers: Any, device: Device | None) -> int | None:
    return next((device.indices[name] for name in numbers if name in device.indices), None) if device else None


def _resource(row: Row, target: Target) -> str | None:
    driver = _driver(row, target) or row.get("drivers", ("",))[0]
    return target.access.resource(target.device.arch if target.device else None, driver)


def _driver(row: Row, target: Target) -> str | None:
    """That of the drivers of a vendor which runs the device, null where that is not known."""
    named = (target.device.driver or "").partition(" ")[0] if target.device else ""
    return next((each for each in row.get("drivers", ()) if each == named), None)


def _doubt(row: Row, target: Target) -> str:
    """That the resource hangs on a driver, and that it is not known which one runs the device."""
    if "drivers" not in row or _driver(row, target):
        return ""
    first, *others = (target.access.resource(None, each) or "" for each in row["drivers"])
    driver = ", ".join(row["drivers"][1:])
    known = "which kernel driver runs the device is not known here"
    return f"{known}: put {', '.join(others)} for {first} where {driver} does"


def _name(config: RuntimeConfig) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", config.model.rstrip("/").rpartition("/")[2].lower()).strip("-")
    return f"vllm-{stem[:_NAME_LENGTH].strip('-')}" if stem else "vllm"

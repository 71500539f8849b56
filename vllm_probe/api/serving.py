"""Serving: a config that holds on this machine, a device that is free, an engine with a model in it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from vllm_probe.api.advising import refusal
from vllm_probe.api.commands import pins_of
from vllm_probe.api.exporting import read_config
from vllm_probe.api.looking import discover, judged_devices, open_host
from vllm_probe.api.negotiating import negotiate
from vllm_probe.api.planning import planned_device
from vllm_probe.api.servable import (
    SERVER_PACKAGES,
    on_torch,
    require_bundled,
    require_packages,
    require_servable,
    serving_adapter,
)
from vllm_probe.core.errors import DeviceBusy, UnreadableFile
from vllm_probe.core.progress import Progress, silent

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.system import Host
    from vllm_probe.runtime.engine import Engine
    from vllm_probe.runtime.executor.embedder import LoadFormat
    from vllm_probe.runtime.server.app import ServerOptions

OnBusy: TypeAlias = Literal["wait", "fallback", "fail"]

_log = logging.getLogger(__name__)


def serving_config(
    source: str | None, host: "Host", *, load_format: "LoadFormat" = "auto", **wanted: Any
) -> "RuntimeConfig":
    """The config to serve: read from `source` or `./runtime.json`, or negotiated where `source` names a model.

    Dummy weights need only the shape of the model. A config that was made on another machine, or for another device
    or engine than `wanted`, is negotiated again with its pins, and that is said. No vLLM has to be installed.

    Raises:
        UnreadableFile, InvalidJson, SchemaViolation: there is no config, or it cannot be used.
        UnsupportedModel: the bundled runtime cannot run the model.
        DeviceNotFound: the config's device is not here.
        DeviceUnavailable: the bundled runtime cannot serve from the device that is wanted.
        MissingExtra: a package is missing that the bundled runtime needs.
        WeightsUnavailable: the weights of the model are neither here nor on the hub.
        HubUnreachable, HubRefused: the hub had to be asked for them.
        DoesNotFit: it would not boot.
    """
    from vllm_probe.detect.select import select_device

    wanted = {key: value for key, value in wanted.items() if value is not None}
    if "device" in wanted:
        manager = discover(host)
        device = select_device(judged_devices(manager), wanted["device"], manager)
        wanted["device"] = device.id
        if wanted.get("engine") != "vllm":
            on_torch(device, manager)  # before a device is measured that cannot serve
    path = Path(source or "runtime.json")
    if source and path.suffix == ".json" and not path.exists():
        hint = "give a runtime config (`vllm-probe negotiate` writes one) or a model: its name, or a folder"
        raise UnreadableFile(f"there is no file {path}", hint=hint)
    if source and not (path.suffix == ".json" and path.is_file()):
        if wanted.get("engine") != "vllm":
            require_servable(source, host, load_format)
        config = _negotiated(source, host, **wanted)
    elif path.is_file():
        config = _read_config(path, host, wanted, load_format)
    else:
        hint = "run `vllm-probe negotiate --model MODEL` first, or `vllm-probe serve MODEL`"
        raise UnreadableFile(f"there is no {path} here", hint=hint)
    if refused := refusal(config):
        raise refused
    return config


def load_runtime(
    config: "RuntimeConfig | Path | str",
    host: "Host | None" = None,
    progress: Progress = silent,
    *,
    load_format: "LoadFormat" = "auto",
) -> "Engine":
    """The engine that serves `config` (a document, its file, or the name of a model), loaded; close it when done.

    Weights that are not here are downloaded into the hub's cache. With `load_format="dummy"` they are random.

    Raises:
        UnsupportedModel: the config is for another engine, or the bundled one cannot run the model.
        DeviceUnavailable, WeightsUnavailable, InvalidModel: what it needs is not there.
        HubUnreachable, HubRefused, UnwritableOutput: the weights cannot be downloaded.
    """
    from vllm_probe.models.resolve import fetch_model, resolve_model
    from vllm_probe.runtime.engine import Engine
    from vllm_probe.runtime.executor.admission import check_runnable

    host = host or open_host()
    if isinstance(config, str | Path):
        config = serving_config(str(config), host, load_format=load_format)
    require_bundled(config)
    spec = resolve_model(config.model, host, for_serving=load_format != "dummy")
    adapter = serving_adapter(config, host)
    if config.compile.enabled:
        adapter.compile_folder = _compile_folder(host)
    if spec.weights_path is None and load_format != "dummy":
        check_runnable(config, spec, adapter.device, "dummy")  # all but the weights, before they are fetched
        spec = fetch_model(spec, host, progress)
    return Engine.load(config, spec, adapter, progress, load_format=load_format)


def rehearse(config: "RuntimeConfig", host: "Host", *, load_format: "LoadFormat" = "auto") -> None:
    """Refuses what `load_runtime` would refuse before it loads or downloads anything.

    Raises:
        UnsupportedModel: the bundled engine cannot run the model.
        DeviceUnavailable: its device cannot be served from.
        MissingExtra: a package is missing that the server needs.
        BadUsage: limits that contradict each other.
    """
    require_packages(*SERVER_PACKAGES)
    from vllm_probe.models.resolve import resolve_model
    from vllm_probe.runtime.executor.admission import check_runnable

    spec = resolve_model(config.model, host, for_serving=load_format != "dummy")
    check_runnable(config, spec, serving_adapter(config, host).device, "dummy")


def compiling(config: "RuntimeConfig", *, compiles: bool | None) -> "RuntimeConfig":
    """`config` with compilation pinned on or off; null leaves it as it is."""
    from vllm_probe.core.config import Compile

    if compiles is None or compiles == config.compile.enabled:
        return config
    mode, reason = ("default", "--compile") if compiles else (None, "--no-compile")
    chosen = Compile(enabled=compiles, mode=mode, backend="inductor" if compiles else None, reason=reason)
    primitives = {name: won for name, won in config.primitives.items() if compiles or won != config.compile.backend}
    value = {"enabled": compiles, "mode": mode}
    decisions = (
        replace(each, value=value, rule=reason, pinned=True) if each.key == "compile" else each
        for each in config.decisions
    )
    return replace(config, compile=chosen, primitives=primitives, decisions=tuple(decisions))


def _compile_folder(host: "Host") -> Path | None:
    """Where compiled code of this machine is kept: beside its measurements."""
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import COMPILED, state_folder

    state = state_folder(host, host_fingerprint(host))
    return state / COMPILED if state else None


def serve(  # noqa: PLR0913 - what a server needs
    config: "RuntimeConfig",
    options: "ServerOptions",
    host: "Host",
    *,
    load_format: "LoadFormat",
    on_busy: OnBusy,
    busy_timeout_s: float,
    progress: Progress,
    on_ready: Callable[[str, bool], object],
) -> int:
    """Serves `config` until a signal; the exit code. The port is taken before the device, the device before loading.

    Raises:
        MissingExtra: a package is missing that the server needs.
        PortInUse: another process listens there.
        DeviceBusy: the device is not free, and `on_busy` gave nothing else.
        ProbeError: as `load_runtime`.
    """
    require_bundled(config)
    require_packages(*SERVER_PACKAGES)
    from vllm_probe.runtime.server.app import serve as run
    from vllm_probe.runtime.server.lifecycle import bind

    with bind(options.host, options.port) as listener:
        free = admitted(config, host, on_busy, busy_timeout_s)
        engine = load_runtime(free, host, progress, load_format=load_format)
        try:
            return run(engine, options, listener, on_ready)
        finally:
            engine.close()


def admitted(config: "RuntimeConfig", host: "Host", on_busy: OnBusy, timeout_s: float) -> "RuntimeConfig":
    """`config` once its device is free, or one for the next usable device."""
    from vllm_probe.detect.select import default_device
    from vllm_probe.vendors.health import DriverHealthMonitor

    manager = discover(host)
    monitor = DriverHealthMonitor(manager)
    devices = judged_devices(manager)
    on, need = planned_device(config, manager), config.budget.requested_bytes
    health = monitor.snapshot(on, need)
    if not health.ready and on_busy == "wait":
        _log.warning("%s is busy (%s): waiting up to %g s", on.id, "; ".join(health.reasons), timeout_s)
        health = monitor.wait_until_ready(on, need, timeout_s)
    if health.ready:
        return config
    other = default_device([device for device in devices if device.id != on.id]) if on_busy == "fallback" else None
    if other is None:
        raise DeviceBusy(
            f"{on.id} cannot be used now: {'; '.join(health.reasons)}",
            hint="free the memory, raise --busy-timeout, or take another --device",
        )
    _log.warning("%s is busy (%s): falling back to %s", on.id, "; ".join(health.reasons), other.id)
    again = negotiate(config.model, host, device=other.id, engine=config.engine, pins=pins_of(config))
    return admitted(again, host, "fail", 0.0)


def _read_config(path: Path, host: "Host", wanted: dict[str, Any], load_format: "LoadFormat") -> "RuntimeConfig":
    """The config in `path`, or a new one where that does not hold here or is not what is `wanted`."""
    from vllm_probe.host.fingerprint import host_fingerprint

    config = read_config(path)
    changed = [f"{key} {value} is asked for" for key, value in wanted.items() if getattr(config, key) != value]
    if config.host_fingerprint != host_fingerprint(host):
        changed.append("it was made on another machine")
    engine = wanted.get("engine", config.engine)
    if engine == "bundled":
        require_servable(config.model, host, load_format, None if changed else config)
    if not changed:
        return config
    _log.warning("%s is negotiated again: %s", path, " and ".join(changed))
    return _negotiated(config.model, host, **{"pins": pins_of(config), **wanted, "engine": engine})


def _negotiated(model: str, host: "Host", **wanted: Any) -> "RuntimeConfig":
    """The config of `model`; for a vLLM that is installed, by its memory law."""
    from vllm_probe.detect.engine_pick import find_vllm

    found = find_vllm(host) if wanted.get("engine") == "vllm" else None
    return negotiate(model, host, engine_version=found.version if found else None, **wanted)

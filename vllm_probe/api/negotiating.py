"""Negotiating: model, device and descriptor to a runtime config."""

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_probe.api.checking import checked, read_log, stored_residual
from vllm_probe.api.looking import discover, is_replay, judged_devices, open_host, search
from vllm_probe.api.planning import device_notes, offer, other_than
from vllm_probe.core.errors import AmbiguousModel, MissingExtra, NoDescriptor

if TYPE_CHECKING:
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.device import Device
    from vllm_probe.core.document import Stamp
    from vllm_probe.core.model import ModelSpec
    from vllm_probe.core.system import Host
    from vllm_probe.negotiate.request import Request
    from vllm_probe.vendors.registry import PortableDeviceManager

_log = logging.getLogger(__name__)


def negotiate(
    model: str,
    host: "Host | None" = None,
    *,
    capability: str | None = None,
    device: str | None = None,
    log: Path | None = None,
    **wanted: Any,
) -> "RuntimeConfig":
    """The runtime config of `model` on a device, with the reason of every value.

    Args:
        model: name or folder.
        host: machine to negotiate for, this one by default.
        capability: descriptor to use, a file or a name; else the one that describes the device, else a quick bench.
        device: id, vendor or device type; else the picked one. An id takes that device alone, anything else (`all`
            too) as many of its kind as the model needs.
        log: start-up log of vLLM to compare with; what the question leaves open is then as the log says it.
        wanted: fields of `negotiate.request.Request`, such as `concurrency=8` or `pins={"dtype": "float32"}`.

    Returns:
        A config whose `budget.verdict` says whether it boots; `refusal` turns that into an error.

    Raises:
        UnknownModel, AmbiguousModel, InvalidModel: the model cannot be read.
        HubUnreachable, HubRefused: nothing but the hub can know the model.
        NoDescriptor, MissingExtra: nothing describes the device and it cannot be measured.
        BadUsage: a pin that means nothing, or a log that is none of vLLM.
        UnreadableFile: the log cannot be read.
    """
    from vllm_probe.host.fingerprint import make_stamp
    from vllm_probe.models.resolve import resolve_model
    from vllm_probe.negotiate.negotiate import negotiate as run
    from vllm_probe.negotiate.request import Request

    host = host or open_host()
    stamp = make_stamp(host)
    family: AmbiguousModel | None = None
    try:
        specs = [resolve_model(model, host)]
    except AmbiguousModel as error:
        family, specs = error, [resolve_model(each, host) for each in error.candidates]
    name, document, on, devices = _describe(host, stamp, capability, None if device == "all" else device)
    notes = tuple(device_notes(on, document, devices))
    wanted = {"beside": devices if on else (), "notes": notes, **wanted}
    if on:
        alike = 1 if device == on.id else _alike(on, devices)
        wanted = {"device_id": on.id, "threads": on.details.get("threads"), "num_devices": alike, **wanted}
        document = _with_memory_of(on, document)
    if log and not family:
        return _checked(specs[0], log, host, document, stamp, {"capability_name": name, **wanted})
    if wanted.get("engine") == "vllm":
        ranks = wanted.get("pins", {}).get("tensor_parallel_size", 1)
        wanted["residual"] = stored_residual(host, document, wanted.get("engine_version"), ranks)
    request = Request(capability_name=name, **wanted)
    if family:
        fits: dict[str, list[str]] = {}
        for spec in specs:
            fits.setdefault(_fit(spec, document, request, stamp), []).append(spec.name)
        listed = "; ".join(f"{verdict}: {', '.join(fits[verdict])}" for verdict in sorted(fits))
        raise AmbiguousModel(
            str(family), candidates=family.candidates, hint=f"name one; on {request.device_id or name} {listed}"
        )
    config = run(specs[0], document, request, stamp)
    return replace(config, model=_lasting(model)) if request.engine == "bundled" else config


def _fit(spec: "ModelSpec", document: "Capability", request: "Request", stamp: "Stamp") -> str:
    """The verdict of a model, with the engine that it needs where that is another."""
    from vllm_probe.negotiate.case import refusal_of
    from vllm_probe.negotiate.negotiate import negotiate as run

    if request.engine == "vllm" or not refusal_of(request.engine, spec):
        return run(spec, document, request, stamp).budget.verdict
    asked = replace(request, engine="vllm", engine_version=None)
    return f"{run(spec, document, asked, stamp).budget.verdict} with --engine vllm"


def _with_memory_of(device: "Device", document: "Capability") -> "Capability":
    """`document` with no more memory than `device` has, and no more usable than it has free now."""

    def least(*sizes: int | None) -> int | None:
        return min((size for size in sizes if size is not None), default=None)

    described, here = document.memory, device.memory
    total = least(described.total_bytes, here.reported_bytes)
    usable = least(described.usable_bytes, here.usable_bytes, total)
    return replace(document, memory=replace(described, total_bytes=total, usable_bytes=usable))


def _checked(
    spec: "ModelSpec", log: Path, host: "Host", document: "Capability", stamp: "Stamp", wanted: dict[str, Any]
) -> "RuntimeConfig":
    """The config of the start that `log` records, with the comparison."""
    from vllm_probe.negotiate.check import asked_as_logged, require_same_platform
    from vllm_probe.negotiate.negotiate import negotiate as run
    from vllm_probe.negotiate.request import Request

    found = read_log(log)
    require_same_platform(found, document, log.name)
    asked, notes = asked_as_logged(found, spec, document, wanted)
    config = run(spec, document, Request(**asked), stamp)
    return checked(config, spec, found, log, host=host, document=document, notes=notes)


def _lasting(model: str) -> str:
    """`model` in the form that means the same from every folder."""
    return str(Path(model).resolve()) if Path(model).exists() else model


def _alike(on: "Device", devices: "tuple[Device, ...]") -> int:
    """Devices of this host that can share a model with `on`, itself included; a part of one shares nothing."""
    if "/" in on.id:
        return 1
    kinds = [(each.vendor, each.arch, each.name) for each in devices if each.usable and each.visible]
    return max(1, kinds.count((on.vendor, on.arch, on.name)))


def _describe(
    host: "Host", stamp: "Stamp", capability: str | None, device: str | None
) -> "tuple[str, Capability, Device | None, tuple[Device, ...]]":
    """Name and content of the descriptor to negotiate with, the device here that it describes, and all devices.

    A descriptor that is named describes no device where none of its vendor can be used; those come in place of all. It
    is laid on its own device, else on the one that would be used, of those that are not known to be of another
    architecture, unless `device` names one.
    """
    from vllm_probe.detect.select import default_device, select_device, unfit
    from vllm_probe.vendors.descriptors import named_capability

    manager = discover(host)
    devices = judged_devices(manager)
    if capability is None:
        on = select_device(devices, device, manager)
        return *_descriptor_of(host, on, devices, manager, stamp), on, devices
    path, document = named_capability(capability, manager, stamp.host_fingerprint)
    plugin, arch = manager.plugin_for(document.device_type), document.device.arch
    own = [on for on in devices if plugin and on.vendor == plugin.name]
    if device:
        return str(path), document, select_device(own, device, manager), devices
    named = [each for each in own if unfit(each) is None and other_than(each, document) is None]
    alike = named or [each for each in own if each.kind == "cpu" or None in (each.arch, arch) or each.arch == arch]
    here = default_device(alike) or next((each for each in alike if unfit(each) is None), None)
    return str(path), document, here, devices if here or document.device.kind == "cpu" else tuple(own)


def _descriptor_of(
    host: "Host", on: "Device", devices: "tuple[Device, ...]", manager: "PortableDeviceManager", stamp: "Stamp"
) -> "tuple[str, Capability]":
    """The descriptor that describes `on`, after a quick bench where there is none."""
    for found in search(on, manager, stamp.host_fingerprint):
        if found.used and found.capability:
            return str(found.path), found.capability
        if found.path.is_file() and not found.place.shipped and _seems_meant(found.capability, on, manager):
            _log.warning("%s is not used: %s", found.path, found.reason)
    if is_replay(host):
        message = f"nothing describes {on.id} ({on.name or on.vendor}) of the recording"
        raise NoDescriptor(message, hint=offer(on, devices, manager, stamp.host_fingerprint))
    _require_adapter(host, on, manager)
    try:
        return _quick_bench(host, on)
    except NoDescriptor as error:
        error.hint = f"see the lines above, or {offer(on, devices, manager, stamp.host_fingerprint)}"
        raise


def _seems_meant(capability: "Capability | None", on: "Device", manager: "PortableDeviceManager") -> bool:
    """Whether a file that was passed over would surprise its owner: unreadable, or for a device of this type."""
    return capability is None or manager.plugin_for(capability.device_type) == manager.plugin_for(on.vendor)


def _require_adapter(host: "Host", on: "Device", manager: "PortableDeviceManager") -> None:
    """Fails before a bench is started that would fail for want of torch, which takes seconds to import where it is."""
    from vllm_probe.vendors.software import installed

    if installed(host, "torch"):
        return
    try:
        manager.adapter_for(on)
    except MissingExtra as error:
        message = f"no capability document describes {on.id}, and measuring it needs torch"
        raise MissingExtra(message, hint=f"{error.hint}, or name a document with --capability") from error


def _quick_bench(host: "Host", on: "Device") -> "tuple[str, Capability]":
    from tempfile import TemporaryDirectory

    from vllm_probe.vendors.descriptors import load_capability

    _log.warning("no capability document for %s: measuring it, about 8 s", on.id)
    with TemporaryDirectory(prefix="vllm-probe-") as folder:
        path = Path(folder) / "capability.json"
        options = ["--quick", "--device", on.id, "--emit", str(path), "--json"]
        code = host.spawn([sys.executable, "-m", "vllm_probe", "bench", *options]).wait()
        if code:
            hint = "name a descriptor with --capability"
            raise NoDescriptor(f"the quick bench of {on.id} ended with exit code {code}", hint=hint)
        return f"quick bench of {on.id}", load_capability(path)

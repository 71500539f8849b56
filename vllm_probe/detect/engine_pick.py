"""Which device an installed vLLM would take, and why none of the others.

vLLM runs on one kind of device: that of the plug-in beside it, else the one that it was built for
(https://github.com/vllm-project/vllm, vllm/platforms/__init__.py). Among those its runtime shows, it takes the first,
which is not guessed where the runtime's numbers are not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from vllm_probe.core.device import Choice, Device, Software
from vllm_probe.core.system import Host
from vllm_probe.detect.builds import build_tag, table, taken_arch, vendor_of
from vllm_probe.detect.select import unfit
from vllm_probe.detect.stack import runs
from vllm_probe.vendors.engines import compiles, last_on, refusal
from vllm_probe.vendors.software import installed

_LAST = 1 << 16
_UNTOLD = "in which nothing here tells them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A vLLM that can be started.

    Attributes:
        program: path of `vllm`.
        version: its version, null when nothing beside it says that.
        vendor: the vendor that it was built for, null when its version is not known.
    """

    program: str
    version: str | None
    vendor: str | None


def find_vllm(host: Host) -> Installed | None:
    """The vLLM of this interpreter's environment, else the one on PATH; null when there is neither."""
    own = host.platform().site_packages
    if installed(host, "vllm"):
        folders = dict.fromkeys(str(PurePath(site).parents[2] / "bin" / "vllm") for site in own if site.count("/") > 2)
        if program := next(filter(host.exists, folders), None):
            return _installed(host, program, own)
    program = host.which("vllm")
    if program is None:
        return None
    real = PurePath(program).parent / (host.readlink(program) or program)
    return _installed(host, program, host.glob(f"{real.parents[1]}/lib/python3*/site-packages"))


def _installed(host: Host, program: str, sites: Sequence[str]) -> Installed:
    software = Software(torch=installed(host, "torch", sites), vllm=installed(host, "vllm", sites))
    return Installed(program=program, version=software.vllm, vendor=vllm_vendor(host, software, sites))


def vllm_vendor(host: Host, software: Software, sites: Sequence[str] | None = None) -> str | None:
    """The vendor that the installed vLLM is for, null when there is none; `sites` hold it.

    A wheel of PyPI has no tag and is for CUDA, a CPU build always has one (vLLM's setup.py) or is a package of its own;
    what has no tag and torch for ROCm or XPU beside it was built from source for that.
    """
    if software.vllm is None:
        return None
    for vendor, record in table()["vendors"].items():
        if "package" in record and any(
            host.glob(f"{site}/{record['package']}-*.dist-info")
            for site in (host.platform().site_packages if sites is None else sites)
        ):
            return str(vendor)
    own, beside = (vendor_of(build_tag(version) or "") for version in (software.vllm, software.torch))
    return own or (beside if beside not in {None, "cpu"} else vendor_of("cu"))


def vllm_choice(devices: Sequence[Device], version: str | None, vendor: str | None) -> Choice:
    """What vLLM of that version, for devices of `vendor`, would take."""
    if version is None:
        return _hypothetical(devices)
    mine = [device for device in devices if device.vendor == vendor and _seen(device)]
    first, several = _first(mine, version)
    ahead = _ahead(mine, first)
    others = {
        device.id: _why_not(device, ahead or first, version, vendor, seen=device in mine)
        for device in devices
        if device is not (ahead or first)
    }
    if ahead is not None and first is not None:
        reason = f"vLLM {version}, {_build(vendor)}, takes the first device in the order of its runtime{_number(ahead)}"
        fails = f"and fails: {_unfit(ahead, version)}; with that one hidden it takes {first.id}"
        return Choice(id=ahead.id, reason=f"{reason}, {fails}", others=others)
    if first is not None and first.kind == "cpu":
        return Choice(id=first.id, reason=f"vLLM {version} is a CPU build", others=others)
    if first is not None:
        number = _number(first)
        which = f"the first device in the order of its runtime{number}" if number else "the only one that can be used"
        reason = f"vLLM {version}, {_build(vendor)}, takes {which}{_short(first, version)}"
        return Choice(id=first.id, reason=reason, others=others)
    return Choice(id=None, reason=_why_none(mine, version, vendor, several=several), others=others)


def not_run(device: Device, version: str | None, *, released: bool = False) -> str | None:
    """Why vLLM does not run on the architecture of a device, the newest where `version` is null.

    Null where it does and where that is not known, as of an installed one for what it can be compiled for, unless it is
    taken to be as `released`.
    """
    refused = refusal("vllm", device.vendor, taken_arch(device), version)
    if refused is None or (version and not released and compiles("vllm", device.vendor, taken_arch(device))):
        return None
    return f"vLLM {version} {refused}" if version else f"vLLM {refused}"


def _unfit(device: Device, version: str | None) -> str | None:
    return unfit(device) or not_run(device, version)


def _why_none(devices: Sequence[Device], version: str, vendor: str | None, *, several: bool) -> str:
    """Why an installed vLLM would take none of the devices of its kind."""
    takes = f"vLLM {version} takes the first device in the order of its runtime"
    if several:
        return f"{takes}, {_UNTOLD}"
    unjudged = next((device for device in devices if device.verdict.code == "unknown"), None)
    if unjudged:
        return f"{takes}; whether {unjudged.id} works is unknown"
    reason = f"vLLM {version} is {_build(vendor)} and no device of that kind can be used here"
    shown = min((device for device in devices if unfit(device) is None), key=_order, default=None)
    if shown:
        return f"{reason}: it takes {shown.id} and fails; {_unfit(shown, version)}"
    return f"{reason}: it stops, mostly with `Failed to infer device type`; its CPU build would take the CPU"


def _hypothetical(devices: Sequence[Device]) -> Choice:
    """What vLLM would take if it were installed: of each vendor's devices the first."""
    cards = [device for device in devices if device.kind in {"gpu", "npu"} and device.visible and runs(device)]
    new = [device for device in cards if not_run(device, None) is None]
    old = [(device, last) for device in cards if (last := last_on("vllm", device.vendor, taken_arch(device)))]
    needed = next(iter([device for device in new if device.usable] or new), None)
    build = _build(needed.vendor) if needed else "its CPU build"
    if needed is None and old:
        build = f"{_build(old[0][0].vendor)} of a release up to {old[0][1]}"
    others = {}
    for device in devices:
        mine = [each for each in devices if each.vendor == device.vendor and _seen(each)]
        first, several = _first(mine, None)
        taken = f"it{_short(device, None)}" if first is None or first == device else f"{first.id} before it"
        taken = f"the first in the order of its runtime, {_UNTOLD}" if several else taken
        why = _no_kind(device) or _unfit(device, None)
        others[device.id] = why or f"with {_build(device.vendor)} vLLM would take {taken}"
    return Choice(id=None, reason=f"vLLM is not installed; this machine would need {build}", others=others)


def _first(devices: Sequence[Device], version: str | None) -> tuple[Device | None, bool]:
    """The first that can be used, null where none can; and whether it is null because several may be the first."""
    fit = sorted((device for device in devices if _unfit(device, version) is None), key=_order)
    numbers = [_order(device)[0] for device in fit]
    untold = len(fit) > 1 and numbers[0] > 0 and _LAST in numbers
    return (None, True) if untold else (fit[0] if fit else None, False)


def _ahead(devices: Sequence[Device], first: Device | None) -> Device | None:
    """The device that the runtime shows and counts before `first`, though what is installed cannot run on it."""
    last = _order(first)[0] if first else 0
    return min((each for each in devices if each.visible and _order(each)[0] < last < _LAST), key=_order, default=None)


def _short(device: Device, version: str | None) -> str:
    short = device.details.get("stack", {}).get("short", ())
    if version and compiles("vllm", device.vendor, taken_arch(device)):
        short = (
            f"no release is built for {taken_arch(device)}, and only one that was compiled for it runs there",
            *short,
        )
    return f", though {short[0]}" if short else ""


def _build(vendor: str | None) -> str:
    if vendor not in table()["vendors"]:
        return "a plug-in for its vendor"
    return "the CPU build" if vendor == "cpu" else f"the build for {vendor}"


def _seen(device: Device) -> bool:
    """Whether its runtime would show it: a device that computes, an integrated one where the runtime numbers it."""
    return runs(device) and (device.kind in {"cpu", "gpu", "npu"} or _order(device)[0] < _LAST)


def _no_kind(device: Device) -> str | None:
    return None if runs(device) else f"{_build(device.vendor)} runs no {device.kind.upper()}"


def _order(device: Device) -> tuple[int, str]:
    names = table()["vendors"].get(device.vendor, {}).get("numbers", ())
    return min((device.indices[name] for name in names if name in device.indices), default=_LAST), device.id


def _number(device: Device) -> str:
    names = table()["vendors"].get(device.vendor, {}).get("numbers", ())
    return next((f", {name} {device.indices[name]}" for name in names if name in device.indices), "")


def _why_not(device: Device, first: Device | None, version: str, vendor: str | None, *, seen: bool) -> str:
    if device.vendor != vendor:
        return f"vLLM {version} is {_build(vendor)}"
    reason = _no_kind(device) or _unfit(device, version)
    if reason is not None:
        return reason
    if not seen:
        return "nothing numbers it for its runtime"
    return f"{first.id} comes before it" if first else "whether it is the first for its runtime is not known"

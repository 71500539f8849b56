"""What must be installed at least for a family of devices to compute, and what of it is missing here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from vllm_probe.core.device import Device, Software, Verdict
from vllm_probe.detect.builds import (
    Override,
    Record,
    as_released,
    build_tag,
    driver_version,
    has_kernels,
    is_module,
    is_older,
    lacks,
    module_of,
    needed_driver,
    newest,
    override_for,
    override_set,
    table,
    unfit,
    vendor_of,
    vendor_record,
)

_INDEX = "https://download.pytorch.org/whl"
_JUDGED = ("usable", "limited")


def runs(device: Device) -> bool:
    """Whether torch and vLLM for the vendor's devices run this kind of them: those for Intel GPUs run no Intel NPU."""
    kinds = vendor_record(device).get("kinds")
    return kinds is None or device.kind in kinds


def weigh(
    device: Device,
    software: Software,
    env: Callable[[str], str | None] = lambda _name: None,
    devices: Sequence[Device] = (),
) -> Device:
    """`device` beside what is installed: `details.stack`, and a verdict that the installed torch can run on it.

    `devices` are those of the machine, which a variable that is advised must leave as they are.

    `details.stack` has `least` (kernel, driver, runtime), `install` (the command that brings the torch it needs),
    `advice` where there is none to type, `short`, what here is older, and `takes`, whose kernels a variable, which
    `env` tells, has it take. A device that detection found usable becomes unusable where the installed torch is another
    vendor's build, has no kernels for it or needs a newer driver, where there is no torch and no build has kernels for
    it, and where those that it takes do not run on it; unknown where that or whether there are any is not known;
    limited where only a newer driver lets a build run, and where it takes the kernels of a like one.
    """
    family = _family(device)
    if device.kind == "cpu" or not (family or (vendor_record(device) and device.verdict.code in _JUDGED)):
        return device
    active = override_set(device, env)
    override = active or override_for(device, devices)
    seen = active.applied(device) if active else device
    build = newest(seen) or (newest(override.applied(device)) if override else None)
    short = tuple(_short(family, device, software))
    takes = active.arch if active else None
    stack: dict[str, Any] = {"least": _least(family), **_means(device, build), "short": list(short), "takes": takes}
    weighed = replace(
        device, details={**device.details, "stack": {key: value for key, value in stack.items() if value}}
    )
    if device.verdict.code not in _JUDGED:
        return _with_hint(weighed, short) if device.driver is None else weighed
    verdict = _verdict(weighed, seen, software.torch, override)
    return replace(weighed, usable=verdict.code in _JUDGED, verdict=verdict) if verdict else weighed


def _means(device: Device, build: Record | None) -> dict[str, str | None]:
    """How the torch that the device needs is had: by a command, else by what is advised."""
    install = vendor_record(device).get("install")
    if module := module_of(device):
        install = module["installs"].get(device.details.get("cuda_version"))
        return {"install": install, "advice": None if install else module["advice"]}
    return {"install": install or (f"pip install torch --index-url {_INDEX}/{build['tag']}" if build else None)}


def _verdict(device: Device, seen: Device, torch: str | None, override: Override | None) -> Verdict | None:
    """What torch makes of the verdict, null where nothing; `seen` is the device as the environment has it be."""
    is_on = seen.arch != device.arch
    if is_on and override and not override.works:
        return _crossed(device, override)
    against = _against(seen, torch)
    if against:
        return Verdict(code="unusable", reason=against + _fix(device, torch, None if is_on else override))
    if has_kernels(seen, build_tag(torch)) is None:
        doubt = f"whether torch {torch} has kernels for {seen.arch} is unknown: not every build for it has"
        return Verdict(code="unknown", reason=doubt)
    note = vendor_record(device).get("override", {}).get("note")
    builds = vendor_record(device)["builds"]
    if builds and torch is None and not is_module(device) and newest(seen) is None:
        if driver := needed_driver(seen):
            old = f"every build of torch that is known here needs a newer driver: {unfit(builds[-1], seen)}"
            return Verdict(code="limited", reason=f"{old}; {_updated(driver)}")
        none = f"no build of torch that is known here has kernels for {seen.arch}"
        if override and newest(override.applied(device)):
            those = f"`{override.setting}` has it take those of {override.arch}, {note}"
            return Verdict(code="limited", reason=f"{none}; {those}")
        return Verdict(code="unusable", reason=none)
    if is_on and override:
        return Verdict(code="limited", reason=f"{override.setting} has it take the kernels of {seen.arch}, {note}")
    return None


def _fix(device: Device, torch: str | None, override: Override | None) -> str:
    """What to do where the installed torch cannot run on the device, empty where nothing known would help."""
    stack = device.details["stack"]
    like = override.applied(device) if override and newest(device) is None else None
    if override and like and _against(like, torch) is None and has_kernels(like, build_tag(torch)):
        return f"; run `export {override.setting}`, with which it takes the kernels of {override.arch}"
    if driver := needed_driver(device):
        return f"; {_updated(driver)}"
    if "install" in stack:
        return f"; run `{stack['install'].replace('install', 'install --force-reinstall', 1)}`"
    return f"; {stack['advice']}" if "advice" in stack else ""


def _crossed(device: Device, override: Override) -> Verdict:
    """The verdict of a device that a variable has take kernels of which none are known to run on it."""
    takes = f"{override.setting} has it take the kernels of {override.arch}"
    if override.works is None:
        return Verdict(code="unknown", reason=f"{takes}; whether those run on {device.arch} is unknown")
    reason = f"{takes}, which do not run on {device.arch}; run `unset {override.name}`"
    return Verdict(code="unusable", reason=reason)


def _updated(driver: str) -> str:
    return f"update the driver to {driver} or newer"


def _family(device: Device) -> Record:
    families = (each for each in table()["families"] if each["vendor"] == device.vendor)
    return next((each for each in families if any(fnmatchcase(device.arch or "", one) for one in each["archs"])), {})


def _least(family: Record) -> dict[str, str]:
    least = {key: family[key] for key in ("kernel", "driver") if key in family}
    return least | ({"runtime": " ".join(family["runtime"][:2])} if "runtime" in family else {})


def old_runtime(device: Device) -> tuple[str, str, str] | None:
    """Name and version of the runtime and the least that vLLM needs, null where it is not known to be older."""
    name, least, detail = (*_family(device).get("runtime", ()), None, None, None)[:3]
    version = device.details.get(detail)
    return (name, version, least) if version and least and is_older(version, least) else None


def _short(family: Record, device: Device, software: Software) -> Iterator[str]:
    """What is known to be older than the family needs."""
    have = {
        "Linux": (software.kernel, family.get("kernel")),
        "the driver": (driver_version(device), family.get("driver")),
    }
    for what, (version, needed) in have.items():
        if version and needed and is_older(version, needed):
            yield f"{what} {version} is older than {needed}"
    old = old_runtime(device)
    if old:
        yield f"{old[0]} {old[1]} is older than {old[2]}"


def _with_hint(device: Device, short: Sequence[str]) -> Device:
    if not short:
        return device
    reason = f"{device.verdict.reason}; {short[0]}, the first that supports it"
    return replace(device, verdict=replace(device.verdict, reason=reason))


def _against(device: Device, torch: str | None) -> str | None:
    """Why the installed torch cannot run on the device, null where it can or does not tell its build."""
    tag, builds = build_tag(torch), vendor_record(device)["builds"]
    owner = vendor_of(tag) if tag else None
    if tag is None or owner is None or not builds:
        return None
    if owner != device.vendor:
        return f"torch {torch} is a build for {owner.upper()} devices and cannot run on it"
    alike = [each for each in builds if each["tag"][:4] == tag[:4]]  # of CUDA's major version
    needs = {key: alike[0][key] for key in ("driver", "runtime") if alike and key in alike[0]}
    build = next((each for each in alike if each["tag"] == tag), {"tag": tag, **needs})
    against = unfit(as_released(build, torch or "", device.arch), device)
    if against is None and has_kernels(device, tag) is False:
        against = lacks(tag, device.arch)
    return f"torch {torch} cannot run on it: {against}" if against else None

"""What must be installed at least for a family of devices to compute, and what of it is missing here.

`stacks.json` has, by vendor, the builds of torch to install with the architectures (`arch`: from and to; `archs`: each;
`some`: those that only some releases of the build have) and the driver that each needs, newest first; `older` ones;
what the local version of such a build begins with (`tag`); the kinds of devices that they run (`kinds`, all where it
is left out); and the numbers that count devices as torch does; by family of architectures the least kernel, driver and
runtime; and where it is all from.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from vllm_probe.core.device import Device, Software, Verdict
from vllm_probe.core.files import read_json

Record: TypeAlias = Mapping[str, Any]

_INDEX = "https://download.pytorch.org/whl"
_JUDGED = ("usable", "limited")


@cache
def table() -> Record:
    """`stacks.json`."""
    loaded: Record = read_json(Path(__file__).with_name("stacks.json"))
    return loaded


def build_tag(version: str | None) -> str | None:
    """`cu128` of `2.11.0+cu128`, null where a version does not tell its build."""
    return version.partition("+")[2] or None if version else None


def vendor_of(tag: str) -> str | None:
    """The vendor whose devices a build with this tag runs on."""
    vendors = table()["vendors"].items()
    return next((name for name, each in vendors if each.get("tag") and tag.startswith(each["tag"])), None)


def build_for(arch: str | None, vendor: str | None = None) -> str | None:
    """Tag of the newest build of torch with kernels for `arch` among those that need the oldest driver.

    Without `arch` that of `vendor`; null where no build has them.
    """
    listed = table()["vendors"].items()
    owners = [each for name, each in listed if each.get("builds") and name == (vendor or _owner(arch))]
    fitting = [build for each in owners for build in each["builds"] if arch is None or _covers(build, arch)]
    return min(fitting, key=lambda build: int(build.get("driver", "0")))["tag"] if fitting else None


def _owner(arch: str | None) -> str | None:
    families = table()["families"]
    return next(
        (each["vendor"] for each in families if any(fnmatchcase(arch or "", one) for one in each["archs"])), None
    )


def runs(device: Device) -> bool:
    """Whether torch and vLLM for the vendor's devices run this kind of them: those for Intel GPUs run no Intel NPU."""
    kinds = table()["vendors"].get(device.vendor, {}).get("kinds")
    return kinds is None or device.kind in kinds


def weigh(device: Device, software: Software) -> Device:
    """`device` beside what is installed: `details.stack`, and a verdict that the installed torch can run on it.

    `details.stack` has `least` (kernel, driver, runtime), `install` (the command that brings the torch it needs) and
    `short`, what here is older. A device that detection found usable becomes unusable where the installed torch is
    another vendor's build, has no kernels for it or needs a newer driver, unknown where it may have none, and limited
    where every build does.
    """
    vendor, family = table()["vendors"].get(device.vendor, {}), _family(device)
    if device.kind == "cpu" or not (family or (vendor and device.verdict.code in _JUDGED)):
        return device
    build = next((each for each in vendor["builds"] if _unfit(each, device) is None), None)
    install = vendor.get("install") or (f"pip install torch --index-url {_INDEX}/{build['tag']}" if build else None)
    short = tuple(_short(family, device, software))
    stack: dict[str, Any] = {"least": _least(family), "install": install, "short": list(short)}
    weighed = replace(
        device, details={**device.details, "stack": {key: value for key, value in stack.items() if value}}
    )
    if device.verdict.code not in _JUDGED:
        return _with_hint(weighed, short) if device.driver is None else weighed
    against = _against(vendor, device, software.torch)
    if against:
        fix = f"; run `{install.replace('install', 'install --force-reinstall', 1)}`" if install else ""
        return replace(weighed, usable=False, verdict=Verdict(code="unusable", reason=against + fix))
    if _has_kernels(vendor, build_tag(software.torch), device.arch) is None:
        doubt = f"whether torch {software.torch} has kernels for {device.arch} is unknown: not every build for it has"
        return replace(weighed, usable=False, verdict=Verdict(code="unknown", reason=doubt))
    if vendor["builds"] and build is None and software.torch is None:
        reasons = [_unfit(each, device) for each in vendor["builds"]]
        return replace(weighed, verdict=Verdict(code="limited", reason=f"no build of torch runs on it: {reasons[-1]}"))
    return weighed


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
    return (name, version, least) if version and least and _older(version, least) else None


def _short(family: Record, device: Device, software: Software) -> Iterator[str]:
    """What is known to be older than the family needs."""
    have = {
        "Linux": (software.kernel, family.get("kernel")),
        "the driver": (_driver(device), family.get("driver")),
    }
    for what, (version, needed) in have.items():
        if version and needed and _older(version, needed):
            yield f"{what} {version} is older than {needed}"
    old = old_runtime(device)
    if old:
        yield f"{old[0]} {old[1]} is older than {old[2]}"


def _with_hint(device: Device, short: Sequence[str]) -> Device:
    if not short:
        return device
    reason = f"{device.verdict.reason}; {short[0]}, the first that supports it"
    return replace(device, verdict=replace(device.verdict, reason=reason))


def _against(vendor: Record, device: Device, torch: str | None) -> str | None:
    """Why the installed torch cannot run on the device, null where it can or does not tell its build."""
    tag = build_tag(torch)
    owner = vendor_of(tag) if tag else None
    if tag is None or owner is None or not vendor["builds"]:
        return None
    if owner != device.vendor:
        return f"torch {torch} is a build for {owner.upper()} devices and cannot run on it"
    alike = [each for each in vendor["builds"] if each["tag"][:4] == tag[:4]]  # of CUDA's major version
    build = next((each for each in alike if each["tag"] == tag), None)
    unfit = _unfit(build or {"tag": tag, "driver": alike[0].get("driver") if alike else None}, device)
    if unfit is None and _has_kernels(vendor, tag, device.arch) is False:
        unfit = _lacks(tag, device.arch)
    return f"torch {torch} cannot run on it: {unfit}" if unfit else None


def _has_kernels(vendor: Record, tag: str | None, arch: str | None) -> bool | None:
    """Whether the build has kernels for the architecture, null where that is not known.

    A build that is not listed, such as one of the vendor's own of the same release, is taken for the listed ones where
    these agree.
    """
    listed = {name: each for each in vendor.get("older", ()) for name in each["tags"]}
    listed |= {each["tag"]: each for each in vendor["builds"] if "archs" in each}
    if tag is None or arch is None or vendor_of(tag) is None or not listed:
        return True
    near = next((each for name, each in listed.items() if tag == name), None)
    release = near or next((each for name, each in listed.items() if tag.startswith(f"{name}.")), None)
    known = [arch in each["archs"] for each in ([release] if release else listed.values())]
    if all(known):
        return True
    return False if near and arch not in near.get("some", ()) else None


def _unfit(build: Record, device: Device) -> str | None:
    """Why a build of torch does not run on the device, null where nothing known is against it."""
    arch, driver = device.arch, _driver(device)
    if arch and not _covers(build, arch):
        return _lacks(build["tag"], arch)
    if driver and build.get("driver") and _older(driver, build["driver"]):
        return f"the build {build['tag']} needs driver {build['driver']}, this is {driver}"
    return None


def _lacks(tag: str, arch: str | None) -> str:
    return f"the build {tag} has no kernels for {arch}"


def _covers(build: Record, arch: str) -> bool:
    if "arch" not in build:
        return arch in (
            *build.get("archs", (arch,)),
            *build.get("some", ()),
        )  # one that is not in the table may have any
    numbers = [int(re.sub(r"\D", "", each) or 0) for each in (build["arch"][0], arch, build["arch"][1])]
    return numbers == sorted(numbers)


def _driver(device: Device) -> str | None:
    match = re.search(r"^\S+ ([0-9]+(?:\.[0-9]+)*)$", device.driver or "")
    return match[1] if match else None


def _older(version: str, least: str) -> bool:
    """Whether `version` comes before `least`, as far as that goes; what follows the dotted numbers does not count."""
    have, needed = (
        [int(each) for each in re.findall(r"[0-9]{1,9}", (re.match(r"[0-9.]+", text) or [""])[0])]
        for text in (version, least)
    )
    return have[: len(needed)] < needed

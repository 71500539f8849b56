"""The builds of torch, and which of them have what a device needs.

`stacks.json` has, by vendor, the builds of torch to install with the architectures (`arch`: from and to, without those
of `but`; `archs`: each; `some`: those that only some releases of the build have; `had`: those that it had from one
release of torch until another) and the driver and runtime that each needs, newest first; `older` ones; what the local
version of such a build begins with (`tag`); the kinds of devices that they run (`kinds`, all where it is left out); the
numbers that count devices as torch does; the runtime's name and the detail that says which one the driver is for
(`runtime`); `modules`, which those builds do not run on before a runtime (`until`), with the commands for others by
runtime (`installs`); and the variable that has a GPU take the kernels of another (`override`). By family of
architectures it has the least kernel, driver and runtime; and where all that is from.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from vllm_probe.core.device import Device
from vllm_probe.core.files import read_json
from vllm_probe.core.releases import is_before

Record: TypeAlias = Mapping[str, Any]


@cache
def table() -> Record:
    """`stacks.json`."""
    loaded: Record = read_json(Path(__file__).with_name("stacks.json"))
    return loaded


def vendor_record(device: Device) -> Record:
    """What the table has of the device's vendor, empty where it is not in it."""
    found: Record = table()["vendors"].get(device.vendor, {})
    return found


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
    owners = [each for each in owners if arch not in each.get("modules", {}).get("archs", ())]
    fitting = [build for each in owners for build in each["builds"] if arch is None or _covers(build, arch)]
    return min(fitting, key=lambda build: int(build.get("driver", "0")))["tag"] if fitting else None


def _owner(arch: str | None) -> str | None:
    families = table()["families"]
    return next(
        (each["vendor"] for each in families if any(fnmatchcase(arch or "", one) for one in each["archs"])), None
    )


def newest(device: Device) -> Record | None:
    """The newest build of torch that nothing known keeps from running on the device."""
    builds = vendor_record(device).get("builds", ())
    return next((build for build in builds if unfit(build, device) is None), None)


def needed_driver(device: Device) -> str | None:
    """The least driver with which a build of torch has kernels for the device, null where a newer one helps nothing."""
    builds = [] if module_of(device) or newest(device) else vendor_record(device).get("builds", ())
    fitting = [
        each["driver"] for each in builds if "driver" in each and (not device.arch or _covers(each, device.arch))
    ]
    return min(fitting, key=int, default=None)


def module_of(device: Device) -> Record:
    """What the table has of modules where the device is built into one, else nothing."""
    modules: Record = vendor_record(device).get("modules", {})
    return modules if device.arch in modules.get("archs", ()) else {}


def is_module(device: Device) -> bool:
    """Whether the device is built into a module, which needs builds of its own."""
    return bool(module_of(device))


def unfit(build: Record, device: Device) -> str | None:
    """Why a build of torch does not run on the device, null where nothing known is against it."""
    old = _too_old(build, device)
    module = module_of(device)
    if module:
        runtime = _runtime(device)
        newer = runtime is not None and not is_older(runtime, module["until"])
        return old or (None if newer else f"{lacks(build['tag'], device.arch)}, it is not for {module['name']}")
    if device.arch and not _covers(build, device.arch):
        return lacks(build["tag"], device.arch)
    return old


def as_released(build: Record, torch: str, arch: str | None) -> Record:
    """The build as a release of torch had it, which may have had kernels that it was left without since."""
    first, last = build.get("had", {}).get(arch, ("0", "0"))
    numbered = re.match(r"[0-9]+\.[0-9]+\.", torch)
    if not numbered or is_before(torch, first) or not is_before(torch, last):
        return build
    return {**build, "arch": (arch, arch)}


def lacks(tag: str, arch: str | None) -> str:
    """What is said of a build without kernels for an architecture."""
    return f"the build {tag} has no kernels for {arch}"


def has_kernels(device: Device, tag: str | None) -> bool | None:
    """Whether the build has kernels for the device's architecture, null where that is not known.

    A build that is not listed, such as one of the vendor's own of the same release, is taken for the listed ones where
    these agree.
    """
    vendor, arch = vendor_record(device), device.arch
    listed = {name: each for each in vendor.get("older", ()) for name in each["tags"]}
    listed |= {each["tag"]: each for each in vendor["builds"] if "archs" in each}
    if tag is None or arch is None or vendor_of(tag) is None:
        return True
    if not listed:
        return None if is_module(device) else True
    near = next((each for name, each in listed.items() if tag == name), None)
    release = near or next((each for name, each in listed.items() if tag.startswith(f"{name}.")), None)
    known = [arch in each["archs"] for each in ([release] if release else listed.values())]
    if all(known):
        return True
    return False if near and arch not in near.get("some", ()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A variable that has a GPU take the kernels of another.

    Attributes:
        name: the variable.
        value: what it is set to.
        arch: whose kernels the GPU takes then.
        works: whether they run on it, null where that is not known.
    """

    name: str
    value: str
    arch: str
    works: bool | None = True

    @property
    def setting(self) -> str:
        """The assignment, as a shell takes it."""
        return f"{self.name}={self.value}"

    def applied(self, device: Device) -> Device:
        """The device as it is with the variable set."""
        return replace(device, arch=self.arch)


def override_for(device: Device, devices: Sequence[Device] = ()) -> Override | None:
    """The variable that has this GPU take the kernels of a like one, null where none is known to.

    Where it would have another of `devices` take kernels that are not its own, that of the GPU's node; null where that
    is not known.
    """
    record = vendor_record(device).get("override", {})
    like = record.get("as", {})
    arch = like.get(device.arch)
    if arch is None:
        return None
    shares = (each for each in devices if each.vendor == device.vendor and each.kind in {"gpu", "igpu"})
    crossed = any(arch not in {each.arch, like.get(each.arch)} for each in shares)
    names = _names(device, record)
    if crossed and len(names) == 1:
        return None
    major, minor, step = arch[3:-2], arch[-2], arch[-1]
    value = f"{int(major)}.{int(minor, 16)}.{int(step, 16)}"
    return Override(name=names[0 if crossed else -1], value=value, arch=arch)


def override_set(device: Device, env: Callable[[str], str | None]) -> Override | None:
    """The variable that is set and has this GPU take the kernels of another, null where it takes its own."""
    record = vendor_record(device).get("override", {})
    name = next(filter(env, _names(device, record)), None) if record and device.arch else None
    value = env(name) if name else None
    numbers = re.fullmatch(r"([0-9]{1,2})\.([0-9]|1[0-5])\.([0-9]|1[0-5])", value or "", re.ASCII)
    if name is None or value is None or numbers is None:
        return None
    arch = f"gfx{int(numbers[1])}{int(numbers[2]):x}{int(numbers[3]):x}"
    if arch == device.arch:
        return None
    alike = arch[:-2] == (device.arch or "")[:-2]
    works = True if arch == record["as"].get(device.arch) else None if alike else False
    return Override(name=name, value=value, arch=arch, works=works)


def taken_arch(device: Device) -> str | None:
    """The architecture whose kernels the device takes, its own without a variable; it has been weighed."""
    taken: str | None = device.details.get("stack", {}).get("takes", device.arch)
    return taken


def _names(device: Device, record: Record) -> tuple[str, ...]:
    """The variable as it may be called for this device, the first counts."""
    node = device.indices.get(record["node"])
    return (record["variable"],) if node is None else (f"{record['variable']}_{node}", record["variable"])


def _too_old(build: Record, device: Device) -> str | None:
    """Why the driver is too old; one that a newer libcuda goes with is not, so what that is for counts where known."""
    driver, runtime = driver_version(device), _runtime(device)
    if runtime and "runtime" in build and not is_older(runtime, build["runtime"]):
        return None
    if driver and build.get("driver") and is_older(driver, build["driver"]):
        return f"the build {build['tag']} needs driver {build['driver']}, this is {driver}"
    if runtime and "runtime" in build:
        name = vendor_record(device)["runtime"][0]
        return f"the build {build['tag']} needs {name} {build['runtime']}, the driver is for {name} {runtime}"
    return None


def _runtime(device: Device) -> str | None:
    named = vendor_record(device).get("runtime")
    version = device.details.get(named[1]) if named else None
    return version if isinstance(version, str) and re.match(r"[0-9]", version) else None


def _covers(build: Record, arch: str) -> bool:
    if arch in build.get("but", ()):
        return False
    if "arch" not in build:
        return arch in (
            *build.get("archs", (arch,)),
            *build.get("some", ()),
        )  # one that is not in the table may have any
    numbers = [int(re.sub(r"\D", "", each) or 0) for each in (build["arch"][0], arch, build["arch"][1])]
    return numbers == sorted(numbers)


def driver_version(device: Device) -> str | None:
    """The number after the driver's name, null where it is none."""
    match = re.search(r"^\S+ ([0-9]+(?:\.[0-9]+)*)$", device.driver or "")
    return match[1] if match else None


def is_older(version: str, least: str) -> bool:
    """Whether `version` comes before `least`, as far as that goes; what follows the dotted numbers does not count."""
    have, needed = (
        [int(each) for each in re.findall(r"[0-9]{1,9}", (re.match(r"[0-9.]+", text) or [""])[0])]
        for text in (version, least)
    )
    return have[: len(needed)] < needed

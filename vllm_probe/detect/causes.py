"""Rows for devices that are here and cannot be used, by what their own plug-in said of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.rows import load_rows
from vllm_probe.core.system import Host
from vllm_probe.detect.builds import is_module
from vllm_probe.detect.checks.container import CONTAINERS
from vllm_probe.detect.nodes import npu_options
from vllm_probe.vendors import ascend
from vllm_probe.vendors.nodes import group_word
from vllm_probe.vendors.pci import ROOT, accelerators
from vllm_probe.vendors.software import container_kind

ROWS = load_rows(Path(__file__).with_name("rows.json"))
"""Rows that the verdict of a device or a line of a log names, `PLG-09` where no other fits."""

MARKERS: dict[str, Any] = {
    "command": "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/BUILD",
    "branch": "BRANCH",
    "address": "ADDRESS",
    "group": "GROUP",
    "gid": "GID",
    "share": "SHARE",
    "holders": "nvidia-smi",
    "asked": "--engine vllm",
    "compared": "",
    "ranks": "1, 2, 4 and 8 mostly",
    "resource": ascend.PLUGIN.container.resource(None),
}
"""What stands in a fix where nothing here tells better; capitals are the reader's to fill in."""

_MODULES = ("updates/dkms", "extra", "kernel/drivers/video", "kernel/nvidia*", "updates", "extra/nvidia*")
_NOT_GIVEN = "this container was not given"
_ASCEND_LIBRARIES = "/usr/local/Ascend/driver/lib64"
_KEPT = rf"^{_NOT_GIVEN}|does not list it|^KFD refuses"
_ELSEWHERE = r"^it is bound to (vfio-pci|xen-pciback)\b|^torch .{1,80} is a build for "


@dataclass(frozen=True, slots=True)
class Cause:
    """A verdict and the row that explains it.

    Attributes:
        pattern: matches the reason of the verdict.
        row: key in `rows.json`.
        when: what must hold besides.
        unless: rows of the machine that have said it already.
    """

    pattern: str
    row: str
    when: Callable[[Host, Device], bool] | None = None
    unless: frozenset[str] = frozenset()


def _rejected(host: Host, _device: Device) -> bool:
    """Whether Secure Boot is on and the module is there; the variable's value follows four bytes of attributes."""
    values = [host.read_bytes(path) or b"" for path in host.glob("/sys/firmware/efi/efivars/SecureBoot-*")]
    built = any(host.glob(f"/lib/modules/*/{folder}/nvidia.ko*") for folder in _MODULES)
    return built and any(len(value) > 4 and value[4] == 1 for value in values)


def _windowless(host: Host, device: Device) -> bool:
    """Whether BAR1, an NVIDIA GPU's window to its memory, was given no address."""
    lines = (host.read_text(f"{ROOT}/{device.id}/resource") or "").splitlines()
    return len(lines) > 1 and re.fullmatch(r"(0x0+\s*)+", lines[1]) is not None


def _linux_driver_in_wsl(host: Host, device: Device) -> bool:
    return device.id.startswith("dxg:") and bool(host.glob("/usr/lib/x86_64-linux-gnu/libcuda.so.*"))


def _without_ascend_libraries(host: Host, _device: Device) -> bool:
    return not host.exists(_ASCEND_LIBRARIES)


def _in_module(_host: Host, device: Device) -> bool:
    return is_module(device)


CAUSES = (
    Cause(r"^it is bound to (vfio-pci|xen-pciback|pci-stub|uio_pci_generic)\b", "DRV-08"),
    Cause(r"^it is bound to (nouveau|nvidiafb)\b", "DRV-07"),
    Cause(r"^it is bound to radeon\b", "OTH-13"),
    Cause(r"^no driver is bound to it; run `sudo modprobe nvidia`", "DRV-02", _rejected),
    Cause(r"^no driver is bound to it; run `sudo modprobe nvidia`|^the driver is not loaded", "DRV-01"),
    Cause(r"^no driver is bound to it; run `sudo modprobe amdgpu`", "DRV-13"),
    Cause(r"^no driver is bound to it; run `sudo modprobe (i915|xe)\b", "DRV-18"),
    Cause(r"^the GPU is lost: it has fallen off the bus", "DRV-12"),
    Cause(r"^the GPU has to be reset; stop what uses it|gives 214:", "THM-08"),
    Cause(r"kernel module and (the driver's libraries|libcuda) are of different versions", "DRV-03"),
    Cause(r"^NVML's own library is not found", "LIB-10"),
    Cause(r"gives 2:", "MEM-01/allocation"),
    Cause(r"gives 34:", "LIB-05"),
    Cause(r"gives 46:|compute mode is Prohibited", "PRT-08"),
    Cause(r"gives 100:", "DRV-05", _windowless),
    Cause(r"gives 100:", "WSL-04", _linux_driver_in_wsl),
    Cause(r"gives 101:", "ENV-01"),
    Cause(r"gives 802:", "DRV-16"),
    Cause(r"gives 500:", "WSL-03"),
    Cause(r"gives 801:", "PRT-04"),
    Cause(r"gives 804:", "VER-06"),
    Cause(r"gives 805:", "PRT-07"),
    Cause(r"gives 999:", "DRV-09"),
    Cause(r"^MIG is on and there is no instance", "PRT-01"),
    Cause(r"^libcuda\.so\.1: cannot open", "LIB-11", unless=frozenset({"CTR-05"})),
    Cause(r"^torch .{1,80} is a build for ", "OTH-10", _in_module),
    Cause(r"^torch .{1,80} needs CUDA ", "VER-01/module", _in_module),
    Cause(r"^torch .{1,80} cannot run on it: ", "OTH-11", _in_module),
    Cause(r"^no build of torch that is known here has kernels for ", "OTH-13/build"),
    Cause(r"; update the driver to ", "VER-01/driver"),
    Cause(r" has it take the kernels of .{1,80}, which do not run on ", "VER-08/set"),
    Cause(r"no kernels for sm_([1-6][0-9]|7[0-4])\b", "VER-03"),
    Cause(r"no kernels for gfx[^;]{1,20}; run `export ", "VER-08/override"),
    Cause(r"no kernels for gfx", "VER-08"),
    Cause(r"no kernels for ", "VER-02"),
    Cause(r"^torch .{1,80} needs (driver|CUDA) ", "VER-01"),
    Cause(r"^torch .{1,80} is a build for ", "VER-09"),
    Cause(r"KFD does not list it|hsa_init gives 4104", "DRV-14"),
    Cause(r"^/dev/accel/\S{1,40} has mode ", "OTH-08"),
    Cause(r"^Level Zero is not there: libze_loader", "LIB-07"),
    Cause(r"gives 0x78000001:|^Level Zero does not list it", "XPU-01"),
    Cause(r"gives 0x78000002:", "XPU-02"),
    Cause(r"gives 0x78000003:", "XPU-03"),
    Cause(r"gives 0x7000000[16]:|^Level Zero lists it and fails over it", "XPU-04"),
    Cause(r"^(this container was not given )?/dev/(davinci|devmm_svm|hisi_hdc)\S* is not there", "ASC-02"),
    Cause(rf"^{_NOT_GIVEN} (/dev/(davinci|devmm_svm|hisi_hdc)|the device; .{{0,60}}davinci)", "ASC-02"),
    Cause(r"the driver's libraries are missing", "ASC-01"),
    Cause(r"^DCMI cannot be initialised", "ASC-03"),
    Cause(r"^CANN shows ", "ASC-04"),
    Cause(r"gives (500001|507008|507899):", "ASC-05/pair"),
    Cause(r"gives (507033|207001):", "ASC-06"),
    Cause(r"gives 107001:", "ENV-09"),
)
"""The first that fits counts. The numbers are those of cuInit, zeInit and aclInit."""

_BESIDE = (Cause(rf"^{_NOT_GIVEN} .{{0,80}}davinci", "ASC-01/beside", _without_ascend_libraries),)
"""What is said besides."""


def unusable(host: Host, devices: Sequence[Device], known: Sequence[Finding]) -> Iterator[Finding]:
    """One finding or more for each GPU and NPU that cannot be used and that none of `known` disables.

    A device whose parts compute in its place is well, and nothing is known of one that sleeps. One that may have been
    left out on purpose blocks nothing.
    """
    explained = {finding.device for finding in known if finding.disables_device}
    split = {device.details.get("parent") for device in devices}
    asleep = {function.address for function in accelerators(host) if function.asleep}
    ids = {finding.id for finding in known}
    for device in devices:
        bad = device.kind in {"gpu", "npu"} and device.verdict.code == "unusable"
        if not bad or device.id in {*explained, *split, *asleep}:
            continue
        spared = left_out(host, device, devices)
        for cause in _causes(host, device, beside=not spared):
            if not cause.unless & ids:
                finding = _finding(host, device, _key(device, cause.row))
                yield replace(finding, severity="latent", blocking=False) if spared else finding


def _causes(host: Host, device: Device, *, beside: bool) -> Iterator[Cause]:
    def fits(cause: Cause) -> bool:
        found = re.search(cause.pattern, device.verdict.reason)
        return found is not None and (cause.when is None or cause.when(host, device))

    yield next(filter(fits, CAUSES), Cause("", "PLG-09"))
    yield from filter(fits, _BESIDE if beside else ())


def _key(device: Device, row: str) -> str:
    """The key of the row, of its variant for a verdict without a command where it has one and this is such."""
    bare = f"{row}/none"
    return bare if bare in ROWS and "; run `" not in device.verdict.reason else row


def left_out(host: Host, device: Device, devices: Sequence[Device]) -> bool:
    """Whether another device does the work here, and this one was left out on purpose.

    In a container another of the same vendor; anywhere another of any, where this one is for a virtual machine or torch
    is another vendor's build.
    """
    reason = device.verdict.reason
    others = [each for each in devices if each is not device and each.kind in {"gpu", "npu"}]
    if re.search(_ELSEWHERE, reason):
        return any(each.usable for each in others)
    kept = container_kind(host) in CONTAINERS and re.search(_KEPT, reason)
    return bool(kept) and any(each.vendor == device.vendor and each.usable for each in others)


def _finding(host: Host, device: Device, key: str) -> Finding:
    row = ROWS[key]
    why, _, do = device.verdict.reason.partition("; ")
    typed = re.search(r"`([^`]+)`", do)
    gid = re.search(r"^(\S+) .*\bgroup ([0-9]+)", why)
    group = group_word(host, gid[2], gid[1]) if gid else MARKERS["group"]
    named = f" (`usermod -aG render` where `getent group {group}` says render)" if group.isdigit() else ""
    driver = (device.driver or "none").split()
    finding = row.finding(
        device.id,
        (
            f"{device.id}: {device.vendor} {device.kind}, driver {' '.join(driver)}",
            f"{_ASCEND_LIBRARIES} is not there" if key == "ASC-01/beside" else why,
        ),
        **MARKERS
        | {
            "name": device.name or f"The {device.vendor} {device.kind}",
            "why": why.replace(". ", "; ").rstrip("."),
            "do": do[:1].upper() + do[1:] if do else "Look for the device in the kernel's messages",
            "driver": driver[0],
            "address": device.id,
            "branch": driver[1].partition(".")[0] if driver[1:] else MARKERS["branch"],
            "group": group,
            "named": named,
            "gid": gid[2] if gid else MARKERS["gid"],
            "npus": npu_options(host, device.verdict.reason),
            "resource": ascend.PLUGIN.container.resource(device.arch),
            "command": _typed(typed[1]) if typed else "sudo dmesg" if row.id == "PLG-09" else MARKERS["command"],
        },
    )
    if row.id == "PLG-09":
        return replace(finding, fix=tuple(replace(fix, where=_place(do)) for fix in finding.fix))
    return finding


def _typed(command: str) -> str:
    """`command` as it is typed; options alone are those of `docker run`."""
    return f"docker run {command} IMAGE" if command.startswith("-") else command


def _place(do: str) -> str:
    """Where what a verdict advises is typed."""
    words = {"start the container": "docker", "use an image": "image", "under Windows": "windows", "unset ": "shell"}
    return next((place for word, place in words.items() if word in do), "host")

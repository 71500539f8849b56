"""What the statuses of NVML and of the CUDA driver mean, and what to do about them."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """Of a status.

    Attributes:
        text: what is wrong, part of a sentence.
        fix: the way out, null where there is none to type or do.
    """

    text: str
    fix: str | None = None


NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, LOST, RESET_REQUIRED, MISMATCH = 3, 6, 7, 15, 16, 18
NO_DEVICE = 100
NO_SIZE = -1
"""Ours: a size of 0 in place of a status."""

_RELOAD = (
    "reboot, or stop what uses the GPU and run "
    "`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`"
)
_FABRIC = "run `sudo systemctl enable --now nvidia-fabricmanager`, of the driver's version"
_UVM = "run `sudo nvidia-modprobe -u -c 0` on the host; in a container, recreate it"
_FIT = "install the driver's libraries of the driver's version"
_LOG = "see `sudo dmesg | grep -i nvrm` on the host"
_REBOOT = "reboot; where that does not help, power the machine off and on"

NVML = {
    NO_SIZE: Meaning("the memory is said to have 0 bytes"),
    1: Meaning("NVML was not initialised"),
    2: Meaning("NVML refuses the question"),
    NOT_SUPPORTED: Meaning("the device does not support it"),
    4: Meaning(
        "this process may not use the driver",
        "run as a user who may open /dev/nvidia*; on SELinux start the container with `--security-opt label=disable`",
    ),
    NOT_FOUND: Meaning("NVML does not find it"),
    INSUFFICIENT_SIZE: Meaning("the answer does not fit"),
    8: Meaning("a power cable of the GPU is not plugged in", "plug in every power connector of the card"),
    9: Meaning("the driver is not loaded", "run `sudo modprobe nvidia` on the host"),
    10: Meaning("the driver did not answer in time", _REBOOT),
    11: Meaning("the kernel found an interrupt problem with the GPU", "see `sudo dmesg`"),
    12: Meaning("NVML's own library is not found", _FIT),
    13: Meaning("this driver's NVML has no such function"),
    LOST: Meaning("the GPU is lost: it has fallen off the bus", f"{_REBOOT}; check its power supply and riser"),
    RESET_REQUIRED: Meaning("the GPU has to be reset", "stop what uses it and reboot"),
    17: Meaning(
        "the operating system or a control group blocks the driver",
        f"recreate the container with the GPU's nodes; on a machine of its own, {_LOG}",
    ),
    MISMATCH: Meaning("the loaded kernel module and the driver's libraries are of different versions", _RELOAD),
    19: Meaning("the GPU is in use", "end the process that holds it: `nvidia-smi` lists it"),
    20: Meaning("there is not enough memory"),
    23: Meaning("the GPU has no memory left to answer with"),
    25: Meaning("this driver's NVML has another version of the structure", _FIT),
    999: Meaning(
        "NVML fails without a reason, as when a container has lost its devices",
        "recreate the container; on a machine of its own, see `sudo dmesg`",
    ),
}
"""https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html, nvmlReturn_t."""

CUDA = {
    2: Meaning("no memory is left", "end what holds the GPU's memory: `nvidia-smi` lists it"),
    34: Meaning("the loaded libcuda is the stub of the CUDA toolkit", "take the folder `stubs` out of LD_LIBRARY_PATH"),
    46: Meaning(
        "the GPU is taken: exclusive mode, or a limit of MPS",
        "end the process that holds it, or run `sudo nvidia-smi -c DEFAULT`",
    ),
    NO_DEVICE: Meaning("the CUDA driver finds no device", _LOG),
    101: Meaning("CUDA_VISIBLE_DEVICES names a device that is not there", "run `unset CUDA_VISIBLE_DEVICES`"),
    214: Meaning("the GPU's memory has an error that ECC cannot correct", "reboot"),
    304: Meaning("a call to the operating system failed", f"where the machine has NVSwitches, {_FABRIC}"),
    500: Meaning(
        "the driver's libraries are incomplete, as in a WSL container without libnvdxgdmal.so.1",
        "update the NVIDIA container toolkit to 1.14.4 and Docker Desktop to 4.31 or newer",
    ),
    801: Meaning("the driver does not support it here", "on a vGPU, have unified memory enabled on its host"),
    802: Meaning("the fabric between the GPUs is not set up", _FABRIC),
    803: Meaning("the loaded kernel module and libcuda are of different versions", _RELOAD),
    804: Meaning(
        "a forward-compatibility libcuda is loaded, which this GPU does not run",
        "take the folder `compat` out of LD_LIBRARY_PATH, or update the driver",
    ),
    805: Meaning("the MPS daemon does not answer", "start it with `nvidia-cuda-mps-control -d`, or end it"),
    999: Meaning("the CUDA driver fails without a reason, as when nvidia-uvm is missing", _UVM),
}
"""https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html, CUresult."""


def nvml_meaning(status: int) -> Meaning:
    """Of a status of NVML that is not 0, with the kernel's log for a way out where there is no better one."""
    found = NVML.get(status, Meaning(f"NVML fails with status {status}"))
    return found if found.fix else found._replace(fix=_LOG)


def cuda_meaning(status: int) -> Meaning:
    """Of a status of cuInit that is not 0."""
    return CUDA.get(status, Meaning("the CUDA driver cannot be initialised", "see `sudo dmesg | grep -i nvrm`"))


def cuda_version(number: int) -> str | None:
    """`12.8` of 12080, as NVML and the CUDA driver write it."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


EVENT_REASONS = {
    0x001: ("idle", False),
    0x002: ("application_clocks", False),
    0x004: ("power_cap", False),
    0x008: ("hardware_slowdown", True),
    0x010: ("sync_boost", False),
    0x020: ("software_thermal", True),
    0x040: ("hardware_thermal", True),
    0x080: ("power_brake", True),
    0x100: ("display_clock", False),
}
"""Bit of the clocks' event reasons to our word, and whether something is wrong when it is set under load.

At the power cap every card runs that has work enough; the others without harm are settings.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""nvmlComputeMode_t."""

VIRTUALIZATION = ("none", "passthrough", "vgpu", "vgpu_host", "vsga_host")
"""nvmlGpuVirtualizationMode_t."""


def event_reasons(bits: int) -> list[str]:
    """Words of the bits that are set; a bit that is not known keeps its number."""
    known = [word for bit, (word, _) in EVENT_REASONS.items() if bits & bit]
    rest = bits & ~sum(EVENT_REASONS)
    return [*known, *([hex(rest)] if rest else [])]


def harmful(reasons: list[str]) -> list[str]:
    """Those of `reasons` that slow a device down against its owner's will."""
    return [word for word, slows in EVENT_REASONS.values() if slows and word in reasons]

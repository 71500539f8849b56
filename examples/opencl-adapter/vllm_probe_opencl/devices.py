"""Describes the OpenCL devices as JSON: `python -m vllm_probe_opencl.devices`, the child process of the probe."""

import re
import sys
from contextlib import suppress

import pyopencl as cl

from vllm_probe.core import codec
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.units import format_bytes
from vllm_probe.core.values import Kind

_ARCH = re.compile(r"\bgfx[0-9a-f]+|(?<=-linux-gnu-)\S+")
"""In a name of AMD's driver, and in PoCL's version: `PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512`."""

_UNKNOWN = {
    "/arch": "the driver does not name it",
    "/memory/usable_bytes": "OpenCL does not tell what is free",
    "/memory/used_bytes": "OpenCL does not tell what is in use",
}


def all_devices() -> list[cl.Device]:
    """Devices of all platforms, in their order, which is the number in `opencl:N`; none where there is no driver."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:  # CL_PLATFORM_NOT_FOUND_KHR: the loader has no driver
        if "PLATFORM_NOT_FOUND" in str(error):
            return []
        raise
    return [device for platform in platforms for device in platform.get_devices()]


def describe(number: int, device: cl.Device) -> Device:
    """The device as `detect` lists it; what the adapter needs to know before it opens stands in `details`."""
    shares_memory = bool(device.host_unified_memory)
    return Device(
        id=f"opencl:{number}",
        vendor="opencl",
        kind=_kind(device.type, shares_memory),
        name=device.name.strip(),
        arch=_arch(device),
        driver=f"{device.platform.name} {device.driver_version}",
        memory=DeviceMemory(reported_bytes=device.global_mem_size, kind="shared" if shares_memory else "dedicated"),
        indices={"opencl": number},
        adapter="opencl",
        usable=bool(device.available and device.compiler_available),
        verdict=_verdict(device),
        sources={"/memory/reported_bytes": "CL_DEVICE_GLOBAL_MEM_SIZE", "/kind": "CL_DEVICE_TYPE"},
        details={
            "version": device.version.strip(),
            "svm": _has_svm(device),
            "group_lanes": device.max_work_group_size,
            "sub_group_lanes": _sub_group_lanes(device),
            "threads": device.max_compute_units,
            "caches": {"llc": device.global_mem_cache_size} if device.global_mem_cache_size else {},
            "frequency_mhz": {"max": device.max_clock_frequency or None},
        },
    )


def look() -> ProbeResult:
    """Every device, and why some of its values are null."""
    found = tuple(describe(number, device) for number, device in enumerate(all_devices()))
    unknown = {
        f"/{number}{pointer}": reason
        for number, device in enumerate(found)
        for pointer, reason in _UNKNOWN.items()
        if pointer != "/arch" or device.arch is None
    }
    return ProbeResult(devices=found, unknown=unknown)


def _kind(types: int, shares_memory: bool) -> Kind:
    if types & cl.device_type.GPU:
        return "igpu" if shares_memory else "gpu"
    return "cpu" if types & cl.device_type.CPU else "npu"


def _verdict(device: cl.Device) -> Verdict:
    driver = device.platform.name
    if not device.available:
        return Verdict(code="unusable", reason=f"its driver {driver} says that it is not available")
    if not device.compiler_available:
        return Verdict(code="unusable", reason=f"its driver {driver} has no compiler for kernels")
    through = "the processors of cpu0 through OpenCL: " if device.type & cl.device_type.CPU else ""
    size = format_bytes(device.global_mem_size)
    return Verdict(code="usable", reason=f"{through}{device.max_compute_units} compute units, {size}, {driver}")


def _has_svm(device: cl.Device) -> bool:
    """Whether an allocation can have the same address on host and device."""
    with suppress(cl.LogicError):  # asked of a device of OpenCL 1
        return bool(device.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER)
    return False


def _sub_group_lanes(device: cl.Device) -> list[int]:
    """Sub-groups that a kernel can be compiled for; none where the compiler chooses."""
    can_choose = "cl_intel_required_subgroup_size" in device.extensions.split()
    return sorted(device.sub_group_sizes_intel) if can_choose else []


def _arch(device: cl.Device) -> str | None:
    if "cl_nv_device_attribute_query" in device.extensions.split():
        return f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}"
    found = _ARCH.search(f"{device.name} {device.version}")
    return found[0] if found else None


if __name__ == "__main__":
    sys.stdout.write(codec.dumps(look()))

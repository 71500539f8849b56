"""Lists the OpenCL devices as JSON: `python -m vllm_probe_opencl.devices`, the child process of the probe."""

import re
import sys

import pyopencl as cl
from pyopencl.characterize import has_coarse_grain_buffer_svm

from vllm_probe.core import codec
from vllm_probe.core.values import Kind
from vllm_probe_opencl.facts import DeviceFacts, Listing

_ARCH = re.compile(r"\bgfx[0-9a-f]+|(?<=-linux-gnu-)\S+")
"""In a name of AMD's driver, and in PoCL's version: `PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512`."""


def all_devices() -> list[cl.Device]:
    """Devices of all platforms, in their order; none where the loader finds no driver."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:  # CL_PLATFORM_NOT_FOUND_KHR: the loader has no driver
        if "PLATFORM_NOT_FOUND" in str(error):
            return []
        raise
    return [device for platform in platforms for device in platform.get_devices()]


def describe(device: cl.Device) -> DeviceFacts:
    """The facts of `device`."""
    unified = bool(device.host_unified_memory)
    return DeviceFacts(
        kind=_kind(device.type, unified),
        name=device.name.strip(),
        arch=_arch(device),
        platform=device.platform.name.strip(),
        version=device.version.strip(),
        driver=device.driver_version.strip(),
        available=bool(device.available),
        compiles=bool(device.compiler_available),
        svm=bool(has_coarse_grain_buffer_svm(device)),
        shares_memory=unified,
        memory_bytes=device.global_mem_size,
        cache_bytes=device.global_mem_cache_size,
        group_lanes=device.max_work_group_size,
        sub_group_lanes=_sub_group_lanes(device),
        compute_units=device.max_compute_units,
        clock_mhz=device.max_clock_frequency,
    )


def _kind(types: int, unified: bool) -> Kind:
    if types & cl.device_type.GPU:
        return "igpu" if unified else "gpu"
    return "cpu" if types & cl.device_type.CPU else "npu"


def _sub_group_lanes(device: cl.Device) -> tuple[int, ...]:
    has_choice = "cl_intel_required_subgroup_size" in device.extensions.split()
    return tuple(sorted(device.sub_group_sizes_intel)) if has_choice else ()


def _arch(device: cl.Device) -> str | None:
    if "cl_nv_device_attribute_query" in device.extensions.split():
        return f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}"
    found = _ARCH.search(f"{device.name} {device.version}")
    return found[0] if found else None


if __name__ == "__main__":
    sys.stdout.write(codec.dumps(Listing(devices=tuple(map(describe, all_devices())))))

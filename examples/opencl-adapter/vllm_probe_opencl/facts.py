"""What the child process tells of each device: the words between `devices` and `probe`."""

from dataclasses import dataclass

from vllm_probe.core.values import Bytes, Count, Kind, Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One OpenCL device; names in brackets are those of clGetDeviceInfo.

    Attributes:
        kind: cpu, gpu, igpu (shares the host's memory) or npu, from CL_DEVICE_TYPE.
        name: [CL_DEVICE_NAME].
        arch: compute capability (`sm_90`), `gfx...` or the CPU that kernels are compiled for, null when none is told.
        platform: driver that brings it [CL_PLATFORM_NAME].
        version: OpenCL version and vendor text [CL_DEVICE_VERSION].
        driver: [CL_DRIVER_VERSION].
        available: [CL_DEVICE_AVAILABLE].
        compiles: [CL_DEVICE_COMPILER_AVAILABLE].
        svm: it has shared virtual memory [CL_DEVICE_SVM_CAPABILITIES].
        shares_memory: its memory is the host's [CL_DEVICE_HOST_UNIFIED_MEMORY].
        memory_bytes: [CL_DEVICE_GLOBAL_MEM_SIZE].
        cache_bytes: last-level cache [CL_DEVICE_GLOBAL_MEM_CACHE_SIZE].
        group_lanes: most work-items of a work-group [CL_DEVICE_MAX_WORK_GROUP_SIZE].
        sub_group_lanes: sub-groups that a kernel can be compiled for [CL_DEVICE_SUB_GROUP_SIZES_INTEL], empty for none.
        compute_units: [CL_DEVICE_MAX_COMPUTE_UNITS].
        clock_mhz: [CL_DEVICE_MAX_CLOCK_FREQUENCY].
    """

    kind: Kind
    name: str
    arch: str | None
    platform: str
    version: str
    driver: str
    available: bool
    compiles: bool
    svm: bool
    shares_memory: bool
    memory_bytes: Bytes
    cache_bytes: Bytes
    group_lanes: Count
    sub_group_lanes: tuple[Count, ...]
    compute_units: Natural
    clock_mhz: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What all platforms together have.

    Attributes:
        devices: in the order of platforms and of their devices, which is the number in `opencl:N`.
    """

    devices: tuple[DeviceFacts, ...]

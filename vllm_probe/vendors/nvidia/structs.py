"""Layouts of NVML and the CUDA driver, from nvml.h and cuda.h; compared with those of nvidia-ml-py in the tests."""

from ctypes import Structure, c_char, c_int, c_ubyte, c_uint, c_uint8, c_uint16, c_uint32, c_ulonglong

MEMORY_V2 = 0x02000028
"""Size and version packed, as NVML_STRUCT_VERSION does; a plain 2 is refused."""

TEMPERATURE_V1 = 0x0100000C
NOT_AVAILABLE = 2**64 - 1
"""What NVML puts where it does not know a process's memory: NVML_VALUE_NOT_AVAILABLE."""


class PciInfo(Structure):
    """nvmlPciInfo_t; the second version ends earlier and has the same fields up to there."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class Memory(Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class MemoryV2(Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class Utilization(Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Temperature(Structure):
    """nvmlTemperature_v1_t."""

    _fields_ = (("version", c_uint), ("sensorType", c_uint), ("temperature", c_int))


class Process(Structure):
    """nvmlProcessInfo_v2_t, which the third version of the calls fills too."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class ProcessV1(Structure):
    """nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", c_uint), ("usedGpuMemory", c_ulonglong))


class Attributes(Structure):
    """nvmlDeviceAttributes_t."""

    _fields_ = (
        ("multiprocessorCount", c_uint),
        ("sharedCopyEngineCount", c_uint),
        ("sharedDecoderCount", c_uint),
        ("sharedEncoderCount", c_uint),
        ("sharedJpegCount", c_uint),
        ("sharedOfaCount", c_uint),
        ("gpuInstanceSliceCount", c_uint),
        ("computeInstanceSliceCount", c_uint),
        ("memorySizeMB", c_ulonglong),
    )


class LicenseExpiry(Structure):
    """nvmlGridLicenseExpiry_t."""

    _fields_ = (
        ("year", c_uint32),
        ("month", c_uint16),
        ("day", c_uint16),
        ("hour", c_uint16),
        ("min", c_uint16),
        ("sec", c_uint16),
        ("status", c_uint8),
    )


class LicensableFeature(Structure):
    """nvmlGridLicensableFeature_t of version 4."""

    _fields_ = (
        ("featureCode", c_uint),
        ("featureState", c_uint),
        ("licenseInfo", c_char * 128),
        ("productName", c_char * 128),
        ("featureEnabled", c_uint),
        ("licenseExpiry", LicenseExpiry),
    )


class LicensableFeatures(Structure):
    """nvmlGridLicensableFeatures_t of version 4."""

    _fields_ = (
        ("isGridLicenseSupported", c_int),
        ("licensableFeaturesCount", c_uint),
        ("gridLicensableFeatures", LicensableFeature * 3),
    )


class Uuid(Structure):
    """CUuuid."""

    _fields_ = (("bytes", c_ubyte * 16),)

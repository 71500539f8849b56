"""Layouts of Level Zero, from ze_api.h of https://github.com/oneapi-src/level-zero."""

from ctypes import Structure, c_char, c_int32, c_int64, c_ubyte, c_uint32, c_uint64, c_void_p

DRIVER_PROPERTIES, DEVICE_PROPERTIES, MEMORY_PROPERTIES = 0x1, 0x3, 0x7
PCI_PROPERTIES, MEMORY_EXT_PROPERTIES = 0x10008, 0x1000E
"""ze_structure_type_t, which stands first in each structure."""

GPU = 1
"""ze_device_type_t."""

INTEGRATED = 1
"""ze_device_property_flag_t."""

BYTES_PER_NANOSECOND = 1
"""ze_bandwidth_unit_t."""


class DriverProperties(Structure):
    """ze_driver_properties_t."""

    _fields_ = (("stype", c_uint32), ("pNext", c_void_p), ("uuid", c_ubyte * 16), ("driverVersion", c_uint32))


class DeviceProperties(Structure):
    """ze_device_properties_t."""

    _fields_ = (
        ("stype", c_uint32),
        ("pNext", c_void_p),
        ("type", c_uint32),
        ("vendorId", c_uint32),
        ("deviceId", c_uint32),
        ("flags", c_uint32),
        ("subdeviceId", c_uint32),
        ("coreClockRate", c_uint32),
        ("maxMemAllocSize", c_uint64),
        ("maxHardwareContexts", c_uint32),
        ("maxCommandQueuePriority", c_uint32),
        ("numThreadsPerEU", c_uint32),
        ("physicalEUSimdWidth", c_uint32),
        ("numEUsPerSubslice", c_uint32),
        ("numSubslicesPerSlice", c_uint32),
        ("numSlices", c_uint32),
        ("timerResolution", c_uint64),
        ("timestampValidBits", c_uint32),
        ("kernelTimestampValidBits", c_uint32),
        ("uuid", c_ubyte * 16),
        ("name", c_char * 256),
    )


class MemoryProperties(Structure):
    """ze_device_memory_properties_t; Intel's driver puts the width of an address where that of the bus is due."""

    _fields_ = (
        ("stype", c_uint32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("maxClockRate", c_uint32),
        ("maxBusWidth", c_uint32),
        ("totalSize", c_uint64),
        ("name", c_char * 256),
    )


class MemoryExtProperties(Structure):
    """ze_device_memory_ext_properties_t."""

    _fields_ = (
        ("stype", c_uint32),
        ("pNext", c_void_p),
        ("type", c_uint32),
        ("physicalSize", c_uint64),
        ("readBandwidth", c_uint32),
        ("writeBandwidth", c_uint32),
        ("bandwidthUnit", c_uint32),
    )


class PciProperties(Structure):
    """ze_pci_ext_properties_t."""

    _fields_ = (
        ("stype", c_uint32),
        ("pNext", c_void_p),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("genVersion", c_int32),
        ("width", c_int32),
        ("maxBandwidth", c_int64),
    )

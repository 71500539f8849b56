"""Layouts of DCMI, from dcmi_interface_api.h of Huawei's driver; their sizes and offsets are held by the tests."""

from ctypes import Structure, c_char, c_int, c_ubyte, c_uint, c_ulong, c_ulonglong

_NAME = c_char * 32


class ChipInfo(Structure):
    """struct dcmi_chip_info."""

    _fields_ = (("chip_type", _NAME), ("chip_name", _NAME), ("chip_ver", _NAME), ("aicore_cnt", c_uint))


class ChipInfoV2(Structure):
    """struct dcmi_chip_info_v2: what Atlas A3 chips differ in is their `npu_name`."""

    _fields_ = (*ChipInfo._fields_, ("npu_name", _NAME))


class PcieInfo(Structure):
    """struct dcmi_pcie_info, of drivers before the second version: no domain, and the address backwards."""

    _fields_ = (
        ("deviceid", c_uint),
        ("venderid", c_uint),
        ("subvenderid", c_uint),
        ("subdeviceid", c_uint),
        ("bdf_deviceid", c_uint),
        ("bdf_busid", c_uint),
        ("bdf_funcid", c_uint),
    )


class PcieInfoAll(Structure):
    """struct dcmi_pcie_info_all."""

    _fields_ = (
        ("venderid", c_uint),
        ("subvenderid", c_uint),
        ("deviceid", c_uint),
        ("subdeviceid", c_uint),
        ("domain", c_int),
        ("bdf_busid", c_uint),
        ("bdf_deviceid", c_uint),
        ("bdf_funcid", c_uint),
        ("reserve", c_ubyte * 32),
    )


class HbmInfo(Structure):
    """struct dcmi_hbm_info; sizes in MB of 2**20 bytes."""

    _fields_ = (
        ("memory_size", c_ulonglong),
        ("freq", c_uint),
        ("memory_usage", c_ulonglong),
        ("temp", c_int),
        ("bandwith_util_rate", c_uint),
    )


class MemoryInfo(Structure):
    """struct dcmi_get_memory_info_stru, of DDR; sizes in MB of 2**20 bytes."""

    _fields_ = (
        ("memory_size", c_ulonglong),
        ("memory_available", c_ulonglong),
        ("freq", c_uint),
        ("hugepagesize", c_ulong),
        ("hugepages_total", c_ulong),
        ("hugepages_free", c_ulong),
        ("utiliza", c_uint),
        ("reserve", c_ubyte * 60),
    )


class Process(Structure):
    """struct dcmi_proc_mem_info; memory in bytes."""

    _fields_ = (("proc_id", c_int), ("proc_mem_usage", c_ulong))

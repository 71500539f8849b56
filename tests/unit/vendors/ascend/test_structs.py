"""Layouts of DCMI, held to dcmi_interface_api.h on machines with 64-bit longs."""

from ctypes import sizeof

import pytest

from vllm_probe.vendors.ascend import structs


@pytest.mark.parametrize(
    ("structure", "size"),
    [
        (structs.ChipInfo, 100),
        (structs.ChipInfoV2, 132),
        (structs.PcieInfo, 28),
        (structs.PcieInfoAll, 64),
        (structs.HbmInfo, 32),
        (structs.MemoryInfo, 112),
        (structs.Process, 16),
    ],
)
def test_a_structure_has_the_size_of_the_header(structure: type, size: int) -> None:
    assert sizeof(structure) == size


@pytest.mark.parametrize(
    ("structure", "field", "offset"),
    [
        (structs.ChipInfoV2, "aicore_cnt", 96),
        (structs.ChipInfoV2, "npu_name", 100),
        (structs.PcieInfo, "bdf_busid", 20),
        (structs.PcieInfoAll, "domain", 16),
        (structs.PcieInfoAll, "bdf_busid", 20),
        (structs.HbmInfo, "memory_usage", 16),
        (structs.MemoryInfo, "memory_available", 8),
        (structs.MemoryInfo, "utiliza", 48),
        (structs.Process, "proc_mem_usage", 8),
    ],
)
def test_a_field_is_where_the_header_has_it(structure: type, field: str, offset: int) -> None:
    assert getattr(structure, field).offset == offset

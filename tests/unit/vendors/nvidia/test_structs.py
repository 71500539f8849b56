"""Layouts against those that NVIDIA's own bindings declare."""

import ctypes
from typing import Any

import pynvml
import pytest

from vllm_probe.vendors.nvidia import codes, structs


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (structs.PciInfo, pynvml.nvmlPciInfo_t),
        (structs.Memory, pynvml.c_nvmlMemory_t),
        (structs.MemoryV2, pynvml.c_nvmlMemory_v2_t),
        (structs.Utilization, pynvml.c_nvmlUtilization_t),
        (structs.Temperature, pynvml.c_nvmlTemperature_v1_t),
        (structs.Process, pynvml.c_nvmlProcessInfo_v3_t),
        (structs.Attributes, pynvml.c_nvmlDeviceAttributes),
        (structs.LicensableFeatures, pynvml.c_nvmlGridLicensableFeatures_v4_t),
    ],
)
def test_a_structure_has_the_layout_of_nvml(ours: Any, theirs: Any) -> None:
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    for (our_name, *_), (name, *_) in zip(ours._fields_, theirs._fields_, strict=True):
        assert (getattr(ours, our_name).offset, getattr(ours, our_name).size) == (
            getattr(theirs, name).offset,
            getattr(theirs, name).size,
        )


def test_numbers_are_those_of_nvml() -> None:
    assert pynvml.nvmlMemory_v2 == structs.MEMORY_V2
    assert pynvml.nvmlTemperature_v1 == structs.TEMPERATURE_V1
    assert pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value == structs.NOT_AVAILABLE
    assert {
        name: getattr(pynvml, f"NVML_ERROR_{name}") for name in ("NOT_SUPPORTED", "NOT_FOUND", "INSUFFICIENT_SIZE")
    } == {
        "NOT_SUPPORTED": codes.NOT_SUPPORTED,
        "NOT_FOUND": codes.NOT_FOUND,
        "INSUFFICIENT_SIZE": codes.INSUFFICIENT_SIZE,
    }
    assert pynvml.NVML_ERROR_GPU_IS_LOST == codes.LOST
    assert pynvml.NVML_ERROR_RESET_REQUIRED == codes.RESET_REQUIRED
    assert pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH == codes.MISMATCH


def test_each_bit_of_the_event_reasons_has_a_word_and_look_alikes_do_no_harm() -> None:
    assert codes.event_reasons(0) == []
    assert codes.event_reasons(0x1FF) == [word for word, _ in codes.EVENT_REASONS.values()]
    assert codes.event_reasons(0x201) == ["idle", "0x200"]
    assert codes.harmful(codes.event_reasons(0x1FF)) == [
        "hardware_slowdown",
        "software_thermal",
        "hardware_thermal",
        "power_brake",
    ]
    assert codes.harmful(["power_cap", "idle", "sync_boost", "application_clocks", "display_clock"]) == []
    assert pynvml.nvmlClocksEventReasonHwThermalSlowdown == 0x40


def test_every_code_is_explained_and_none_tells_to_reset_a_gpu_that_may_draw() -> None:
    for meaning in (*codes.NVML.values(), *codes.CUDA.values(), codes.nvml_meaning(77), codes.cuda_meaning(77)):
        assert meaning.text
        assert "gpu-reset" not in (meaning.fix or "")
    assert "77" in codes.nvml_meaning(77).text

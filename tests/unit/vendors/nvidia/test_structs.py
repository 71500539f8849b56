"""Layouts against those that NVIDIA's own bindings declare."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pynvml
import pytest

from vllm_probe.vendors.nvidia import codes, lib, questions, structs
from vllm_probe.vendors.nvidia.nvml import NO_FUNCTION


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
        (structs.LicenseExpiry, pynvml.c_nvmlGridLicenseExpiry_t),
        (structs.LicensableFeature, pynvml.c_nvmlGridLicensableFeatures_v4_t._fields_[2][1]._type_),
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
    assert pynvml.NVML_ERROR_FUNCTION_NOT_FOUND == NO_FUNCTION
    assert pynvml.NVML_NVLINK_MAX_LINKS == questions._LINKS
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (questions._SM, questions._MEMORY)
    assert pynvml.NVML_TEMPERATURE_GPU == 0  # the sensor that is asked


def test_every_status_that_is_explained_is_one_of_nvml() -> None:
    theirs = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert set(codes.NVML) - theirs == {codes.NO_SIZE}


@pytest.mark.parametrize(
    ("ours", "prefix", "names"),
    [
        (codes.COMPUTE_MODES, "NVML_COMPUTEMODE_", "DEFAULT EXCLUSIVE_THREAD PROHIBITED EXCLUSIVE_PROCESS"),
        (codes.VIRTUALIZATION, "NVML_GPU_VIRTUALIZATION_MODE_", "NONE PASSTHROUGH VGPU HOST_VGPU HOST_VSGA"),
    ],
)
def test_words_stand_at_the_places_of_their_numbers(ours: tuple[str, ...], prefix: str, names: str) -> None:
    words = {"HOST_VGPU": "vgpu_host", "HOST_VSGA": "vsga_host"}
    found = {words.get(name, name.lower()): getattr(pynvml, prefix + name) for name in names.split()}
    assert {word: number for number, word in enumerate(ours)} == found


def test_bits_of_the_event_reasons_are_those_of_nvml() -> None:
    names = {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "application_clocks",
        "SwPowerCap": "power_cap",
        "HwSlowdown": "hardware_slowdown",
        "SyncBoost": "sync_boost",
        "SwThermalSlowdown": "software_thermal",
        "HwThermalSlowdown": "hardware_thermal",
        "HwPowerBrakeSlowdown": "power_brake",
        "DisplayClockSetting": "display_clock",
    }
    theirs = {getattr(pynvml, f"nvmlClocksEventReason{name}"): word for name, word in names.items()}
    assert {bit: word for bit, (word, _) in codes.EVENT_REASONS.items()} == theirs


def test_the_newest_name_of_each_function_is_one_of_nvml() -> None:
    sources = "".join((Path(str(module.__file__))).read_text() for module in (lib, questions))
    chains = re.findall(r'"((?:nvml(?:System|Device)\w+ ?)+)"', sources)
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(str(pynvml.__file__)).read_text()))
    assert len(chains) > 30
    assert {chain.split()[0] for chain in chains} - known == set()


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


def test_every_code_is_explained_and_none_tells_to_reset_a_gpu_that_may_draw() -> None:
    for meaning in (*codes.NVML.values(), *codes.CUDA.values(), codes.nvml_meaning(77), codes.cuda_meaning(77)):
        assert meaning.text
        assert "gpu-reset" not in (meaning.fix or "")
    assert "77" in codes.nvml_meaning(77).text

"""amd-smi in all its forms."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.amd.hosts import CAPTURES, capture, needs_captures
from vllm_probe.vendors.amd.amd_smi import parse_amd_smi

STATIC: dict[str, Any] = {
    "gpu": 1,
    "asic": {
        "market_name": "AMD Instinct MI355X",
        "device_id": "0x75a3",
        "num_compute_units": 256,
        "target_graphics_version": "gfx950",
    },
    "bus": {"bdf": "0000:75:00.0", "max_pcie_width": 16},
    "driver": {"name": "amdgpu", "version": "6.14.14"},
    "partition": {"compute_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0},
    "vram": {
        "type": "HBM3E",
        "size": {"value": 294896, "unit": "MB"},
        "bit_width": 8192,
        "max_bandwidth": {"value": 8000, "unit": "GB/s"},
    },
    "limit": "N/A",
}
METRIC: dict[str, Any] = {
    "gpu": 1,
    "usage": {"gfx_activity": {"value": 7, "unit": "%"}},
    "power": {"socket_power": {"value": 140, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
    "temperature": {"edge": "N/A", "hotspot": {"value": 41, "unit": "C"}, "mem": {"value": 33, "unit": "C"}},
    "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
}
WHOLE = {
    "index": 1,
    "id": "0000:75:00.0",
    "name": "AMD Instinct MI355X",
    "pci_id": "0x75a3",
    "arch": "gfx950",
    "compute_units": 256,
    "driver": "6.14.14",
    "vram_total": 294896 << 20,
    "bus_width_bits": 8192,
    "bandwidth_gb_s": 8000.0,
    "compute_partition": "SPX",
    "memory_partition": "NPS1",
    "partition": 0,
}
DENIED = "WARNING: User is missing the following required groups: render, video. Please add user to these groups.\n"


@pytest.mark.parametrize("wrapped", [[STATIC], {"gpu_data": [STATIC]}], ids=["list", "gpu_data"])
@pytest.mark.parametrize("before", ["", "\n", DENIED], ids=["plain", "blank", "warning"])
def test_both_shapes_are_read_behind_any_text(wrapped: object, before: str) -> None:
    assert parse_amd_smi(before + json.dumps(wrapped)) == [WHOLE]


def test_live_values_are_read_and_those_that_are_not_available_are_missing() -> None:
    (device,) = parse_amd_smi(json.dumps([METRIC]))
    assert device == {
        "index": 1,
        "vram_total": 294896 << 20,
        "vram_used": 283 << 20,
        "utilization": 7,
        "power_w": 140.0,
        "junction_c": 41.0,
        "memory_temperature_c": 33.0,
    }


@pytest.mark.parametrize("section", ["asic", "bus", "driver", "partition", "vram"])
def test_a_section_that_is_not_available_costs_only_itself(section: str) -> None:
    (device,) = parse_amd_smi(json.dumps([STATIC | {section: "N/A"}]))
    assert device.items() <= WHOLE.items()
    assert device["index"] == 1


@pytest.mark.parametrize(
    "driver", [{"driver_version": "6.7.8"}, {"version": "6.7.8"}, "6.7.8"], ids=["5.7", "6.1", "text"]
)
def test_the_driver_stands_under_either_name(driver: object) -> None:
    (device,) = parse_amd_smi(json.dumps([STATIC | {"driver": driver}]))
    assert device["driver"] == "6.7.8"


def test_a_width_that_stands_for_unknown_is_unknown() -> None:
    (device,) = parse_amd_smi(json.dumps([STATIC | {"vram": {"bit_width": 4294967295}}]))
    assert "bus_width_bits" not in device


def test_the_text_form_says_the_same() -> None:
    text = """
GPU: 0
    ASIC:
        MARKET_NAME: AMD Radeon PRO W7700
        DEVICE_ID: 0x7470
        NUM_COMPUTE_UNITS: 48
        TARGET_GRAPHICS_VERSION: gfx1101
    BUS:
        BDF: 0000:0a:00.0
    VRAM:
        SIZE: 16368 MB
        BIT_WIDTH: 256

GPU: 1
    ASIC: N/A
    BUS:
        BDF: 0000:0b:00.0
"""
    first, second = parse_amd_smi(text)
    assert first == {
        "index": 0,
        "id": "0000:0a:00.0",
        "name": "AMD Radeon PRO W7700",
        "pci_id": "0x7470",
        "arch": "gfx1101",
        "compute_units": 48,
        "vram_total": 16368 << 20,
        "bus_width_bits": 256,
    }
    assert second == {"index": 1, "id": "0000:0b:00.0"}


@needs_captures
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "amd-smi-static-mi210-gpu_data.json",
            {"vram_total": 68702699520, "compute_units": 104, "arch": "gfx90a", "bus_width_bits": 4096},
        ),
        ("amd-smi-metric-usage-6.x-barelist.json", {"utilization": 40}),
        ("amd-smi-static-strix-halo.txt", {"id": "0000:c5:00.0", "compute_units": 40, "arch": "gfx1151"}),
        (
            "amd-smi-list-e-6.4.txt",
            {"id": "0000:23:00.0", "kfd": 1, "hip": 0, "drm_render": 128, "drm_card": 0, "partition": 0},
        ),
    ],
)
def test_a_captured_answer_gives_the_listed_values(name: str, expected: dict[str, object]) -> None:
    (device,) = parse_amd_smi(capture(name))
    assert expected.items() <= device.items()
    assert "driver" not in device or device["driver"] == "6.16.6"
    assert "bandwidth_gb_s" not in device
    assert "power_w" not in device


@pytest.mark.parametrize("size", [65520, {"value": 65520, "unit": "MB"}])
def test_rocm_6_0_had_another_name_for_the_size(size: object) -> None:
    (device,) = parse_amd_smi(json.dumps([{"gpu": 0, "vram": {"vram_type": "HBM", "vram_size_mb": size}}]))
    assert device["vram_total"] == 68702699520
    (device,) = parse_amd_smi("GPU: 0\n    VRAM:\n        VRAM_TYPE: HBM\n        VRAM_SIZE_MB: 65520 MB\n")
    assert device["vram_total"] == 68702699520


@pytest.mark.parametrize("power", [{"average_socket_power": 35}, 35], ids=["6.0", "5.7"])
def test_what_is_in_use_and_the_power_had_other_names_before_rocm_6_1(power: object) -> None:
    row = {"gpu": 0, "fb_usage": {"vram_total": 65520, "vram_used": 0}, "power": power}
    (device,) = parse_amd_smi(json.dumps([row]))
    assert device == {"index": 0, "vram_total": 68702699520, "vram_used": 0, "power_w": 35.0}


def test_the_text_form_shows_temperatures_with_their_sign() -> None:
    text = "GPU: 0\n    TEMPERATURE:\n        EDGE: N/A\n        HOTSPOT: 39 °C\n        MEM: 33 °C\n"
    assert parse_amd_smi(text) == [{"index": 0, "junction_c": 39.0, "memory_temperature_c": 33.0}]


def test_what_amd_smi_gives_for_unknown_is_no_reading() -> None:
    usage = {"usage": {"gfx_activity": {"value": 65535, "unit": "%"}}, "power": {"socket_power": 65535}}
    heat = {"temperature": {"edge": {"value": 65535, "unit": "C"}, "hotspot": -273, "mem": 36}}
    assert parse_amd_smi(json.dumps([{"gpu": 0, **usage, **heat}])) == [{"index": 0, "memory_temperature_c": 36.0}]


@given(
    st.text()
    | st.lists(st.sampled_from(["GPU: 0\n", "    ASIC:\n", "        SIZE: 0 MB\n", "{", "[", "N/A", " "])).map("".join)
)
def test_any_text_gives_devices_without_a_size_of_zero(text: str) -> None:
    for device in parse_amd_smi(text):
        assert device.get("vram_total") != 0
        assert device.get("power_w") != 0


CAPTURED = sorted(CAPTURES.glob("*smi*")) if CAPTURES.exists() else []


@given(st.data())
def test_any_mutated_answer_is_read(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([json.dumps([STATIC | METRIC]), *(path.read_text() for path in CAPTURED)]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    mutated = text[:start] + data.draw(st.text(max_size=20)) + text[end:]
    for device in parse_amd_smi(mutated):
        assert device.get("vram_total") != 0

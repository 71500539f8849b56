"""How sources become values of a device."""

from dataclasses import replace
from typing import Any

import pytest

from vllm_probe.core.device import Device, DeviceMemory
from vllm_probe.core.values import MemoryKind
from vllm_probe.vendors.intel import facts
from vllm_probe.vendors.intel.drm import Memory

ID = "0000:03:00.0"
FIRST, SECOND, INTEGRATED = (
    {"ordinal": number, "integrated": integrated} for number, integrated in enumerate((False, False, True))
)
GIB = 1 << 30


def card(pci_id: str = "8086:0bd5", kind: MemoryKind = "dedicated", **details: Any) -> Device:
    memory = DeviceMemory(reported_bytes=16 * GIB, kind=kind)
    return Device(id=ID, vendor="intel", kind="gpu", memory=memory, details={"pci_id": pci_id, **details})


@pytest.mark.parametrize("clock", [1600, 3200])
@pytest.mark.parametrize(("pci_id", "tiles", "rate"), [("8086:0bd5", 2, 3276.8), ("8086:0bda", 1, 1228.8)])
def test_bandwidth_by_clock_and_bus_is_that_of_the_data_sheet_and_derived(
    pci_id: str, tiles: int, rate: float, clock: int
) -> None:
    device, unknown = facts.with_bandwidth((card(pci_id, memory_clock_max_mhz=clock, tiles=tiles), {}))
    assert device.details["memory_bandwidth_gb_s"] == pytest.approx(rate)
    assert device.sources["/details/memory_bandwidth_gb_s"].startswith("derived")
    assert unknown == {}


def test_bandwidth_is_not_derived_where_something_better_told_it() -> None:
    told = {"/details/memory_bandwidth_gb_s": "Level Zero"}
    known = card(memory_clock_max_mhz=1600, memory_bandwidth_gb_s=3000.0)
    reading = (replace(known, sources=told), dict[str, str]())
    assert facts.with_bandwidth(reading) == reading


@pytest.mark.parametrize("device", [card("8086:56a0", memory_clock_max_mhz=2000), card()])
def test_bandwidth_is_null_with_a_reason_where_the_bus_or_the_clock_is_not_known(device: Device) -> None:
    found, unknown = facts.with_bandwidth((device, {}))
    assert found.details["memory_bandwidth_gb_s"] is None
    assert "neither" in unknown["/details/memory_bandwidth_gb_s"]


def test_memory_of_the_machine_has_no_bandwidth_of_the_gpu() -> None:
    shared = (card(kind="shared", memory_clock_max_mhz=1600), dict[str, str]())
    assert facts.with_bandwidth(shared) == shared


@pytest.mark.parametrize(
    ("used", "allowed", "usable", "source"),
    [
        (None, None, 16 * GIB, "reported, what is in use is not known"),
        (None, 13 * GIB, 13 * GIB, "reported, what is in use is not known"),
        (GIB, None, 15 * GIB, "reported less what is in use"),
        (GIB, 13 * GIB, 13 * GIB, "reported less what is in use"),
        (17 * GIB, None, 0, "reported less what is in use"),
    ],
)
def test_usable_is_what_is_not_in_use_of_what_level_zero_gives_out(
    used: int | None, allowed: int | None, usable: int, source: str
) -> None:
    memory = DeviceMemory(reported_bytes=16 * GIB, used_bytes=used, kind="dedicated")
    reading = (Device(id=ID, vendor="intel", kind="gpu", memory=memory), {"/memory/usable_bytes": "not asked"})
    device, unknown = facts.with_usable(reading, allowed)
    assert device.memory.usable_bytes == usable
    assert device.sources == {"/memory/usable_bytes": source}
    assert unknown == {}


def test_a_driver_that_tells_no_use_says_what_would_let_it() -> None:
    memory = Memory(local=True, total=16 * GIB, used=None, reachable=None, tiles=1)
    evidence = facts.of_driver(ID, memory, "1.6.0", "")
    assert evidence.facts["/memory/reported_bytes"] == 16 * GIB
    assert "/memory/used_bytes" not in evidence.facts
    assert "CAP_PERFMON" in evidence.unknown["/memory/used_bytes"]


def test_tiles_that_level_zero_lists_as_devices_are_one_gpu() -> None:
    tile = {"compute_units": 448, "memory": {"total": 64 * GIB}, "memory_bandwidth_gb_s": 1638.0}
    evidence = facts.of_level_zero(ID, [{"ordinal": 2, **tile}, {"ordinal": 3, **tile}])
    assert evidence.facts == {
        "/indices/level_zero": 2,
        "/details/level_zero_devices": 2,
        "/details/compute_units": 896,
        "/details/memory_bandwidth_gb_s": 3276.0,
        "/memory/reported_bytes": 128 * GIB,
    }


def test_what_is_not_free_is_in_use() -> None:
    found = facts.of_record(ID, "xpu-smi", {"memory": {"total": 16 * GIB, "free": 10 * GIB}}).facts
    assert (found["/memory/usable_bytes"], found["/memory/used_bytes"]) == (10 * GIB, 6 * GIB)


def test_memory_of_a_virtual_function_is_a_part() -> None:
    assert facts.of_record(ID, "xpu-smi", {"function": "virtual"}).facts["/memory/kind"] == "partition"
    assert "/memory/kind" not in facts.of_record(ID, "xpu-smi", {"function": "physical"}).facts


@pytest.mark.parametrize(
    ("own", "records", "selector", "numbers"),
    [
        ([{"ordinal": 0}], [{"ordinal": 0}], None, {"/indices/xpu": 0}),
        ([{"ordinal": 0}], [{"ordinal": 0}], "level_zero:gpu", {"/indices/xpu": 0}),
        ([{"ordinal": 0}, {"ordinal": 1}], [{"ordinal": 0}, {"ordinal": 1}], None, {"/indices/xpu": 0}),
        ([{"ordinal": 0}], [{"ordinal": 0}, {"ordinal": 1}], None, {}),
        ([{"ordinal": 0}], [{"ordinal": 0}], "opencl:*", {}),
        ([{"ordinal": 0, "silent": "hung"}], [{"ordinal": 0, "silent": "hung"}], None, {}),
        ([], [], None, {}),
        ([SECOND], [FIRST, SECOND], None, {"/indices/xpu": 1}),
        ([SECOND], [FIRST, SECOND, INTEGRATED], None, {"/indices/xpu": 1}),
        ([SECOND], [FIRST, SECOND], "level_zero:1", {}),
        ([SECOND], [FIRST | {"silent": "hung"}, SECOND], None, {}),
        ([INTEGRATED], [FIRST, SECOND, INTEGRATED], None, {}),
        ([SECOND], [INTEGRATED | {"ordinal": 0}, SECOND], None, {}),
    ],
)
def test_torch_numbers_the_only_gpu_and_discrete_ones_before_any_integrated(
    own: list[dict[str, Any]], records: list[dict[str, Any]], selector: str | None, numbers: dict[str, int]
) -> None:
    assert facts.of_torch(ID, own, records, selector).facts == numbers

"""What changes from moment to moment of AMD GPUs."""

from typing import Any

import pytest

from tests.unit.vendors.amd.hosts import BUS, CARD, KFD, NODES, recorded, without
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd.health import health, throttled

HOT = {
    "utilization": 99,
    "junction_c": 107.0,
    "junction_limit_c": 110.0,
    "core_clock_mhz": 1200,
    "core_clock_max_mhz": 3200,
}


def states(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    host = ReplayHost(codec.from_json(Scene, {"facts": {"files": files}}))
    found: dict[str, dict[str, Any]] = health(host)["devices"]
    return found


def test_a_card_tells_what_is_free_who_computes_and_how_hot_it_is() -> None:
    kfd = "/sys/class/kfd/kfd"
    processes = {f"{kfd}/proc/{pid}/vram_20001": f"{pid}000\n" for pid in (70, 8)}
    other = {f"{kfd}/proc/9/vram_20002": "1\n", f"{kfd}/proc/9/vram_20001": "0\n"}
    found = states(recorded("amd-workstation")["files"] | processes | other)
    assert found["0000:03:00.0"] == {
        "free_bytes": 24458690560,
        "used_bytes": 1294336000,
        "processes": [{"pid": 8, "bytes": 8000, "kind": "compute"}, {"pid": 70, "bytes": 70000, "kind": "compute"}],
        "utilization": 3,
        "temperature_c": 46.0,
        "junction_c": 52.0,
        "junction_limit_c": 110.0,
        "memory_temperature_c": 64.0,
        "power_w": 31.0,
        "power_limit_w": 339.0,
        "power_default_w": 339.0,
        "core_clock_mhz": 41,
        "core_clock_max_mhz": 3220,
        "memory_clock_mhz": 96,
        "throttled": [],
    }
    assert found["0000:0d:00.0"]["free_bytes"] == 508059648


def test_partitions_are_told_in_place_of_the_card() -> None:
    found = states(recorded("amd-cpx")["files"])
    assert "0000:05:00.0" not in found
    assert found["0000:05:00.0/xcp-7"] == {"free_bytes": 25484803776, "used_bytes": 285000000, "processes": []}


def test_a_card_that_sleeps_tells_its_memory_only() -> None:
    files = CARD | KFD | {f"{BUS}/power/runtime_status": "suspended\n", f"{BUS}/gpu_busy_percent": "5\n"}
    assert states(files)["0000:03:00.0"] == {"free_bytes": 25726026560, "used_bytes": 27000000, "processes": []}


def test_a_card_without_a_driver_is_lost() -> None:
    assert states(without(CARD, "/driver"))["0000:03:00.0"] == {"lost": "no driver is bound to it, not amdgpu"}


def test_a_card_that_was_taken_for_a_virtual_machine_is_lost() -> None:
    files = CARD | {f"{BUS}/driver": "!link ../../../bus/pci/drivers/vfio-pci", f"{BUS}/power_state": "D3cold"}
    assert states(files)["0000:03:00.0"] == {"lost": "vfio-pci is bound to it, not amdgpu"}


def test_processes_are_unknown_where_kfd_does_not_list_the_card() -> None:
    assert "processes" not in states(CARD)["0000:03:00.0"]


@pytest.mark.parametrize("gpu", ["0\n", "*\n", "x\n", ""])
def test_a_gpu_without_a_number_in_kfd_has_no_processes(gpu: str) -> None:
    files = CARD | KFD | {f"{NODES}/1/gpu_id": gpu, "/sys/class/kfd/kfd/proc/5/vram_0": "9\n"}
    assert states(files)["0000:03:00.0"]["processes"] == []


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ({}, ["hardware_thermal"]),
        ({"junction_c": 37.0}, []),
        ({"utilization": 20}, []),
        ({"core_clock_mhz": 3100}, []),
    ],
)
def test_only_a_busy_hot_card_with_a_lower_clock_is_throttled(change: dict[str, float], reasons: list[str]) -> None:
    assert throttled(HOT | change) == reasons


@pytest.mark.parametrize("missing", HOT)
def test_without_one_of_these_values_throttling_is_unknown(missing: str) -> None:
    assert throttled({name: value for name, value in HOT.items() if name != missing}) is None

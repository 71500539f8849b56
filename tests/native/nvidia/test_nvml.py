"""Values that NVML gives through the real loader, ctypes and child process."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from tests.native.nvidia.machines import BUS, CARD, ROOT, Machine, bus, machine, report
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.nvidia import lib
from vllm_probe.vendors.nvidia.probe import probe

SOURCES = ROOT / "vllm_probe" / "vendors" / "nvidia"


@pytest.mark.usefixtures("loaded")
def test_every_value_comes_out_of_the_structures_of_a_new_driver() -> None:
    first, second = report()["devices"]
    assert report()["driver"] == "570.12"
    assert report()["cuda_version"] == "12.8"
    assert "failed" not in first
    assert {key: first[key] for key in first if key != "processes"} == {
        "index": 0,
        "id": "0000:06:00.0",
        "pci_id": "10de:2222",
        "name": "NVIDIA T0",
        "uuid": "GPU-1b2c3d4e-5a6b-4c7d-8e9f-a0b1c2d3e400",
        "minor": 1,
        "arch": "sm_120",
        "memory": {"total": 8000, "free": 7000, "used": 900, "reserved": 100},
        "cores": 5888,
        "bus_width_bits": 128,
        "sm_clock_mhz": 100,
        "sm_clock_max_mhz": 1000,
        "memory_clock_mhz": 200,
        "memory_clock_max_mhz": 2000,
        "event_reasons": ["power_cap", "hardware_thermal", "0x1000000000000000"],
        "power_w": 12.345,
        "power_limit_w": 70.0,
        "power_default_w": 90.0,
        "temperature_c": -3,
        "utilization": 17,
        "compute_mode": "exclusive_process",
        "max_generation": 4,
        "max_width": 16,
        "current_generation": 2,
        "current_width": 8,
        "nvlinks": ["0000:07:00.0", "0000:07:00.0", None],
        "remapped_rows": {"corrected": 4, "uncorrected": 2, "pending": 1, "failed": 0},
        "ecc": True,
        "mig": False,
        "virtualization": "vgpu",
        "licence": "unlicensed",
        "display_active": True,
        "persistence": False,
    }
    assert (second["id"], second["mig"], second["licence"]) == ("0000:07:00.0", True, "licensed")


@pytest.mark.usefixtures("loaded")
def test_all_processes_are_listed_where_more_run_than_there_was_room_for_and_some_start_meanwhile() -> None:
    processes = report()["devices"][0]["processes"]
    assert [each["pid"] for each in processes] == [*range(1, 75), 900]
    assert processes[0] == {"pid": 1, "bytes": None, "kind": "compute"}
    assert processes[73] == {"pid": 74, "bytes": 5, "kind": "compute"}
    assert processes[74] == {"pid": 900, "bytes": 11, "kind": "graphics"}


@pytest.mark.usefixtures("loaded")
def test_mig_instances_are_listed_across_holes_until_nvml_says_that_there_are_no_more() -> None:
    first, second = report()["devices"]
    assert "parts" not in first
    assert [(part["gpu_instance"], part["compute_instance"], part["multiprocessors"]) for part in second["parts"]] == [
        (3, 0, 28),
        (5, 0, 28),
    ]
    assert [part["memory"]["total"] for part in second["parts"]] == [2000, 2000]


@pytest.mark.parametrize("loaded", ["old"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_an_old_driver_is_asked_by_its_own_names_and_what_it_lacks_is_unknown() -> None:
    first, _ = report()["devices"]
    assert first["id"] == "0000:06:00.0"
    assert first["memory"] == {"total": 8000, "free": 6500, "used": 1500}
    assert (first["temperature_c"], first["event_reasons"]) == (41, ["power_cap"])
    assert first["processes"] == [
        {"pid": 77, "bytes": 1000, "kind": "compute"},
        {"pid": 78, "bytes": 2000, "kind": "graphics"},
    ]
    assert (first["power_limit_w"], first["current_width"], first["ecc"]) == (80.0, 8, True)
    assert first["failed"]["mig"] == 13
    assert "mig" not in first


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("function", "value"),
    [
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetCudaComputeCapability", "arch"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "event_reasons"),
        ("nvmlDeviceGetComputeRunningProcesses", "processes"),
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetMigMode", "mig"),
    ],
)
def test_an_error_costs_one_value_and_is_told(function: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report()["devices"][0]
    monkeypatch.setenv(f"FAKE_{function}", "999")
    rest = report()["devices"][0]
    assert rest.pop("failed") == {value: 999}
    assert rest == {key: each for key, each in whole.items() if key != value}


@pytest.mark.usefixtures("loaded")
def test_the_second_version_of_memory_falls_back_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlDeviceGetMemoryInfo_v2", "25")
    assert report()["devices"][0]["memory"] == {"total": 8000, "free": 6500, "used": 1500}
    monkeypatch.setenv("FAKE_nvmlDeviceGetMemoryInfo", "3")
    assert report()["devices"][0]["failed"]["memory"] == 3


@pytest.mark.usefixtures("loaded")
def test_a_memory_of_no_bytes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_zero", "1")
    answer = probe(machine(count=1))
    memory = answer.devices[0].memory
    assert (memory.reported_bytes, memory.usable_bytes, memory.used_bytes) == (
        24 << 30,
        None,
        None,
    )  # the CUDA driver's
    assert answer.unknown["/0/memory/usable_bytes"] == "NVML: the memory is said to have 0 bytes"
    health: Any = LocalHost().isolated("vllm_probe.vendors.nvidia.lib:health", 60)
    assert "free_bytes" not in health["devices"]["0000:06:00.0"]


@pytest.mark.usefixtures("loaded")
def test_the_newer_temperature_falls_back_to_the_sensor_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlDeviceGetTemperatureV", "25")
    assert report()["devices"][0]["temperature_c"] == 41


def test_the_library_has_each_function_that_is_asked_for(libraries: dict[str, Path]) -> None:
    sources = "".join((SOURCES / f"{name}.py").read_text() for name in ("lib", "questions"))
    asked = set(re.findall(r"\bnvml(?:Init|Shutdown|System|Device)\w*(?=[ \"])", sources))
    new = ctypes.CDLL(str(libraries["new"] / "libnvidia-ml.so.1"))
    old = ctypes.CDLL(str(libraries["old"] / "libnvidia-ml.so.1"))
    newest = {name for name in asked if not any(each.startswith(f"{name}_v") for each in asked)}
    assert len(newest) > 30
    assert sorted(name for name in asked if not hasattr(new, name) and not hasattr(old, name)) == [
        "nvmlDeviceGetAttributes",
        "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetPciInfo",
    ]


@pytest.mark.usefixtures("loaded")
def test_the_health_of_a_device_is_read_with_few_questions() -> None:
    processes = report()["devices"][0]["processes"]
    devices: Any = LocalHost().isolated("vllm_probe.vendors.nvidia.lib:health", 60)["devices"]
    assert list(devices) == ["0000:06:00.0", "0000:07:00.0", "0000:07:00.0/mig-3.0", "0000:07:00.0/mig-5.0"]
    assert devices["0000:07:00.0/mig-5.0"] == {"free_bytes": 1000, "used_bytes": 900, "processes": processes}
    card = devices["0000:06:00.0"]
    assert (card["free_bytes"], card["compute_mode"]) == (7000, "exclusive_process")
    assert (card["event_reasons"][:2], card["throttled"]) == (["power_cap", "hardware_thermal"], ["hardware_thermal"])
    assert "uuid" not in card


class InProcess(Machine):
    """The files of a recording and NVML of `folder`, in this process."""

    folder = Path()

    def library(self, name: str) -> Any:
        return LocalHost().library(str(self.folder / name))


def in_process(libraries: dict[str, Path], **facts: Any) -> InProcess:
    host = InProcess(codec.from_json(Scene, {"facts": {"files": bus(**facts)}}))
    host.folder = libraries["new"]
    return host


def test_a_card_that_nvml_knows_by_its_address_alone_is_lost(libraries: dict[str, Path]) -> None:
    report: Any = lib.read(in_process(libraries, count=4))
    assert [(each["id"], each.get("status")) for each in report["devices"]] == [
        ("0000:06:00.0", None),
        ("0000:07:00.0", None),
        ("0000:08:00.0", 15),
        ("0000:09:00.0", 6),
    ]


def test_a_card_that_does_not_tell_its_address_is_known_by_its_place_among_those_that_the_driver_has(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {f"{BUS}/0000:05:00.0/{name}": text for name, text in CARD.items()}
    taken |= {f"{BUS}/0000:05:00.0/driver": "!link ../../../bus/pci/drivers/vfio-pci"}
    monkeypatch.setenv("FAKE_handle1", "15")
    report: Any = lib.read(in_process(libraries, **taken))
    assert [(each["id"], each.get("status")) for each in report["devices"]] == [
        ("0000:06:00.0", None),
        ("0000:07:00.0", 15),
    ]

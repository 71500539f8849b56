"""NVML and the CUDA driver through the real loader, ctypes and child process, from libraries built here."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.build import build
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import asking, codes, lib
from vllm_probe.vendors.nvidia.probe import probe

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
READ = "vllm_probe.vendors.nvidia.lib:read"
BUS = "/sys/bus/pci/devices"
SOURCES = ROOT / "vllm_probe" / "vendors" / "nvidia"
CARD = {"class": "0x030000", "vendor": "0x10de", "device": "0x2222"}


class Machine(ReplayHost):
    """The files of a recording, the libraries of this machine."""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        return LocalHost().isolated(function, timeout_s)


def bus(*, count: int = 2, **files: str) -> dict[str, str]:
    listed = {f"/dev/{name}": "!chr 195:0 0666 0:0" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")}
    for number in range(6, 6 + count):
        folder = f"{BUS}/0000:{number:02x}:00.0"
        listed |= {f"{folder}/{name}": text for name, text in CARD.items()}
        listed |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/nvidia"}
    return listed | files


def machine(*, count: int = 2) -> Machine:
    return Machine(codec.from_json(Scene, {"facts": {"files": bus(count=count)}}))


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in (("new", ()), ("old", ("-DOLD",))):
        folder = tmp_path_factory.mktemp(name)
        build(HERE / "nvml.c", folder / "libnvidia-ml.so.1", *options)
        build(HERE / "cuda.c", folder / "libcuda.so.1")
        folders[name] = folder
    return folders


@pytest.fixture(params=["new"])
def loaded(request: pytest.FixtureRequest, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[request.param]))
    monkeypatch.setattr(asking, "_TIMEOUT_S", 60.0)


def report() -> Any:
    return LocalHost().isolated(READ, 60)


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
    assert (memory.reported_bytes, memory.usable_bytes, memory.used_bytes) == (None, None, None)
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


@pytest.mark.usefixtures("loaded")
def test_the_health_of_a_lost_device_is_that_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlInit", "18")
    answer: Any = LocalHost().isolated("vllm_probe.vendors.nvidia.lib:health", 60)
    assert answer == {"lost": codes.nvml_meaning(18).text, "devices": {}}


@pytest.mark.usefixtures("loaded")
def test_a_machine_is_judged_by_both_libraries() -> None:
    answer = probe(machine())
    first, second, part, other = answer.devices
    assert [device.id for device in answer.devices] == [
        "0000:06:00.0",
        "0000:07:00.0",
        "0000:07:00.0/mig-3.0",
        "0000:07:00.0/mig-5.0",
    ]
    assert (first.usable, first.verdict.code) == (True, "limited")
    assert "no licence" in first.verdict.reason
    assert first.indices == {"nvml": 0, "cuda": 0}
    assert first.arch == "sm_120"
    assert not second.usable
    assert "0000:07:00.0/mig-3.0, 0000:07:00.0/mig-5.0" in second.verdict.reason
    assert (part.usable, part.memory.kind, part.memory.reported_bytes) == (True, "partition", 2000)
    assert "CUDA_VISIBLE_DEVICES=MIG-1b2c3d4e-5a6b-4c7d-8e9f-a0b1c2d3e415" in other.verdict.reason


@pytest.mark.usefixtures("loaded")
def test_a_lost_gpu_does_not_hide_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_handle1", "15")
    first, second = probe(machine()).devices
    assert first.usable
    assert (second.id, second.usable) == ("0000:07:00.0", False)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_an_nvml_that_hangs_or_crashes_leaves_the_word_of_the_cuda_driver(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 5.0 if how == "hang" else 60.0)
    monkeypatch.setenv("FAKE_nvmlInit", how)
    answer = probe(machine(count=1))
    (device,) = answer.devices
    assert (device.usable, device.arch) == (True, "sm_120")
    assert device.memory.reported_bytes is None
    expected = "NVML did not answer within 5 s" if how == "hang" else "NVML was killed by signal 11"
    assert expected in answer.unknown["/0/memory/reported_bytes"]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetPciInfo"])
def test_a_card_over_which_nvml_hangs_or_crashes_costs_its_own_values_only(
    how: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 6.0 if how == "hang" else 60.0)
    monkeypatch.setenv(f"FAKE_{function}_1", how)
    answer = probe(machine())
    first, second = answer.devices
    assert (first.name, first.memory.reported_bytes, first.usable) == ("NVIDIA T0", 8000, True)
    assert "asking for" not in first.verdict.reason
    assert (second.id, second.memory.reported_bytes) == ("0000:07:00.0", None)
    if function == "nvmlDeviceGetName":
        ended = "did not return within 3 s" if how == "hang" else "was killed by signal 11"
        assert answer.unknown["/1/memory/reported_bytes"] == f"NVML: asking for GPU 1 {ended}"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_the_health_of_a_card_is_told_though_nvml_hangs_or_crashes_over_another(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_nvmlDeviceGetMemoryInfo_v2_1", how)
    devices: Any = LocalHost().isolated("vllm_probe.vendors.nvidia.lib:health", 6.0)["devices"]
    assert devices["0000:06:00.0"]["free_bytes"] == 7000
    assert devices["0000:07:00.0"]["lost"].startswith("asking for GPU 1 ")


@pytest.mark.usefixtures("loaded")
def test_an_nvml_that_crashes_at_its_end_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlShutdown", "crash")
    assert [each["name"] for each in report()["devices"]] == ["NVIDIA T0", "NVIDIA T1"]


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


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("hang", "unknown", "the CUDA driver did not answer within 5 s; the driver hangs"),
        ("crash", "unusable", "the CUDA driver was killed by signal 11"),
        ("803", "unusable", "of different versions; reboot"),
        ("999", "unusable", "sudo nvidia-modprobe -u -c 0"),
        ("12345", "unusable", "cuInit gives 12345"),
    ],
)
def test_a_cuda_driver_that_fails_leaves_the_facts_of_nvml(
    said: str, code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 5.0 if said == "hang" else 60.0)
    monkeypatch.setenv("FAKE_cuInit", said)
    (device,) = probe(machine(count=1)).devices
    assert (device.usable, device.verdict.code) == (False, code)
    assert reason in device.verdict.reason
    assert device.memory.reported_bytes == 8000
    assert "cuda" not in device.indices


def test_without_a_library_it_is_said_and_nothing_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (tmp_path / "libcuda.so.1").write_text("no ELF file")
    answer = probe(machine(count=1))
    (device,) = answer.devices
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert "libcuda.so.1" in device.verdict.reason
    assert "install the driver's libraries" in device.verdict.reason
    assert "libnvidia-ml.so.1: cannot open shared object file" in answer.unknown["/0/memory/used_bytes"]


RECORD = """
import sys
from tests.native.nvidia.test_libraries import machine
from vllm_probe.core import codec
from vllm_probe.host.local import LocalHost
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia.probe import probe

inner = machine()
inner.library = LocalHost().library
recorder = RecordingHost(inner)
first = probe(recorder)
scene = recorder.scene()
again = probe(ReplayHost(scene))
assert scene.complete
assert [device.verdict.code for device in again.devices] == [device.verdict.code for device in first.devices]
assert [device.memory for device in again.devices] == [device.memory for device in first.devices]
assert [device.indices for device in again.devices] == [device.indices for device in first.devices]
sys.stdout.write(codec.dumps(scene))
"""


def test_what_libraries_said_is_recorded_and_replayed_without_uuids(libraries: dict[str, Path]) -> None:
    command = [sys.executable, "-c", RECORD]
    env = os.environ | {"LD_LIBRARY_PATH": str(libraries["new"])}
    ran = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "nvmlDeviceGetMemoryInfo_v2(" in ran.stdout
    written = bytes.fromhex("".join(re.findall(r'"((?:[0-9a-f]{2}){16,})"', ran.stdout)))
    assert b"NVIDIA T1 MIG 2g" in written
    assert b"a0b1c2d3e4" not in written
    assert bytes(range(200, 216)) not in written

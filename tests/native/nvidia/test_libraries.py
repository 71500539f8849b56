"""Machines judged by NVML and the CUDA driver together, and by what is left where one fails, hangs or crashes."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.nvidia.machines import ROOT, machine, report
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.nvidia import asking, codes
from vllm_probe.vendors.nvidia.probe import probe

HEALTH = "vllm_probe.vendors.nvidia.lib:health"


@pytest.mark.usefixtures("loaded")
def test_the_health_of_a_lost_device_is_that_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlInit", "18")
    answer: Any = LocalHost().isolated(HEALTH, 60)
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
def test_the_cuda_driver_tells_a_size_that_needs_64_bits() -> None:
    answer: Any = LocalHost().isolated("vllm_probe.vendors.nvidia.cuda:read", 60)
    assert [device["total"] for device in answer["devices"]] == [24 << 30]


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
    assert (device.memory.reported_bytes, device.memory.usable_bytes) == (24 << 30, None)
    expected = "NVML did not answer within 5 s" if how == "hang" else "NVML was killed by signal 11"
    assert expected in answer.unknown["/0/memory/usable_bytes"]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetPciInfo"])
def test_a_card_over_which_nvml_hangs_or_crashes_costs_its_own_values_only(
    how: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 10.0 if how == "hang" else 60.0)
    monkeypatch.setenv(f"FAKE_{function}_1", how)
    answer = probe(machine())
    first, second = answer.devices
    assert (first.name, first.memory.reported_bytes, first.usable) == ("NVIDIA T0", 8000, True)
    assert "asking for" not in first.verdict.reason
    assert (second.id, second.memory.reported_bytes) == ("0000:07:00.0", None)
    if function == "nvmlDeviceGetName":
        ended = "did not return within 5 s" if how == "hang" else "was killed by signal 11"
        assert answer.unknown["/1/memory/reported_bytes"] == f"NVML: asking for GPU 1 {ended}"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_the_health_of_a_card_is_told_though_nvml_hangs_or_crashes_over_another(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_nvmlDeviceGetMemoryInfo_v2_1", how)
    devices: Any = LocalHost().isolated(HEALTH, 10 if how == "hang" else 60)["devices"]
    assert devices["0000:06:00.0"]["free_bytes"] == 7000
    assert devices["0000:07:00.0"]["lost"].startswith("asking for GPU 1 ")


@pytest.mark.usefixtures("loaded")
def test_an_nvml_that_crashes_at_its_end_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_nvmlShutdown", "crash")
    assert [each["name"] for each in report()["devices"]] == ["NVIDIA T0", "NVIDIA T1"]


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
from tests.native.nvidia.machines import machine
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
    ran = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "nvmlDeviceGetMemoryInfo_v2(" in ran.stdout
    written = bytes.fromhex("".join(re.findall(r'"((?:[0-9a-f]{2}){16,})"', ran.stdout)))
    assert b"NVIDIA T1 MIG 2g" in written
    assert b"a0b1c2d3e4" not in written
    assert bytes(range(200, 216)) not in written

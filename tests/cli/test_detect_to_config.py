"""Four recorded machines, from detect and doctor to a config for an embedding model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.detect.scenes import ROOT
from vllm_probe.cli.main import main

GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """A recorded machine and what has to come of it."""

    scene: str
    device: str
    vendor: str
    arch: str
    descriptor: str
    free_gib: tuple[float, float]
    numbers: dict[str, int]
    torch: str
    alignment_bytes: int
    group_width: int | None
    quantization: str = "none"
    integrated: tuple[str, ...] = ()


MACHINES = [
    Machine(
        scene="nvidia-laptop-wsl",
        device="dxg:0",
        vendor="nvidia",
        arch="sm_89",
        descriptor="rtx-4060-laptop",
        free_gib=(6.5, 7),
        numbers={"cuda": 0},
        torch="whl/cu128",
        alignment_bytes=256,
        group_width=32,
        quantization="w8a8",
        integrated=("dxg:intel-0",),
    ),
    Machine(
        scene="ascend-centos7",
        device="0000:01:00.0",
        vendor="ascend",
        arch="910b3",
        descriptor="ascend-910b3",
        free_gib=(60, 62),
        numbers={"npu": 0},
        torch="torch-npu",
        alignment_bytes=512,
        group_width=None,
        quantization="ascend",
    ),
    Machine(
        scene="amd-workstation",
        device="0000:03:00.0",
        vendor="amd",
        arch="gfx1100",
        descriptor="rx-7900-xtx",
        free_gib=(22, 23),
        numbers={"hip": 0, "kfd": 1, "drm_render": 129},
        torch="whl/rocm7.2",
        alignment_bytes=256,
        group_width=32,
        integrated=("0000:0d:00.0",),
    ),
    Machine(
        scene="intel-arc-a770",
        device="0000:03:00.0",
        vendor="intel",
        arch="dg2",
        descriptor="arc-a770-16gb",
        free_gib=(14, 15),
        numbers={"level_zero": 0, "drm_render": 128},
        torch="whl/xpu",
        alignment_bytes=64,
        group_width=8,
    ),
]
machines = pytest.mark.parametrize("machine", MACHINES, ids=[machine.scene for machine in MACHINES])


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "VLLM_PROBE_CAPABILITY_PATH", "VLLM_PROBE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def said(machine: Machine, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    scene = ROOT / "tests/hosts" / machine.scene
    assert main(["--replay", str(scene), *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@machines
def test_detect_picks_the_accelerator_with_its_numbers_memory_and_descriptor(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = said(machine, capsys, "detect")
    devices = {device["id"]: device for device in inventory["devices"]}
    device = devices[machine.device]
    assert inventory["picked"]["id"] == machine.device
    assert set(inventory["picked"]["others"]) == set(devices) - {machine.device}
    assert f"the build for {machine.vendor} vLLM would take it" in inventory["vllm_pick"]["others"][machine.device]
    assert (device["vendor"], device["arch"], device["usable"]) == (machine.vendor, machine.arch, True)
    assert (device["verdict"]["code"], device["adapter"]) == ("usable", machine.vendor)
    assert device["memory"]["kind"] == "dedicated"
    assert machine.free_gib[0] < device["memory"]["usable_bytes"] / GIB < machine.free_gib[1]
    assert machine.numbers.items() <= device["indices"].items()
    assert device["descriptor"].endswith(f"{machine.descriptor}.capability.json")
    assert device["details"]["stack"]["install"].endswith(machine.torch)
    assert devices["cpu0"]["usable"]


@machines
def test_an_integrated_gpu_is_told_apart_and_is_no_cuda_device(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = said(machine, capsys, "detect")["devices"]
    integrated = tuple(device["id"] for device in devices if device["kind"] == "igpu")
    assert integrated == machine.integrated
    assert all(device["memory"]["kind"] in {"shared", "unified"} for device in devices if device["kind"] == "igpu")
    assert [device["id"] for device in devices if "cuda" in device["indices"]] == [machine.device] * (
        machine.vendor == "nvidia"
    )


@machines
def test_doctor_finds_nothing_that_blocks(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    diagnosis = said(machine, capsys, "doctor")
    assert [finding["id"] for finding in diagnosis["findings"] if finding["severity"] in {"blocks", "degrades"}] == []
    assert {device["id"]: device["usable"] for device in diagnosis["devices"]}[machine.device]


@machines
@pytest.mark.parametrize("engine", ["bundled", "vllm"])
def test_a_config_for_the_accelerator_fits_in_what_is_free_of_it(
    machine: Machine, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = said(machine, capsys, "negotiate", "--model", "Qwen3-Embedding-0.6B", "--engine", engine)
    assert (config["engine"], config["device"], config["dtype"]) == (engine, machine.device, "bfloat16")
    assert config["capability"].endswith(f"{machine.descriptor}.capability.json")
    assert config["quantization"] == (machine.quantization if engine == "vllm" else "none")
    assert (config["alignment_bytes"], config["group_width"]) == (machine.alignment_bytes, machine.group_width)
    assert (config["tensor_parallel_size"], config["max_model_len"]) == (1, 32768)
    budget = config["budget"]
    assert budget["verdict"] == "boots"
    assert budget["weights_bytes"] < budget["requested_bytes"] < machine.free_gib[0] * GIB
    assert config["predicted"]["tokens_per_s"]["value"] > 1000


@machines
def test_a_cache_that_fills_the_card_leaves_what_others_hold_of_it(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    config = said(machine, capsys, "negotiate", "--model", "Qwen3-1.7B", "--engine", "vllm")
    assert config["budget"]["verdict"] == "boots"
    assert config["budget"]["requested_bytes"] < machine.free_gib[1] * GIB


@machines
def test_a_model_that_is_larger_than_the_machine_is_refused_with_its_bytes(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = ROOT / "tests/hosts" / machine.scene
    assert main(["--replay", str(scene), "negotiate", "--model", "GLM-5.3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["budget"]["verdict"] == "oom"

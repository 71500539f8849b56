"""Verdicts of NVIDIA GPUs whose driver, libraries, tools or memory fail."""

from typing import Any

import pytest

from tests.unit.detect.scenes import SHARED, host_of
from tests.unit.vendors.nvidia.cards import CUDA, FIXTURES, NODES, NVML, ONE, TWO, cards, found, libs, the_gpu
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import lib
from vllm_probe.vendors.nvidia.probe import probe


def test_a_reported_machine_whose_driver_works_is_usable() -> None:
    scenes = [scene for scene in SHARED if scene["id"] == "S28"]
    for scene in scenes or [{"facts": {"files": ONE, "libs": libs(nvml=None)}}]:
        (device,) = probe(ReplayHost(codec.from_json(Scene, {"facts": scene["facts"]}))).devices
        assert device.usable


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (9, "the driver is not loaded; run `sudo modprobe nvidia` on the host"),
        (4, "this process may not use the driver"),
        (15, "fallen off the bus; reboot"),
        (16, "has to be reset; stop what uses it and reboot"),
        (18, "of different versions; reboot, or stop what uses the GPU and run `sudo rmmod"),
        (1, "NVML was not initialised; see `sudo dmesg | grep -i nvrm` on the host"),
        (2, "NVML refuses the question; see `sudo dmesg"),
        (3, "does not support it; see `sudo dmesg"),
        (
            17,
            "blocks the driver; recreate the container with the GPU's nodes; on a machine of its own, see `sudo dmesg",
        ),
        (25, "install the driver's libraries of the driver's version"),
        (999, "recreate the container"),
        (54321, "status 54321; see `sudo dmesg"),
    ],
)
def test_a_status_of_nvml_is_a_verdict_with_the_way_out(status: int, reason: str) -> None:
    device = the_gpu(libs=libs(cuda={"cuInit": 999}, nvml={"nvmlInit": status}))
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert reason in device.verdict.reason
    assert device.name == "NVIDIA GeForce RTX 3090"  # of the id table


@pytest.mark.parametrize(
    ("cuda", "reason"),
    [
        (None, "install NVIDIA's driver anew under Windows, then run `shutdown /r /t 0`"),
        ({"cuInit": 803}, "install NVIDIA's driver anew under Windows, then run `shutdown /r /t 0`"),
        ({"cuInit": 100}, "install NVIDIA's driver anew under Windows, then run `shutdown /r /t 0`"),
        ({"cuInit": 46}, "end the process that holds it, or run `nvidia-smi -c DEFAULT`"),
    ],
)
def test_under_windows_the_way_out_is_none_of_linux(cuda: dict[str, Any] | None, reason: str) -> None:
    nvml = NVML | {"nvmlDeviceGetCount": 1, "nvmlDeviceGetPciInfo": {"bus": 1}}
    loaded: dict[str, Any] = {"nvml.dll": {"calls": nvml}, **({"nvcuda.dll": {"calls": cuda}} if cuda else {})}
    device = the_gpu({}, libs=loaded, platform={"system": "windows"})
    assert device.verdict.code == "unusable"
    assert device.verdict.reason.endswith(f"; {reason}")
    loaded["nvcuda.dll"] = {"calls": CUDA | {"cuInit": 100}}
    device = the_gpu({}, libs=loaded, platform={"system": "windows"}, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert device.verdict.reason.endswith("hides it; run `set CUDA_VISIBLE_DEVICES=`")


@pytest.mark.parametrize("status", [15, 16])
def test_a_device_that_nvml_cannot_reach_is_unusable_though_cuda_starts(status: int) -> None:
    device = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetHandleByIndex": status}))
    assert (device.usable, device.verdict.code) == (False, "unusable")


def test_lost_devices_are_told_apart_by_the_order_of_the_bus() -> None:
    handles = {"nvmlDeviceGetHandleByIndex_v2(1)": {"status": 15, "outs": ["00" * 8]}}
    first, second = found(TWO, libs=libs(nvml=NVML | {"nvmlDeviceGetCount": 2} | handles)).devices
    assert (first.usable, second.usable) == (True, False)
    assert second.verdict.reason.startswith("the GPU is lost")


def test_nvml_that_fails_beside_a_cuda_that_works_is_a_limit() -> None:
    device = the_gpu(libs=libs(nvml={"nvmlInit": 999}))
    assert (device.usable, device.verdict.code) == (True, "limited")
    assert "NVML fails although CUDA works" in device.verdict.reason
    assert "recreate the container" in device.verdict.reason


def test_nvml_that_hangs_over_a_card_that_cuda_runs_is_a_limit_and_its_health_is_that_it_is_lost() -> None:
    nvml = NVML | {"nvmlDeviceGetName": "timeout", "nvmlDeviceGetPciInfo": {"bus": 1}}
    device = the_gpu(libs=libs(nvml=nvml))
    assert (device.usable, device.verdict.code) == (True, "limited")
    assert device.verdict.reason.endswith("vLLM needs both: nvmlDeviceGetName does not return")
    hung = {"nvmlInit": 0, "nvmlDeviceGetMemoryInfo": "timeout", "nvmlDeviceGetPciInfo": {"bus": 1}}
    health = lib.health(host_of(files=ONE, libs=libs(nvml=hung)))
    assert health["devices"]["0000:01:00.0"] == {"lost": "nvmlDeviceGetMemoryInfo_v2 does not return"}


LOST = "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU"


def test_a_lost_card_that_nvidia_smi_names_condemns_no_other() -> None:
    first, second = found(TWO, libs=libs(nvml=None), commands={"nvidia-smi": f"!rc=15\n{LOST}\n"}).devices
    assert (first.usable, second.usable) == (True, False)
    assert second.verdict.reason.startswith("the GPU is lost")


@pytest.mark.parametrize("after", ["", "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n", f"{LOST}\n"])
@pytest.mark.parametrize("said", ["GPU is lost", "N/A"])
def test_what_nvidia_smi_tells_before_it_fails_counts(after: str, said: str) -> None:
    xml = f"""<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.54.15</driver_version>
<gpu id="00000000:01:00.0"><product_name>NVIDIA A2</product_name><ecc_errors>Not Supported</ecc_errors>
<fb_memory_usage><total>15356 MiB</total><used>0 MiB</used><free>15000 MiB</free></fb_memory_usage></gpu>
<gpu id="00000000:41:00.0"><product_name>{said}</product_name><uuid>{said}</uuid>
<fb_memory_usage><total>{said}</total></fb_memory_usage></gpu></nvidia_smi_log>
"""
    commands = {"nvidia-smi -q -x": f"!rc=14\n{xml}{after}"}
    first, second = found(TWO, libs=libs(nvml=None), commands=commands).devices
    assert (first.name, first.memory.reported_bytes) == ("NVIDIA A2", 15356 << 20)
    assert first.verdict.code == "usable"
    assert second.name == "NVIDIA GeForce RTX 3090"  # of the id table
    assert second.usable == (said == "N/A" and "lost" not in after)


def test_a_failure_of_nvidia_smi_is_read_where_there_is_no_nvml() -> None:
    said = "!rc=18\nFailed to initialize NVML: Driver/library version mismatch\n"
    device = the_gpu(libs=libs(cuda={"cuInit": 999}, nvml=None), commands={"nvidia-smi -q -x": said})
    assert "of different versions" in device.verdict.reason


@pytest.mark.parametrize("broken", [{"nvmlInit": "timeout"}, {"nvmlInit": 0, "nvmlDeviceGetName": "timeout"}, None])
def test_an_nvml_that_hangs_or_is_missing_hides_neither_the_device_nor_what_cuda_says(
    broken: dict[str, Any] | None,
) -> None:
    answer = found(ONE, libs=libs(cuda=CUDA | {"compute_capability": 86}, nvml=broken))
    (device,) = answer.devices
    assert (device.usable, device.arch) == (True, "sm_86")
    why = ("NVML did not answer", "NVML: nvmlDeviceGetName does not return", "libnvidia-ml.so.1: cannot")
    assert answer.unknown["/0/memory/reported_bytes"].startswith(why)


def test_a_cuda_that_hangs_leaves_the_values_of_nvml_and_no_verdict() -> None:
    device = the_gpu(libs=libs(cuda={"cuInit": "timeout"}))
    assert (device.usable, device.verdict.code) == (False, "unknown")
    assert device.memory.reported_bytes == 24 << 30


def test_every_tool_that_hangs_leaves_the_device_of_the_bus() -> None:
    host = host_of(
        files=ONE,
        libs=libs(cuda={"cuInit": "timeout"}, nvml={"nvmlInit": "timeout"}),
        commands={"nvidia-smi -q -x": "!timeout"},
    )
    (device,) = probe(host).devices
    assert (device.id, device.name, device.usable) == ("0000:01:00.0", "NVIDIA GeForce RTX 3090", False)


def test_a_driver_that_lists_a_device_is_believed_more_than_the_mode_of_its_node() -> None:
    files = ONE | {"/dev/nvidiactl": "!chr 195:255 0660 0:7", "/proc/self/status": "Uid:\t9\t9\t9\t9\nGroups:\t9\n"}
    assert not the_gpu(files, libs=libs(cuda={"cuInit": 100})).usable
    assert the_gpu(files, libs=libs(cuda=CUDA | {"cuDeviceGetPCIBusId": "0000:01:00.0"})).usable


def test_a_compute_mode_that_prohibits_is_unusable_and_one_that_excludes_is_told() -> None:
    prohibited = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetComputeMode": 2}))
    assert (prohibited.usable, "nvidia-smi -c DEFAULT" in prohibited.verdict.reason) == (False, True)
    exclusive = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetComputeMode": 3}))
    assert (exclusive.usable, exclusive.details["compute_mode"]) == (True, "exclusive_process")


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        (ONE, "sudo apt install libnvidia-compute-570"),
        (ONE | {"/.dockerenv": ""}, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ({"/dev/dxg": "!chr 10:125 0666 0:0", "/usr/lib64/libcuda.so.1": "!size 9"}, "wsl --update"),
        ({"/proc/device-tree/compatible": "nvidia,tegra234\0", "/dev/nvmap": "!chr 10:1 0666 0:0"}, "nvidia-l4t-cuda"),
    ],
)
def test_a_missing_cuda_driver_is_installed_as_the_place_asks_for(files: dict[str, str], fix: str) -> None:
    device = the_gpu(files, libs=libs(cuda=None))
    assert (device.usable, fix in device.verdict.reason) == (False, True)


def test_the_branch_of_the_driver_is_named_though_only_nvidia_smi_tells_it() -> None:
    commands = {"nvidia-smi -q -x": FIXTURES["v10"]}
    device = the_gpu(cards("0000:3b:00.0", device="0x1bb3") | NODES, libs=libs(None, None), commands=commands)
    assert "libnvidia-compute-470`" in device.verdict.reason


@pytest.mark.parametrize(
    ("rows", "word"), [([0, 1, 1, 0], "are to be replaced"), ([0, 1, 0, 1], "no spare is left"), ([9, 0, 0, 0], None)]
)
def test_broken_rows_of_memory_limit_a_gpu_and_corrected_ones_do_not(rows: list[int], word: str | None) -> None:
    device = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetRemappedRows": rows}))
    assert (device.usable, device.verdict.code) == (True, "limited" if word else "usable")
    assert word is None or word in device.verdict.reason


def test_a_count_that_is_no_count_and_a_recording_of_nonsense_end() -> None:
    device = the_gpu(
        libs=libs(cuda=CUDA | {"cuDeviceGetCount": 2**31 - 1}, nvml={"nvmlInit": 0, "nvmlDeviceGetCount": 2**32 - 1})
    )
    assert device.id == "0000:01:00.0"

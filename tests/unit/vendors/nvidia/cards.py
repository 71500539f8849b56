"""NVIDIA cards and what their libraries say, which the tests of this folder share."""

from pathlib import Path
from typing import Any

from tests.unit.detect.scenes import host_of
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.vendors.nvidia.probe import probe

BUS = "/sys/bus/pci/devices"
NODES = {f"/dev/{name}": "!chr 195:0 0666 0:0" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")}
CUDA = {"cuInit": 0, "cuDriverGetVersion": 12080}
NVML = {
    "nvmlInit": 0,
    "nvmlSystemGetDriverVersion": "570.12",
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 3090",
    "nvmlDeviceGetMemoryInfo": {"total": 24 << 30, "reserved": 1 << 28, "free": 20 << 30, "used": 3 << 30},
}

FIXTURES = {path.stem: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "fixtures").iterdir()}
"""What nvidia-smi printed, by the name of the file."""


def cards(*addresses: str, driver: str = "nvidia", device: str = "0x2204", **more: str) -> dict[str, str]:
    files = {"class": "0x030000", "vendor": "0x10de", "device": device, "driver": f"!link x/{driver}"}
    return {f"{BUS}/{address}/{name}": text for address in addresses for name, text in (files | more).items()}


ONE = cards("0000:01:00.0") | NODES
TWO = cards("0000:01:00.0", "0000:41:00.0") | NODES


def libs(cuda: dict[str, Any] | None = CUDA, nvml: dict[str, Any] | None = NVML) -> dict[str, Any]:
    called = {"libcuda.so.1": cuda, "libnvidia-ml.so.1": nvml}
    return {name: None if calls is None else {"load": "ok", "calls": calls} for name, calls in called.items()}


def found(files: dict[str, str], **facts: Any) -> ProbeResult:
    return probe(host_of(files=files, **{"libs": libs()} | facts))


def the_gpu(files: dict[str, str] = ONE, **facts: Any) -> Device:
    (device,) = found(files, **facts).devices
    return device

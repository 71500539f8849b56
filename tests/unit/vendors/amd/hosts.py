"""Machines with AMD GPUs, made of the files that matter, and the captures beside this checkout."""

import json
import re
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, ROOT
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd.probe import probe

NODES = "/sys/class/kfd/kfd/topology/nodes"
BUS = "/sys/bus/pci/devices/0000:03:00.0"
XTX = "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M"
RUNTIME: dict[str, Any] = {
    "libhsa-runtime64.so.1": {"path": "/opt/rocm/lib/libhsa-runtime64.so.1", "calls": {"hsa_init": 0}}
}
CARD = {
    f"{BUS}/class": "0x030000",
    f"{BUS}/vendor": "0x1002",
    f"{BUS}/device": "0x744c",
    f"{BUS}/driver": "!link ../../../bus/pci/drivers/amdgpu",
    f"{BUS}/drm/card1/dev": "226:1\n",
    f"{BUS}/drm/renderD128/dev": "226:128\n",
    f"{BUS}/mem_info_vram_total": "25753026560\n",
    f"{BUS}/mem_info_vram_used": "27000000\n",
    "/dev/kfd": "!chr 235:0 0666 0:0",
    "/dev/dri/renderD128": "!chr 226:128 0666 0:0",
    "/proc/meminfo": "MemTotal: 65000000 kB\nMemAvailable: 50000000 kB\n",
    "/proc/self/status": "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t1000\n",
}
KFD = {
    f"{NODES}/0/properties": "cpu_cores_count 16\nsimd_count 0\n",
    f"{NODES}/1/properties": "simd_count 192\nsimd_per_cu 2\nwave_front_size 32\ngfx_target_version 110000\n"
    "location_id 768\ndomain 0\ndrm_render_minor 128\n",
    f"{NODES}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 25753026560\nwidth 384\nmem_clk_max 1249\n",
}
CAPTURES = ROOT.parent / "shared" / "data" / "captures" / "amd"
needs_captures = pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not beside this checkout")


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def capture_files(name: str, root: str = "") -> dict[str, str]:
    """Several files of sysfs in one text, each behind a line `### path`; those of KFD begin with `nodes/`."""
    parts = re.split(r"^### (\S+)(?: -> (\S+))?\n", capture(name), flags=re.MULTILINE)
    files = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return {f"{root}{path}": f"!link {link}" if link else text for path, link, text in files}


def recorded(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(json.dumps(HOSTS[name]["facts"]))
    return facts


def probed(files: dict[str, str], **facts: Any) -> ProbeResult:
    return probe(ReplayHost(codec.from_json(Scene, {"facts": {"files": files, **facts}})))


def devices(files: dict[str, str], **facts: Any) -> dict[str, Device]:
    return {device.id: device for device in probed(files, **facts).devices}


def the_card(files: dict[str, str], **facts: Any) -> Device:
    (device,) = probed(files, **{"libs": RUNTIME, **facts}).devices
    return device


def without(files: dict[str, str], *parts: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not any(part in path for part in parts)}

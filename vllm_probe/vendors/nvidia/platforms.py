"""GPUs that the bus does not show, behind Windows and in Jetson modules, and memory that is the machine's."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_probe.core.device import Verdict
from vllm_probe.core.system import Host
from vllm_probe.vendors.evidence import Evidence
from vllm_probe.vendors.layer0 import UNASKED, Fact, Reading, reading
from vllm_probe.vendors.nodes import node_facts, read_identity
from vllm_probe.vendors.nvidia import PLUGIN
from vllm_probe.vendors.platforms import dxg, first_line

_COMPATIBLE = "/proc/device-tree/compatible"
_TEGRA_NODES = ("/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl", "/dev/nvmap", "/dev/nvidia[0-9]*")
_TEGRA_ARCH = {"210": "sm_53", "186": "sm_62", "194": "sm_72", "234": "sm_87", "264": "sm_110"}
# chips of Jetson TX1 and Nano, TX2, Xavier, Orin, Thor; compute capability: https://developer.nvidia.com/cuda-gpus
_INTEGRATED = {*_TEGRA_ARCH.values(), "sm_121"}  # and of GB10
_GPU_NODES = {"gpu", "gv11b", "gp10b", "ga10b", "gb10b", "gpu-gpc-0"}  # names of the GPU in device trees and devfreq
_ZONES = ("tj-thermal", "gpu-thermal", "GPU-therm")
_UNTOLD = "neither NVML nor nvidia-smi tells it"


def tegra(host: Host) -> list[Reading]:
    """The GPU of a Jetson module, of which the device tree tells."""
    chip = re.search(r"nvidia,tegra(\d{3})", host.read_text(_COMPATIBLE) or "")
    if chip is None:
        return []
    arch: Fact = (_TEGRA_ARCH[chip[1]], _COMPATIBLE) if chip[1] in _TEGRA_ARCH else (None, f"tegra{chip[1]} is new")
    release, source = first_line(host, "/etc/nv_tegra_release")
    driver: Fact = (f"nvgpu, L4T {release.lstrip('# ')}", source) if release else (None, "no /etc/nv_tegra_release")
    identity = read_identity(host)
    return [
        reading(
            "tegra:0",
            PLUGIN.name,
            "gpu",
            verdict=Verdict(code="unknown", reason=f"the device tree shows it; {UNASKED}"),
            name=first_line(host, "/proc/device-tree/model"),
            arch=arch,
            driver=driver,
            memory="unified",
            nodes=[node_facts(host, node, identity) for pattern in _TEGRA_NODES for node in host.glob(pattern)],
            details={"chip": f"tegra{chip[1]}"},
        )
    ]


def tegra_readings(host: Host) -> dict[str, Any]:
    """Clock, load and temperature of a Jetson's GPU in the form of NVML's report, from devfreq and thermal zones."""
    found: dict[str, Any] = {}
    for folder in host.glob("/sys/class/devfreq/*"):
        names = {folder.rpartition("/")[2], (host.read_text(f"{folder}/device/of_node/name") or "").strip("\0\n ")}
        if not names & _GPU_NODES:
            continue
        hertz = {
            "sm_clock_mhz": _number(host, f"{folder}/cur_freq"),
            "sm_clock_max_mhz": _number(host, f"{folder}/max_freq"),
        }
        load = _number(host, f"{folder}/device/load")
        found |= {name: value // 1_000_000 for name, value in hertz.items() if value is not None}
        found |= {} if load is None else {"utilization": load // 10}
    zones = {
        (host.read_text(path) or "").strip(): path.removesuffix("type") + "temp"
        for path in host.glob("/sys/class/thermal/thermal_zone*/type")
    }
    celsius = next(
        (value for zone in _ZONES if zone in zones and (value := _number(host, zones[zone])) is not None), None
    )
    return found | ({} if celsius is None else {"temperature_c": celsius // 1000})


def behind_windows(host: Host, count: int) -> list[Reading]:
    """The GPUs behind /dev/dxg: as many as a library or tool lists, one where none does."""
    untold: Fact = (None, _UNTOLD)
    return dxg(host, PLUGIN.name, [(untold, untold, untold)] * count)


def on_windows(host: Host, records: Sequence[Mapping[str, Any]]) -> list[Reading]:
    """What NVML or nvidia-smi lists under Windows itself, where there is neither bus nor node to look at."""
    if host.platform().system != "windows":
        return []
    verdict = Verdict(code="unknown", reason=f"NVML or nvidia-smi lists it; {UNASKED}")
    return [
        reading(
            record["id"],
            PLUGIN.name,
            "gpu",
            verdict=verdict,
            name=(None, _UNTOLD),
            details={"pci_id": record.get("pci_id")},
        )
        for record in records
        if record.get("id")
    ]


def shares_memory(kind: str | None, arch: str | None, integrated: object) -> bool:
    """Whether a GPU uses the machine's memory: the bus's table, the CUDA driver or its architecture says so."""
    return kind == "unified" or (arch in _INTEGRATED if integrated is None else integrated == 1)


def machine_memory(host: Host, id_: str, record: Mapping[str, Any]) -> Evidence:
    """All of the machine's memory, and what can be had without swapping; used is what NVML sees processes hold."""
    stats = host.stats()
    sizes = {"reported_bytes": stats.memory_total_bytes, "usable_bytes": stats.memory_available_bytes}
    held = [process["bytes"] for process in record.get("processes", ())]
    if held and None not in held:
        sizes["used_bytes"] = sum(held)
    facts = {f"/memory/{name}": size for name, size in sizes.items() if size is not None}
    gaps = {f"/memory/{name}": "the machine does not tell it" for name, size in sizes.items() if size is None}
    if "used_bytes" not in sizes:
        gaps["/memory/used_bytes"] = (
            "the GPU shares the machine's memory, and no driver tells how much of it is its own"
        )
    return Evidence(id=id_, source="/proc/meminfo", facts={"/memory/kind": "unified", **facts}, unknown=gaps)


def _number(host: Host, path: str) -> int | None:
    text = (host.read_text(path) or "").strip()
    return int(text) if re.fullmatch(r"\d{1,15}", text) else None

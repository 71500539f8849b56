"""Lists NVIDIA GPUs without NVML: PCI functions, what nvidia-smi names behind WSL, the GPU of a Jetson module."""

import re

from vllm_probe.core.device import Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.layer0 import UNASKED, Fact, Reading, bus_devices, reading, result
from vllm_probe.vendors.nodes import node_facts, read_identity
from vllm_probe.vendors.nvidia import PLUGIN
from vllm_probe.vendors.platforms import dxg, dxg_library, first_line

_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
_TIMEOUT_S = 5.0
_COMPATIBLE = "/proc/device-tree/compatible"
_TEGRA_NODES = ("/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl", "/dev/nvmap", "/dev/nvidia[0-9]*")
_TEGRA_ARCH = {"210": "sm_53", "186": "sm_62", "194": "sm_72", "234": "sm_87", "264": "sm_110"}
# chips of Jetson TX1 and Nano, TX2, Xavier, Orin, Thor; compute capability: https://developer.nvidia.com/cuda-gpus


def probe(host: Host) -> ProbeResult:
    """Every NVIDIA GPU of `host`; nodes alone count where nothing else shows one."""
    found = bus_devices(host, PLUGIN)
    on_bus = [each for each in found if "pci_id" in each[0].details]
    beside = _behind_windows(host)
    if not any(device.memory.kind == "unified" for device, _ in on_bus):  # Thor shows its GPU on the bus too
        beside += _tegra(host)
    return result([*(on_bus if beside else found), *beside])


def parse_query(text: str) -> tuple[tuple[str | None, str | None, str | None], ...]:
    """Name, driver and architecture in each row of nvidia-smi's answer, null where it has none, such as `[N/A]`."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.rsplit(",", 2)]
        if len(cells) == 3 and re.fullmatch(r"\d[\d.]*|\[.*\]", cells[1]):
            name, driver, capability = (None if re.fullmatch(r"\[.*\]|N/A|", cell) else cell for cell in cells)
            match = re.fullmatch(r"(\d{1,2})\.(\d)", capability or "")
            rows.append((name, driver, f"sm_{match[1]}{match[2]}" if match else None))
    return tuple(rows)


def _behind_windows(host: Host) -> list[Reading]:
    if dxg_library(host, PLUGIN.name) is None:
        return []
    answer, source = host.run(_QUERY, _TIMEOUT_S).stdout, " ".join(_QUERY[:2])

    def fact(value: str | None) -> Fact:
        return value, source if value else "nvidia-smi does not tell it"

    rows = parse_query(answer) or ((None, None, None),)
    return dxg(
        host,
        PLUGIN.name,
        [(fact(name), fact(arch), fact(driver and f"nvidia {driver}")) for name, driver, arch in rows],
    )


def _tegra(host: Host) -> list[Reading]:
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

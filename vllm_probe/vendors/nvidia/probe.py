"""Lists NVIDIA GPUs: what shows them, what NVML, the CUDA driver and nvidia-smi say of them, and the verdict."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from vllm_probe.core.device import Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.layer0 import Reading, asleep, bus_devices, result
from vllm_probe.vendors.nvidia import PLUGIN, smi
from vllm_probe.vendors.nvidia.asking import ask
from vllm_probe.vendors.nvidia.assembly import assemble
from vllm_probe.vendors.nvidia.bus import driven
from vllm_probe.vendors.nvidia.codes import NOT_SUPPORTED
from vllm_probe.vendors.nvidia.facts import is_vgpu
from vllm_probe.vendors.nvidia.platforms import behind_windows, on_windows, tegra
from vllm_probe.vendors.nvidia.verdict import Reports
from vllm_probe.vendors.platforms import dxg_library

Record: TypeAlias = Mapping[str, Any]


def probe(host: Host) -> ProbeResult:
    """Every NVIDIA GPU of `host` and its MIG instances; nodes alone count where nothing else shows one.

    Nothing is asked of the driver where that would wake a GPU, or where no GPU is seen that it could have.
    """
    shown, sleeping = _shown(host), asleep(host, PLUGIN)
    windows = dxg_library(host, PLUGIN.name) is not None
    if sleeping:
        return result(_left_alone(each, sleeping) for each in shown)
    off_bus = windows or host.platform().system == "windows" or any("pci_id" not in each.details for each, _ in shown)
    if not off_bus and not driven(host):
        return result(shown)
    reports = ask(host)
    tool = smi.read(host) if _lacking(reports) else {"devices": []}
    if not reports.nvml and tool.get("status"):
        reports = replace(reports, nvml={"status": tool["status"]})
    lists = [tool["devices"], reports.nvml.get("devices", ()), reports.cuda.get("devices", ())]
    if windows:
        on_bus = [each for each in shown if "pci_id" in each[0].details]
        shown = [*on_bus, *behind_windows(host, max(map(len, lists)))]
    return result(assemble(host, shown or on_windows(host, lists[1] or lists[0]), reports, tool))


def _shown(host: Host) -> list[Reading]:
    """What the bus, the device tree or, where there is neither, device nodes show."""
    found = bus_devices(host, PLUGIN)
    on_bus = [each for each in found if "pci_id" in each[0].details]
    if any(device.memory.kind == "unified" for device, _ in on_bus):  # Thor shows its GPU on the bus too
        return on_bus
    module = tegra(host)
    return [*on_bus, *module] if module else found


def _left_alone(reading: Reading, sleeping: Collection[str]) -> Reading:
    device, unknown = reading
    if device.verdict.code != "unknown" or device.id in sleeping:
        return reading
    reason = f"the driver was not asked whether it can be used, because that wakes {min(sleeping)}, which is asleep"
    return replace(device, verdict=Verdict(code="unknown", reason=reason)), unknown


def _lacking(reports: Reports) -> bool:
    """Whether nvidia-smi may know more: NVML is not there or hangs, or has left out what everybody needs."""
    if "status" not in reports.nvml:
        return True
    if reports.nvml["status"]:
        return False  # nvidia-smi fails as NVML does
    return any(map(_incomplete, (each for each in reports.nvml["devices"] if "status" not in each)))


def _incomplete(record: Record) -> bool:
    if "silent" in record:
        return True
    memory_due = "memory" not in record and record["failed"]["memory"] != NOT_SUPPORTED
    instances_due = record.get("mig") and not record.get("parts")
    licence_due = is_vgpu(record) and "licence" not in record
    return "name" not in record or memory_due or instances_due or licence_due

"""How a report on a device, of NVML or in its form, becomes evidence and parts of the device."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.evidence import Evidence, combine
from vllm_probe.vendors.layer0 import Reading
from vllm_probe.vendors.nvidia.codes import NOT_SUPPORTED, harmful, nvml_meaning

MEMORY = {"total": "/memory/reported_bytes", "free": "/memory/usable_bytes", "used": "/memory/used_bytes"}
_DETAILS = (
    *("uuid", "pci_id", "cores", "multiprocessors", "bus_width_bits", "event_reasons", "sm_clock_mhz"),
    *("sm_clock_max_mhz", "memory_clock_mhz", "memory_clock_max_mhz", "power_w", "power_limit_w", "power_default_w"),
    *("temperature_c", "utilization", "compute_mode", "processes", "ecc", "mig", "virtualization", "licence"),
    *("remapped_rows", "display_active", "persistence"),
)
_WANTED = ("event_reasons", "utilization", "temperature_c", "processes", "compute_mode")
"""Details whose absence is explained even where the device cannot have them: health is judged by them."""
_NO_FUNCTION = 13
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""GT/s of each generation of PCIe, as sysfs writes it."""
_OF_PARENT = ("chip", "pci_id", "compute_mode", "event_reasons", "temperature_c", "utilization", "ecc")


def evidence(id_: str, source: str, record: Mapping[str, Any], *, unified: bool = False) -> Evidence:
    """What `record` says of the device `id_`; where its memory is the machine's, the record is not asked for sizes."""
    facts: dict[str, JsonValue] = {f"/{name}": record[name] for name in ("name", "arch") if name in record}
    facts |= {f"/details/{name}": record[name] for name in _DETAILS if name in record}
    facts |= {"/indices/nvml": record["index"]} if "index" in record else {}
    if "event_reasons" in record:
        facts["/details/throttled"] = harmful(record["event_reasons"])
    if not unified:
        memory = with_free(record.get("memory", {}))
        facts |= {pointer: memory[name] for name, pointer in MEMORY.items() if name in memory}
        bandwidth = memory_bandwidth(record)
        facts |= {"/details/memory_bandwidth_gb_s": bandwidth} if bandwidth else {}
    return Evidence(id=id_, source=source, facts=facts, unknown=dict(_reasons(record, source, unified=unified)))


def with_free(memory: Mapping[str, int]) -> Mapping[str, int]:
    """`memory` with what is free of it, which the table of nvidia-smi leaves to be subtracted."""
    if "total" not in memory or "used" not in memory:
        return memory
    return {"free": max(memory["total"] - memory["used"] - memory.get("reserved", 0), 0), **memory}


def named(device: Device, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """`record` with what the name tells: a vGPU by its profile; a Jetson keeps the name of its module."""
    if device.id.startswith("tegra:"):
        return {name: value for name, value in record.items() if name != "name"}
    return {**record, "virtualization": "vgpu"} if is_vgpu(record) else record


def is_vgpu(record: Mapping[str, Any]) -> bool:
    """Whether a GPU is a share of one: `GRID P40-24Q`, `NVIDIA A16-4C`."""
    return record.get("virtualization") == "vgpu" or bool(re.search(r"-\d{1,3}[ABCQ]$", record.get("name", "")))


def memory_bandwidth(record: Mapping[str, Any]) -> float | None:
    """GB/s of the memory at its highest clock, to which it moves two words: DDR, with half of the data rate told."""
    width, clock = record.get("bus_width_bits"), record.get("memory_clock_max_mhz")
    return round(width / 8 * clock * 2 / 1000, 1) if width and clock else None


def _reasons(record: Mapping[str, Any], source: str, *, unified: bool) -> Iterable[tuple[str, str]]:
    for name, status in record.get("failed", {}).items():
        why = f"{source}: {nvml_meaning(status).text}"
        if name == "memory":
            yield from (() if unified else ((pointer, why) for pointer in MEMORY.values()))
        elif name in {"name", "arch"}:
            yield f"/{name}", why
        elif name in _WANTED or (name in _DETAILS and status not in {NOT_SUPPORTED, _NO_FUNCTION}):
            yield f"/details/{name}", why


def with_gaps(reading: Reading) -> Reading:
    """`reading` with a null for each detail that only has a reason."""
    device, unknown = reading
    prefix = "/details/"
    gaps = {pointer.removeprefix(prefix): None for pointer in unknown if pointer.startswith(prefix)}
    return replace(device, details=gaps | device.details), unknown


def with_links(device: Device, record: Mapping[str, Any]) -> Device:
    """`device` with what sysfs does not tell of its PCIe link, and with its NVLinks, by peer."""
    pcie: dict[str, JsonValue] = {}
    for when in ("max", "current"):
        speed, width = _SPEEDS.get(record.get(f"{when}_generation", 0)), record.get(f"{when}_width")
        pcie |= {f"{when}_speed": f"{speed} GT/s PCIe"} if speed else {}
        pcie |= {f"{when}_width": width} if width else {}
    links = [{**pcie, **link} if link["kind"] == "pcie" else link for link in device.links]
    if pcie and not links:
        links = [{"kind": "pcie", **pcie}]
    peers = record.get("nvlinks", [])
    for peer in sorted({peer for peer in peers if peer}):
        links.append({"kind": "nvlink", "peer": peer, "links": peers.count(peer)})
    if None in peers:
        links.append({"kind": "nvlink", "peer": None, "links": peers.count(None)})
    return replace(device, links=tuple(links))


def parts(parent: Reading, source: str, record: Mapping[str, Any]) -> list[Reading]:
    """The MIG instances of a GPU, as devices of their own with what they share with it."""
    device, unknown = parent
    found = []
    for part in record.get("parts", ()):
        if "gpu_instance" not in part or "compute_instance" not in part:
            continue
        id_ = f"{device.id}/mig-{part['gpu_instance']}.{part['compute_instance']}"
        about = evidence(id_, source, part)
        shared = {name: device.details[name] for name in _OF_PARENT if name in device.details}
        instance = replace(
            device,
            id=id_,
            name=f"{device.name} MIG" if device.name else None,
            memory=DeviceMemory(kind="partition"),
            indices={},
            links=tuple(link for link in device.links if link["kind"] != "nvlink"),  # which instances cannot use
            verdict=Verdict(code="unknown", reason="not judged yet"),
            sources={key: each for key, each in device.sources.items() if key in {"/name", "/arch", "/driver"}},
            details={"nodes": device.details["nodes"], "parent": device.id, **_parent_uuid(device)} | shared,
        )
        gaps = {key: why for key, why in unknown.items() if not key.startswith(("/memory", "/details"))}
        gaps |= {pointer: f"{source} does not tell it" for pointer in MEMORY.values() if pointer not in about.facts}
        found.append(with_gaps(combine((instance, gaps), [about])))
    return found


def _parent_uuid(device: Device) -> dict[str, JsonValue]:
    uuid = device.details.get("uuid")
    return {"parent_uuid": uuid} if uuid else {}

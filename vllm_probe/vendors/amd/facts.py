"""How what each source says of a GPU becomes evidence, and a partition of one a device."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.amd.kfd import Node
from vllm_probe.vendors.evidence import Evidence
from vllm_probe.vendors.layer0 import NOT_GIVEN, UNASKED, Reading, node_verdict
from vllm_probe.vendors.nodes import node_facts, read_identity
from vllm_probe.vendors.software import container_kind

LIVE = (
    *("utilization", "temperature_c", "junction_c", "memory_temperature_c", "power_w"),
    *("core_clock_mhz", "memory_clock_mhz"),
)
_OF_CARD = (
    *("junction_limit_c", "power_limit_w", "power_default_w", "core_clock_max_mhz", "memory_clock_max_mhz"),
    *("compute_partition", "memory_partition", "memory_vendor", "vbios", "unique_id"),
)
WANTED = ("utilization", "temperature_c", "power_w")
"""Live values whose absence is explained: health is judged by them."""
_IDENTITY = {"name": "/name", "arch": "/arch", "compute_units": "/details/compute_units"}
_GRAPHICS = frozenset({"AMD Radeon Graphics", "AMD Radeon(TM) Graphics"})
_SHARED = ("pci_id", "chip", "compute_partition", "memory_partition", "unique_id")


def node_evidence(id_: str, node: Node, *, partition: bool) -> list[Evidence]:
    """Architecture, compute units, numbers, and the memory's speed, which the partitions of a card share."""
    bank = node.banks[0] if len(node.banks) == 1 else None
    values: dict[str, Any] = {
        "/arch": node.arch,
        "/indices/kfd": node.number,
        "/indices/drm_render": node.properties.get("drm_render_minor") or None,
        "/details/compute_units": node.compute_units,
        "/details/wave_size": node.properties.get("wave_front_size") or None,
        "/details/unique_id": unique_id(node),
        "/details/core_clock_max_mhz": (node.properties.get("max_engine_clk_fcompute") or None) if partition else None,
        "/details/bus_width_bits": bank.width_bits if bank and not partition else None,
    }
    facts = {pointer: value for pointer, value in values.items() if value is not None}
    found = [Evidence(id=id_, source=f"KFD node {node.number}", facts=facts)]
    if node.bandwidth_gb_s and not partition:
        source = f"derived: width x clock of KFD node {node.number} x transfers in a clock of {node.arch}'s memory"
        found.append(Evidence(id=id_, source=source, facts={"/details/memory_bandwidth_gb_s": node.bandwidth_gb_s}))
    return found


def card_evidence(id_: str, source: str, card: Mapping[str, Any], *, asleep: bool = False) -> Evidence:
    """Details that the driver or a tool gives of a whole card; of one that sleeps, why the live ones are missing."""
    facts = {f"/details/{name}": card[name] for name in (*LIVE, *_OF_CARD) if name in card}
    why = "it sleeps, and asking would wake it" if asleep else f"{source} does not tell it"
    gaps = {f"/details/{name}": why for name in WANTED if name not in card}
    return Evidence(id=id_, source=source, facts=facts, unknown=gaps)


def tool_evidence(id_: str, source: str, record: Mapping[str, Any]) -> Evidence:
    """What a tool or library says of the device `id_` in the form of `parse_amd_smi`."""
    facts: dict[str, Any] = {pointer: record[name] for name, pointer in _IDENTITY.items() if name in record}
    facts |= {f"/indices/{name}": record[name] for name in ("kfd", "drm_render", "drm_card") if name in record}
    facts |= {f"/details/{name}": record[name] for name in (*LIVE, *_OF_CARD, "bus_width_bits") if name in record}
    if "driver" in record:
        facts["/driver"] = f"amdgpu {record['driver']}"
    if "bandwidth_gb_s" in record:
        facts["/details/memory_bandwidth_gb_s"] = record["bandwidth_gb_s"]
    if "vram_total" in record:
        facts["/memory/reported_bytes"] = record["vram_total"]
        if "vram_used" in record:
            facts["/memory/used_bytes"] = record["vram_used"]
            facts["/memory/usable_bytes"] = max(record["vram_total"] - record["vram_used"], 0)
    return Evidence(id=id_, source=source, facts=facts)


def unique_id(node: Node) -> str | None:
    """`0x...` with 16 digits, which the partitions of a card share; null where the kernel gives 0 or none."""
    number = node.properties.get("unique_id")
    return f"0x{number:016x}" if number else None


def partition_of(host: Host, card: Reading, node: Node) -> Reading:
    """The partition `node` of `card` as a device of its own, with what it shares with the card and nodes of its own."""
    device, unknown = card
    minor = node.properties.get("drm_render_minor")
    own = f"/dev/dri/renderD{minor}"
    facts = [node_facts(host, path, read_identity(host)) for path in ("/dev/kfd", *([own] if minor else ()))]
    shared = {name: device.details[name] for name in _SHARED if name in device.details}
    part = replace(
        device,
        id=f"{device.id}/xcp-{node.function}",
        memory=DeviceMemory(kind="unified" if device.memory.kind == "unified" else "partition"),
        verdict=_of_nodes(host, device, facts),
        indices={},
        sources={key: source for key, source in device.sources.items() if key in {"/name", "/arch", "/driver"}},
        details={"nodes": facts, "parent": device.id} | shared,
    )
    gaps = {key: why for key, why in unknown.items() if not key.startswith(("/memory", "/details"))}
    return part, gaps


def _of_nodes(host: Host, card: Device, facts: Sequence[dict[str, JsonValue]]) -> Verdict:
    """What the nodes of a partition say; a container may have been given those of some parts of the `card` only."""
    if card.driver is None or not card.driver.startswith("amdgpu"):
        return card.verdict
    inside = container_kind(host) not in {None, "wsl"}
    for fact in facts:
        if fact["state"] == "denied":
            return node_verdict(host, fact, "")
        if fact["state"] == "absent" and inside:
            options = " ".join(f"--device {each['path']}" for each in facts)
            return Verdict(code="unusable", reason=f"{NOT_GIVEN} {fact['path']}; start it with `{options}`")
    said = card.verdict
    unjudged = Verdict(code="unknown", reason=f"the driver {card.driver} is bound; {UNASKED}")
    return unjudged if said.code == "unusable" else said


def with_gaps(reading: Reading) -> Reading:
    """`reading` with a null for each detail that only has a reason."""
    device, unknown = reading
    prefix = "/details/"
    gaps = {pointer.removeprefix(prefix): None for pointer in unknown if pointer.startswith(prefix)}
    return replace(device, details=gaps | device.details), unknown


def is_vague(name: str | None) -> bool:
    """Whether it names no one card: the id table's for several that share an id, and what graphics are called."""
    return name is None or "/" in name or name in _GRAPHICS

"""How what each source says of a GPU becomes evidence of the device."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.evidence import Evidence
from vllm_probe.vendors.intel.drm import Memory
from vllm_probe.vendors.intel.verdict import shown_by
from vllm_probe.vendors.layer0 import Reading

Record: TypeAlias = Mapping[str, Any]

_MEMORY = {"total": "/memory/reported_bytes", "used": "/memory/used_bytes", "free": "/memory/usable_bytes"}
SIZES = frozenset(_MEMORY.values())
LIVE = frozenset(f"/details/{name}" for name in ("clock_mhz", "temperature_c", "power_w"))
"""What changes from one moment to the next, so that two sources that differ do not disagree."""
_DETAILS = (
    *("compute_units", "clock_mhz", "clock_max_mhz", "largest_allocation_bytes", "memory_clock_max_mhz"),
    *("event_reasons", "throttled", "temperature_c", "memory_temperature_c", "power_w", "power_limit_w", "fans_rpm"),
    *("ecc", "tiles", "sriov", "state", "function", "memory_bandwidth_gb_s"),
)
_BUS_BITS = dict.fromkeys(("0bd9", "0bda", "0bdb"), 3072) | dict.fromkeys(("0bd5", "0bd6"), 4096)
"""By PCI device, of a tile of those whose memory clock a driver tells: stacks of HBM2e of 1024 bits, three in a Max
1100 and four in each tile of a Max 1550, which makes the 1229 and 3277 GB/s of their data sheets."""
_DATA_RATE_ABOVE = 2000
"""Megahertz: HBM2e has clocks below, and moves two words to each; a driver that tells more tells the rate of words."""
_UNTOLD_USE = "the driver tells only processes with CAP_PERFMON how much of its memory is in use"


def of_driver(id_: str, memory: Memory | None, version: str | None, why: str) -> Evidence:
    """What the kernel driver says; `why` it says nothing of the memory."""
    source = "DRM memory regions"
    if memory is None:
        return Evidence(id=id_, source=source, facts=_version(version), unknown=dict.fromkeys(_MEMORY.values(), why))
    facts: dict[str, JsonValue] = _version(version) | {
        "/kind": "gpu" if memory.local else "igpu",
        "/memory/kind": "dedicated" if memory.local else "shared",
    }
    facts |= {"/memory/reported_bytes": memory.total} if memory.total else {}
    if memory.local:
        facts |= {"/memory/used_bytes": memory.used} if memory.used is not None else {}
        facts |= {"/details/cpu_reachable_bytes": memory.reachable} if memory.reachable else {}
        facts |= {"/details/tiles": memory.tiles} if memory.tiles else {}
    unknown = {} if memory.total else {"/memory/reported_bytes": "the driver does not tell it"}
    return Evidence(id=id_, source=source, facts=facts, unknown=unknown | {"/memory/used_bytes": _UNTOLD_USE})


def of_record(id_: str, source: str, record: Record) -> Evidence:
    """What sysfs, Level Zero or xpu-smi says."""
    facts: dict[str, JsonValue] = {f"/details/{name}": record[name] for name in _DETAILS if name in record}
    facts |= {"/name": record["name"]} if "name" in record else {}
    facts |= {"/details/level_zero_driver": record["driver_version"]} if "driver_version" in record else {}
    sizes = dict(record.get("memory", {}))
    if "free" in sizes and "total" in sizes:
        sizes.setdefault("used", sizes["total"] - sizes["free"])
    facts |= {pointer: sizes[name] for name, pointer in _MEMORY.items() if name in sizes}
    facts |= {"/memory/kind": "partition"} if record.get("function") == "virtual" else {}
    return Evidence(id=id_, source=source, facts=facts)


def of_level_zero(id_: str, records: Sequence[Record]) -> Evidence:
    """What Level Zero says of a GPU, which it may list as one device or as one for each tile."""
    if not records:
        return Evidence(id=id_, source="Level Zero")
    first = dict(records[0])
    totals = [record["memory"]["total"] for record in records if "memory" in record]
    rates = [record["memory_bandwidth_gb_s"] for record in records if "memory_bandwidth_gb_s" in record]
    units = [record["compute_units"] for record in records if "compute_units" in record]
    first |= {"memory": {"total": sum(totals)}} if totals else {}
    first |= {"memory_bandwidth_gb_s": sum(rates)} if rates else {}
    first |= {"compute_units": sum(units)} if units else {}
    evidence = of_record(id_, "Level Zero", first)
    facts = {**evidence.facts, "/indices/level_zero": first["ordinal"]}
    facts |= {"/details/level_zero_devices": len(records)} if len(records) > 1 else {}
    if "integrated" in first:
        facts |= {"/kind": "igpu" if first["integrated"] else "gpu"}
        facts |= {"/memory/kind": "shared"} if first["integrated"] else {}
    return replace(evidence, facts=facts)


def of_torch(id_: str, own: Sequence[Record], records: Sequence[Record], selector: str | None) -> Evidence:
    """The number of torch.xpu where it is certain: of the only GPU, and of discrete GPUs before any integrated one.

    torch counts as SYCL does, in Level Zero's order, and later releases leave out integrated GPUs beside discrete ones
    (c10/xpu/XPUFunctions.cpp of https://github.com/pytorch/pytorch); a selector may change the numbers of several.
    """
    facts: dict[str, JsonValue] = {}
    silent = any("silent" in record for record in records)
    integrated = [record.get("integrated", True) for record in records]
    if own and not silent and len(own) == len(records):
        facts = {"/indices/xpu": 0} if shown_by(selector or "", own[0]["ordinal"]) else {}
    elif own and not silent and not selector and not own[0].get("integrated", True):
        facts = {"/indices/xpu": own[0]["ordinal"]} if integrated == sorted(integrated) else {}
    return Evidence(id=id_, source="order of Level Zero", facts=facts)


def without(evidence: Evidence, pointers: frozenset[str]) -> Evidence:
    """`evidence` with nothing of `pointers`."""
    return replace(
        evidence,
        facts={pointer: value for pointer, value in evidence.facts.items() if pointer not in pointers},
        unknown={pointer: why for pointer, why in evidence.unknown.items() if pointer not in pointers},
    )


def of_machine(host: Host, id_: str, allowed: int | None) -> Evidence:
    """The memory of a GPU that has none of its own: what the machine has and can give, and Level Zero allows."""
    stats = host.stats()
    given = [size for size in (stats.memory_available_bytes, allowed) if size is not None]
    usable = min(given) if stats.memory_available_bytes is not None else None
    sizes = {"reported_bytes": stats.memory_total_bytes, "usable_bytes": usable}
    facts: dict[str, JsonValue] = {f"/memory/{name}": size for name, size in sizes.items() if size is not None}
    gaps = {f"/memory/{name}": "the machine does not tell it" for name, size in sizes.items() if size is None}
    gaps["/memory/used_bytes"] = "the GPU shares the machine's memory, and no driver tells how much of it is its own"
    return Evidence(id=id_, source="/proc/meminfo", facts=facts, unknown=gaps)


def with_usable(reading: Reading, allowed: int | None) -> Reading:
    """`reading` with what a process may have of a GPU's own memory: what is not in use, of what Level Zero gives out.

    Where nothing tells how much is in use, that is all of it, and the source says so.
    """
    device, unknown = reading
    total, used = device.memory.reported_bytes, device.memory.used_bytes
    most = min((size for size in (total, allowed) if size is not None), default=None)
    if device.memory.usable_bytes is not None or most is None:
        return reading
    usable = most if used is None or total is None else min(most, max(total - used, 0))
    source = "reported less what is in use" if used is not None else "reported, what is in use is not known"
    return (
        replace(
            device,
            memory=replace(device.memory, usable_bytes=usable),
            sources=device.sources | {"/memory/usable_bytes": source},
        ),
        {pointer: why for pointer, why in unknown.items() if pointer != "/memory/usable_bytes"},
    )


def with_bandwidth(reading: Reading) -> Reading:
    """`reading` with the bandwidth of its own memory by clock and bus, where nothing better told it."""
    device, unknown = reading
    name = "memory_bandwidth_gb_s"
    pointer = f"/details/{name}"
    if pointer in device.sources or device.memory.kind != "dedicated":
        return reading
    bits = _BUS_BITS.get(str(device.details.get("pci_id", ""))[5:])
    clock, tiles = device.details.get("memory_clock_max_mhz"), device.details.get("tiles")
    if not bits or not isinstance(clock, int):
        why = "neither Level Zero nor the clock of its memory tells it; `vllm-probe bench` measures it"
        return replace(device, details=device.details | {name: None}), unknown | {pointer: why}
    words = clock if clock > _DATA_RATE_ABOVE else 2 * clock
    rate = round(bits / 8 * words / 1000 * (tiles if isinstance(tiles, int) else 1), 1)
    source = "derived: memory clock and width of the bus"
    found = replace(device, details=device.details | {name: rate}, sources=device.sources | {pointer: source})
    return found, unknown


def _version(version: str | None) -> dict[str, JsonValue]:
    return {"/details/drm_version": version} if version else {}

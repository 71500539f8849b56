"""A GPU that Level Zero lists as several devices, such as the two stacks of a Max 1550: programs get one at a time.

ZE_FLAT_DEVICE_HIERARCHY decides it, and is FLAT where it is not set:
https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#device-hierarchy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.vendors.evidence import combine
from vllm_probe.vendors.intel import facts
from vllm_probe.vendors.intel.verdict import Reports, judged
from vllm_probe.vendors.layer0 import Reading

_SHARED = ("nodes", "pci_id", "chip", "drm_version")
_NODES = ("drm_card", "drm_render")
_USABLE, _USED, _RATE = "/memory/usable_bytes", "/memory/used_bytes", "/details/memory_bandwidth_gb_s"


def with_tiles(found: Reading, own: Sequence[Mapping[str, Any]], reports: Reports, before: Verdict) -> list[Reading]:
    """The card `found`, which is not usable as a whole, and a device for each of `own`, Level Zero's records of it.

    `before` is what the bus alone says of the card.
    """
    card = found[0]
    tiles = [_tile(found, record, number, len(own), reports, before) for number, record in enumerate(own)]
    reason = (
        f"Level Zero lists it as {len(own)} devices, so only its parts compute: {tiles[0][0].id} to tile-{len(own) - 1}"
    )
    gone = {_USABLE, "/indices/level_zero", "/indices/xpu"}
    whole = replace(
        card,
        usable=False,
        visible=True,
        verdict=Verdict(code="unusable", reason=reason),
        memory=replace(card.memory, usable_bytes=None),
        indices={name: number for name, number in card.indices.items() if name in _NODES},
        sources={pointer: source for pointer, source in card.sources.items() if pointer not in gone},
    )
    return [(whole, found[1] | {_USABLE: "it is split, so only its parts can be asked for memory"}), *tiles]


def _tile(
    found: Reading, record: Mapping[str, Any], number: int, count: int, reports: Reports, before: Verdict
) -> Reading:
    card, _ = found
    details = {name: card.details[name] for name in _SHARED if name in card.details}
    reachable, total = card.details.get("cpu_reachable_bytes"), card.memory.reported_bytes
    if isinstance(reachable, int) and total and reachable < total:
        details["cpu_reachable_bytes"] = reachable
    kept = {"/name", "/arch", "/driver", "/kind", *(f"/indices/{name}" for name in _NODES)}
    bare = replace(
        card,
        id=f"{card.id}/tile-{number}",
        verdict=before,
        usable=False,
        visible=True,
        memory=DeviceMemory(kind="partition"),
        indices={name: value for name, value in card.indices.items() if name in _NODES},
        sources={pointer: source for pointer, source in card.sources.items() if pointer in kept},
        details=details | {"parent": card.id},
    )
    gaps = {pointer: why for pointer, why in found[1].items() if not pointer.startswith(("/memory", "/details"))}
    gaps |= dict.fromkeys(("/memory/reported_bytes", _USABLE), "Level Zero does not tell it of this part")
    gaps[_USED] = "the driver tells it of the whole card only"
    records = reports.level_zero.get("devices", ())
    by_order = facts.of_torch(bare.id, [record], records, reports.selector)
    told = combine((bare, gaps), (facts.of_level_zero(bare.id, [record]), by_order))
    device, unknown = facts.with_usable(_with_rate(told, card, count), card.memory.usable_bytes)
    return judged(device, reports, seen=True, told=False, silent=record.get("silent")), unknown


def _with_rate(reading: Reading, card: Device, count: int) -> Reading:
    """`reading` with an equal share of the card's bandwidth, where Level Zero does not tell its own."""
    device, unknown = reading
    whole = card.details.get("memory_bandwidth_gb_s")
    if _RATE in device.sources or not isinstance(whole, int | float):
        return reading
    details = device.details | {"memory_bandwidth_gb_s": round(whole / count, 1)}
    return replace(device, details=details, sources=device.sources | {_RATE: card.sources[_RATE]}), unknown

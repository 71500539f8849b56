"""How much memory a GPU has, by what kind it is; sources of which each is right for one kind only."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_probe.core.device import Device
from vllm_probe.core.system import Host
from vllm_probe.core.values import MemoryKind
from vllm_probe.vendors.amd.kfd import Node
from vllm_probe.vendors.evidence import Evidence

_SYSFS = "sysfs mem_info_vram_total and _used"
_REPORTED = "/memory/reported_bytes"
_CLOSE = 0.02  # the pool that KFD's size is taken from is rounded

INTEGRATED = frozenset(
    (
        *("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    )
)
"""Architectures that exist in processors only: https://llvm.org/docs/AMDGPUUsage.html."""


def memory_of_parts(host: Host, device: Device, card: Mapping[str, Any]) -> Evidence:
    """The size of a card that is split; none of it can be had from the card."""
    unified = device.memory.kind == "unified"
    whole = _unified(host, device, None, card) if unified else _dedicated(device.id, card)
    pointer = "/memory/usable_bytes"
    facts = {key: value for key, value in whole.facts.items() if key != pointer}
    why = "it is split, so only its parts can be asked for memory"
    return replace(whole, facts=facts, unknown={**whole.unknown, pointer: why})


def memory_evidence(host: Host, device: Device, node: Node | None, card: Mapping[str, Any]) -> list[Evidence]:
    """Sizes and kind of `device`'s memory, from its KFD node and `card`, what sysfs tells of the whole card.

    A partition has what KFD gives it: everything else shows the whole card. The GPU of a processor can use what KFD
    gives, which is either its carve-out or GTT; they overlap and are never added up. Any other has its VRAM. What is
    the machine's memory is free as far as the machine has it, also for a partition.
    """
    kind = device.memory.kind
    card = {} if "parent" in device.details else card
    if kind == "partition":
        return [_partition(device.id, node)]
    if kind in {"shared", "unified"} or device.kind == "igpu":
        return [_unified(host, device, node, card)]
    if node is None:
        return [_dedicated(device.id, card)]
    bank = _bank(device.id, node, "dedicated")
    if "vram_total" in card:  # what is in use changes between two readings: only the sizes are compared
        bank = replace(bank, facts={key: value for key, value in bank.facts.items() if key == _REPORTED})
    return [_dedicated(device.id, card), bank]


def _partition(id_: str, node: Node | None) -> Evidence:
    if node is None or node.memory_bytes is None:
        why = "KFD does not tell it, and sysfs shows the whole card"
        return Evidence(id=id_, source="KFD", unknown=_all(why), facts={"/memory/kind": "partition"})
    return _bank(id_, node, "partition")


def _bank(id_: str, node: Node, kind: MemoryKind) -> Evidence:
    facts: dict[str, Any] = {"/memory/kind": kind}
    if node.memory_bytes is not None:
        facts |= _sizes(node.memory_bytes, node.used_bytes)
    why = f"KFD node {node.number} does not tell what is in use"
    return Evidence(id=id_, source=f"KFD node {node.number}", facts=facts, unknown=_rest(facts, why))


def _dedicated(id_: str, card: Mapping[str, Any]) -> Evidence:
    if "vram_total" not in card:
        return Evidence(id=id_, source=_SYSFS, unknown=_all("the driver shows no mem_info_vram_total"))
    facts = _sizes(card["vram_total"], card.get("vram_used")) | {"/memory/kind": "dedicated"}
    return Evidence(id=id_, source=_SYSFS, facts=facts, unknown=_rest(facts, "the driver shows no mem_info_vram_used"))


def _unified(host: Host, device: Device, node: Node | None, card: Mapping[str, Any]) -> Evidence:
    pools = {name: card[f"{name}_total"] for name in ("gtt", "vram") if f"{name}_total" in card}
    total, source = (node.memory_bytes, f"KFD node {node.number}") if node else (None, "KFD")
    if total is None and pools:  # the kernel gives the larger one, https://github.com/ROCm/rocm-systems/issues/8475
        total, source = max(pools.values()), "the larger of sysfs mem_info_gtt_total and mem_info_vram_total"
    if total is None:
        return Evidence(id=device.id, source=source, unknown=_all("neither KFD nor sysfs tells it"))
    pool = next((name for name, size in pools.items() if abs(size - total) <= _CLOSE * total), None)
    used = card.get(f"{pool}_used")
    used = node.used_bytes if used is None and node else used
    facts = _sizes(total, used) | {"/memory/kind": "unified"}
    if pool != "vram" or device.kind == "gpu":  # only a carve-out is no part of the machine's memory
        available = host.stats().memory_available_bytes
        sizes = (facts.get("/memory/usable_bytes", total), available)
        facts["/memory/usable_bytes"] = min(size for size in sizes if size is not None)
    part = "parent" in device.details
    why = f"{source} does not tell what is in use" if part else "sysfs shows no pool of the size that KFD gives"
    return Evidence(id=device.id, source=source, facts=facts, unknown=_rest(facts, why))


def _sizes(total: int, used: int | None) -> dict[str, Any]:
    sizes = {_REPORTED: total}
    return sizes if used is None else sizes | {"/memory/used_bytes": used, "/memory/usable_bytes": max(total - used, 0)}


def _all(why: str) -> dict[str, str]:
    return {f"/memory/{name}_bytes": why for name in ("reported", "usable", "used")}


def _rest(facts: Mapping[str, Any], why: str) -> dict[str, str]:
    return {pointer: reason for pointer, reason in _all(why).items() if pointer not in facts}

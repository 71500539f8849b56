"""Lists AMD GPUs and NPUs: what the bus shows, what the driver, KFD, libraries and tools say, and the verdict."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias

from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors import layer0
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.amd.asking import ask, ask_runtime, ask_tools, has_module
from vllm_probe.vendors.amd.facts import (
    LIVE,
    WANTED,
    card_evidence,
    is_vague,
    node_evidence,
    tool_evidence,
    unique_id,
    with_gaps,
)
from vllm_probe.vendors.amd.kfd import Topology, read_topology
from vllm_probe.vendors.amd.masks import Card, Mask, apply, read_masks
from vllm_probe.vendors.amd.memory import INTEGRATED, memory_evidence, memory_of_parts
from vllm_probe.vendors.amd.units import Unit, placed, units_of
from vllm_probe.vendors.amd.verdict import Machine, judged, split
from vllm_probe.vendors.amd.windows import behind_windows
from vllm_probe.vendors.evidence import Evidence, combine
from vllm_probe.vendors.layer0 import Reading, bus_devices, result
from vllm_probe.vendors.platforms import dxg_library

Told: TypeAlias = Mapping[str, list[dict[str, Any]]]

_LIVE_MODULE = "pyamdgpuinfo"


def probe(host: Host) -> ProbeResult:
    """Every AMD GPU of `host`, the partitions of one that is split, and its NPUs, of which the bus alone tells.

    Where a GPU that amdgpu runs is asleep, no node is opened and no library asked: that would wake it.
    """
    shown = bus_devices(host, PLUGIN)
    found = [reading for reading in shown if reading[0].kind == "npu"]
    found += _on_bus(host, [reading for reading in shown if reading[0].kind != "npu"])
    if dxg_library(host, PLUGIN.name):
        found += _behind_windows(host)
    return result(found)


def _on_bus(host: Host, shown: Sequence[Reading]) -> list[Reading]:
    asleep = layer0.asleep(host, PLUGIN) & {each.id for each, _ in shown}
    topology = read_topology(host) if shown else Topology(present=False)
    units = units_of(host, shown, topology, asleep)
    asked = [unit for unit in units if not unit.parts and unit.reading[0].verdict.code != "unusable"]
    found, told = _ask(host, asked, topology, asleep)
    numbers, hidden = _numbers(host, asked, topology, found)
    evidence = [each for unit in units for each in _evidence(host, unit, told)]
    evidence += [_numbered(id_, number) for id_, number in numbers.items()]
    lacking = {unit.id for unit in asked if not unit.partition and not _tells(unit.id, "reported", evidence)}
    for source, cards in ask_tools(host) if lacking and not asleep else ():
        told_of = placed(cards, asked)
        evidence += [tool_evidence(card["id"], source, card) for card in told_of if card["id"] in lacking]
        lacking = {id_ for id_ in lacking if not _tells(id_, "usable", evidence)}
        if not lacking:
            break
    readings = {unit.id: with_gaps(combine(unit.reading, evidence)) for unit in units}
    refused = len(topology.refused)
    return [_judged(unit, readings, found, hidden.get(unit.id), refused) for unit in units]


def _ask(host: Host, asked: Sequence[Unit], topology: Topology, asleep: frozenset[str]) -> tuple[Machine, Told]:
    """What the runtime says of the machine, and by function of lib.py what libraries say of each card."""
    functions = []
    if not asleep and any(is_vague(unit.reading[0].name) for unit in asked):
        functions.append("names")
    if any(name not in unit.card for unit in asked for name in WANTED) and _may_read(host, asleep):
        functions.append("live")
    nodes = () if asleep else dict.fromkeys(("/dev/kfd", *(unit.render for unit in asked if unit.render)))
    with ThreadPoolExecutor(max_workers=2) as pool:
        cards = [(function, pool.submit(ask, host, function)) for function in functions]
        found = ask_runtime(host, topology, tuple(nodes), asleep) if asked else Machine(listed=topology.present)
        return found, {function: later.result() for function, later in cards}


def _may_read(host: Host, asleep: frozenset[str]) -> bool:
    """Whether pyamdgpuinfo is there, and wakes nothing when it opens every card."""
    return not asleep and has_module(host, _LIVE_MODULE)


def _numbers(
    host: Host, asked: Sequence[Unit], topology: Topology, found: Machine
) -> tuple[dict[str, int], dict[str, Mask]]:
    """Numbers in HIP, and what hides the rest; without KFD's order only what hides all is known."""
    masks = read_masks(host)
    if not topology.nodes and len(asked) > 1:
        return {}, apply([Card(unit.id) for unit in asked], [mask for mask in masks if mask.hides_all])[1]
    reached = [unit for unit in asked if unit.node or not topology.present]
    in_order = sorted(reached, key=lambda unit: unit.node.number if unit.node else 0)
    opened = [unit for unit in in_order if not found.errors.get(unit.render or "")]
    return apply([Card(unit.id, _uuid(unit)) for unit in opened], masks)


def _uuid(unit: Unit) -> str | None:
    found = unique_id(unit.node) if unit.node else None
    return f"GPU-{found[2:].upper()}" if found else None


def _evidence(host: Host, unit: Unit, told: Told) -> list[Evidence]:
    """Best first: KFD, then the driver, then what libraries add where both lack it."""
    device, node = unit.reading[0], unit.node
    arch = (node.arch if node else None) or device.arch
    found: list[Evidence] = []
    if arch in INTEGRATED and device.kind == "gpu":
        device = replace(device, kind="igpu")
        found.append(Evidence(id=unit.id, source=f"architecture {arch}", facts={"/kind": "igpu"}))
    address = device.details.get("parent", unit.id)
    name = next((card.get("name") for card in told.get("names", ()) if card.get("id") == address), None)
    if is_vague(device.name) and not is_vague(name):
        found.append(Evidence(id=unit.id, source="libamd_smi", facts={"/name": name}))
    found += node_evidence(unit.id, node, partition=unit.partition) if node else []
    found += (
        [memory_of_parts(host, device, unit.card)] if unit.parts else memory_evidence(host, device, node, unit.card)
    )
    live = next((card for card in told.get("live", ()) if card.get("id") == address), {})
    if unit.partition:
        return found
    missing = {name: value for name, value in live.items() if name in LIVE and name not in unit.card}
    added = [tool_evidence(unit.id, _LIVE_MODULE, missing)] if missing else []
    return [*found, card_evidence(unit.id, "sysfs", unit.card, asleep=unit.sleeps), *added]


def _numbered(id_: str, number: int) -> Evidence:
    return Evidence(id=id_, source="order of KFD's nodes and the environment's masks", facts={"/indices/hip": number})


def _tells(id_: str, word: str, evidence: Sequence[Evidence]) -> bool:
    return any(each.id == id_ and f"/memory/{word}_bytes" in each.facts for each in evidence)


def _judged(unit: Unit, readings: Mapping[str, Reading], found: Machine, mask: Mask | None, refused: int) -> Reading:
    device, unknown = readings[unit.id]
    if unit.parts:
        parts = [readings[id_][0] for id_ in unit.parts]
        return split(device, parts, unit.card.get("compute_partition"), refused), unknown
    return judged(device, unit.node, found, mask), unknown


def _behind_windows(host: Host) -> list[Reading]:
    with ThreadPoolExecutor(max_workers=1) as pool:  # one after the other they could take longer than a probe may
        later = pool.submit(ask_runtime, host, Topology(present=False), (), frozenset())
        shown, source, cards = behind_windows(host)
        found = later.result()
    hidden = apply([Card(device.id) for device, _ in shown], read_masks(host))[1]
    readings = []
    for reading, card in zip(shown, cards or [{}], strict=True):
        id_, kind = reading[0].id, "igpu" if card.get("arch") in INTEGRATED else reading[0].kind
        known = {name: value for name, value in card.items() if name != "driver"}  # which Windows has
        evidence = [tool_evidence(id_, source, known), Evidence(id=id_, source=source, facts={"/kind": kind})]
        device, unknown = combine(reading, evidence)
        readings.append((judged(device, None, found, hidden.get(id_)), unknown))
    return readings

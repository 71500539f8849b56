"""Lists Intel GPUs and NPUs: what shows them, what the kernel driver, Level Zero and xpu-smi say, and the verdict."""

import errno
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias

from vllm_probe.core.device import Device, Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.evidence import Evidence, combine
from vllm_probe.vendors.intel import PLUGIN, drm, facts, sysfs
from vllm_probe.vendors.intel.asking import ask
from vllm_probe.vendors.intel.tiles import with_tiles
from vllm_probe.vendors.intel.verdict import Reports, failed_boot, judged
from vllm_probe.vendors.layer0 import Fact, Reading, bus_devices, result
from vllm_probe.vendors.pci import accelerators
from vllm_probe.vendors.platforms import dxg, dxg_library

Record: TypeAlias = Mapping[str, Any]

_DRIVERS = ("i915", "xe")
_TOOL = "xpu-smi"
_AT_ONCE, _WITHIN_S = 16, 9.0
"""Cards that are asked at the same time, and when the last answer is due: before the probe's own limit of 10 s."""
_REFUSALS = {
    errno.ENOENT: "its render node is not there",
    errno.EACCES: "this process may not open its render node",
    errno.EPERM: "the device cgroup of this container forbids its render node",
}


def probe(host: Host) -> ProbeResult:
    """Every Intel GPU and NPU of `host`; a GPU that sleeps is not opened, nor is a library that would."""
    shown = bus_devices(host, PLUGIN)
    functions = {each.address: each for each in accelerators(host)}
    driven = [d for d, _ in shown if d.kind != "npu" and functions[d.id].driver in _DRIVERS]
    asleep = next((device.id for device in driven if functions[device.id].asleep), None)
    windows = dxg_library(host, PLUGIN.name) is not None
    if not driven and not windows:
        return result(shown)
    awake = [device.id for device in driven if not functions[device.id].asleep]
    begun = host.now()
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        asked = pool.submit(ask, host, len(driven)) if asleep is None else None
        by_driver = pool.map(lambda id_: _by_driver(host, id_, functions[id_].driver or ""), awake)
        told = dict(zip(awake, by_driver, strict=True))
        reports = asked.result() if asked else None
    if reports is None:
        return result(_left_alone(host, reading, told, f"{asleep}") for reading in shown)
    if windows:
        return result([*shown, *_behind_windows(host, reports)])
    records = reports.level_zero.get("devices", ())
    tool = _by_tool(host, begun) if _lacking(reports, told) else {"devices": []}
    found = [_complete(host, each, told, reports, records, tool) if each[0].id in told else [each] for each in shown]
    return result(reading for readings in found for reading in readings)


def _complete(
    host: Host,
    reading: Reading,
    told: Mapping[str, Sequence[Evidence]],
    reports: Reports,
    records: Sequence[Record],
    tool: Record,
) -> list[Reading]:
    """`reading` with what every source says of it, before its parts where Level Zero lists those."""
    id_ = reading[0].id
    if sysfs.failed_boot(host, id_):
        return [failed_boot(reading)]
    own, seen = _own(reading[0], records, reports)
    by_tool: Record = next((each for each in tool["devices"] if each.get("id") == id_), {})
    if not by_tool and len(tool["devices"]) == 1 and "id" not in tool["devices"][0] and reports.gpus == 1:
        by_tool = tool["devices"][0]
    kernel, *rest = told[id_]
    level_zero = facts.of_level_zero(id_, own)
    failure = {"/details/xpu_smi_error": tool["error"]} if "error" in tool else {}
    earlier = (kernel, level_zero, *rest)
    read_before = facts.LIVE.intersection(pointer for each in earlier for pointer in each.facts)
    by_smi = facts.without(facts.of_record(id_, _TOOL, by_tool), read_before)
    failed = Evidence(id=id_, source=_TOOL, facts=failure)
    number = facts.of_torch(id_, own, records, reports.selector)
    found = _informed(host, reading, (*earlier, by_smi, failed, number))
    device, unknown = facts.with_bandwidth(found)
    if len(own) > 1:
        return with_tiles((device, unknown), own, reports, reading[0].verdict)
    silent = next((record["silent"] for record in own if "silent" in record), None)
    return [(judged(device, reports, seen=seen, told=bool(by_tool), silent=silent), unknown)]


def _informed(host: Host, reading: Reading, evidence: Sequence[Evidence]) -> Reading:
    """`reading` with `evidence`; memory that is the machine's is what the machine says of it."""
    allowed = next((each.facts["/memory/reported_bytes"] for each in evidence if _from_level_zero(each)), None)
    shared = next((each.facts["/memory/kind"] for each in evidence if "/memory/kind" in each.facts), None)
    if (shared or reading[0].memory.kind) == "shared":
        machine = facts.of_machine(host, reading[0].id, allowed)
        return combine(reading, (machine, *(facts.without(each, facts.SIZES) for each in evidence)))
    return facts.with_usable(combine(reading, evidence), allowed)


def _from_level_zero(evidence: Evidence) -> bool:
    return evidence.source == "Level Zero" and "/memory/reported_bytes" in evidence.facts


def _by_driver(host: Host, id_: str, driver: str) -> tuple[Evidence, ...]:
    """What the kernel driver says through the render node, then in sysfs."""
    numbers = sysfs.nodes(host, id_)
    node = f"/dev/dri/renderD{numbers['drm_render']}" if "drm_render" in numbers else None
    known = drm.version(host, node) if node else None
    memory = drm.memory(host, node, known[0] if known else driver) if node else None
    record = sysfs.read(host, id_)
    card = numbers.get("drm_card")
    by_counters = driver == "i915" and card is not None and not sysfs.tells_clock(host, id_)
    clock = _by_counters(host, f"/dev/dri/card{card}") if by_counters else None
    indices = {f"/indices/{name}": number for name, number in numbers.items()}
    return (
        facts.of_driver(id_, memory, known[1] if known else None, _silence(host, node) if memory is None else ""),
        facts.of_record(id_, "sysfs", record),
        Evidence(id=id_, source="sysfs", facts=indices),
        facts.of_record(id_, "intel_gpu_top", {} if clock is None else {"clock_mhz": clock}),
    )


def _by_counters(host: Host, node: str) -> int | None:
    from vllm_probe.vendors.intel.gpu_top import read_clock

    return read_clock(host, node)


def _silence(host: Host, node: str | None) -> str:
    """Why a driver tells nothing of the memory."""
    if node is None:
        return "no render node of it is known"
    return _REFUSALS.get(host.open_errno(node), "the driver does not answer a query for its memory")


def _own(device: Device, records: Sequence[Record], reports: Reports) -> tuple[list[Record], bool | None]:
    """The records of the device, by address, and whether it is listed; by place where there is one and no address."""
    if reports.level_zero.get("status") != 0:
        return [], None
    if "devices" not in reports.level_zero:
        return [], True if reports.gpus == 1 else None
    own = [record for record in records if record.get("id") == device.id]
    if own or not records or all("id" in record for record in records):
        return own, bool(own)
    silent = [record for record in records if "id" not in record and "silent" in record]
    if silent and len(records) == reports.gpus:
        return silent[:1], True
    number = str(device.details.get("pci_id", ""))[5:]
    same = [record for record in records if "id" not in record and _number(record) == number]
    if len(same) == 1:
        return same, True
    if len(records) == reports.gpus == 1:
        return list(records), True
    if len(records) == reports.gpus:
        return [], True
    others = all("id" in record or _number(record) not in {None, number} for record in records)
    return [], False if others else None


def _number(record: Record) -> str | None:
    return f"{record['device_id']:04x}" if "device_id" in record else None


def _by_tool(host: Host, begun: float) -> Record:
    from vllm_probe.vendors.intel import smi

    left = begun + _WITHIN_S - host.now()
    return smi.read(host, min(smi.TIMEOUT_S, left)) if left > 0 else {"devices": []}


def _lacking(reports: Reports, told: Mapping[str, Sequence[Evidence]]) -> bool:
    """Whether xpu-smi may know more: Level Zero gave no report, or the driver does not tell how memory is used.

    Where Level Zero cannot be initialised, xpu-smi cannot work either.
    """
    if "status" not in reports.level_zero:
        return True
    kernel = [each[0].facts for each in told.values()]
    own = [each for each in kernel if each.get("/memory/kind") != "shared"]
    return reports.level_zero["status"] == 0 and any("/memory/used_bytes" not in each for each in own)


def _left_alone(host: Host, reading: Reading, told: Mapping[str, Sequence[Evidence]], asleep: str) -> Reading:
    """What can be said while a GPU sleeps: Level Zero opens all of them."""
    device, unknown = reading
    if device.id not in told:
        return reading
    if device.verdict.code == "unknown":
        reason = f"Level Zero was not asked whether it can be used, because that wakes {asleep}, which sleeps"
        device = replace(device, verdict=Verdict(code="unknown", reason=reason))
    return facts.with_bandwidth(_informed(host, (device, unknown), told[device.id]))


def _behind_windows(host: Host, reports: Reports) -> list[Reading]:
    """The GPUs behind /dev/dxg: those that Level Zero lists, or one where no other vendor has its library there."""
    records = reports.level_zero.get("devices", ())
    silent = "Level Zero did not tell it"

    def named(record: Record) -> tuple[Fact, Fact, Fact]:
        name: Fact = (record["name"], "Level Zero") if "name" in record else (None, silent)
        return name, (None, silent), (None, "Windows has the driver")

    found = dxg(host, PLUGIN.name, [named(record) for record in records])
    return [_seen_behind(host, reading, records[place : place + 1], reports) for place, reading in enumerate(found)]


def _seen_behind(host: Host, reading: Reading, own: Sequence[Record], reports: Reports) -> Reading:
    id_, records = reading[0].id, reports.level_zero.get("devices", ())
    number = facts.of_torch(id_, own, records, reports.selector)
    device, unknown = _informed(host, reading, (facts.of_level_zero(id_, own), number))
    return judged(device, reports, seen=bool(own) if own else None, told=False), unknown

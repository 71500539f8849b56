"""Lists Ascend NPUs: what the bus and /dev show, what DCMI, npu-smi and ACL say of them, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.ascend import PLUGIN, smi
from vllm_probe.vendors.ascend.asking import Reports, ask, ask_memory
from vllm_probe.vendors.ascend.facts import MEMORY, WANTED, evidence, with_gaps, with_nodes
from vllm_probe.vendors.ascend.masks import MASK, UNNUMBERED, logical_ids, node_number, numbered, visible
from vllm_probe.vendors.ascend.places import Unit, units_of
from vllm_probe.vendors.ascend.verdict import judged, machine_of
from vllm_probe.vendors.ascend.versions import read_versions
from vllm_probe.vendors.evidence import Evidence, combine
from vllm_probe.vendors.layer0 import Reading, asleep, bus_devices, result


def probe(host: Host) -> ProbeResult:
    """Every Ascend chip of `host`; nodes alone count where the bus shows none.

    Nothing is asked of the driver where that would wake a device, or where it has none.
    """
    shown = bus_devices(host, PLUGIN)
    if asleep(host, PLUGIN) or not any(_may_answer(reading) for reading in shown):
        return result(shown)
    reports = ask(host)
    dcmi, tool = reports.dcmi.report.get("devices", []), (reports.smi or {}).get("devices", [])
    units = units_of(shown, dcmi, tool, told=reports.status == 0)
    return result(_assembled(host, units, reports))


def _may_answer(reading: Reading) -> bool:
    """Whether a driver is bound to it, though its nodes may be missing or closed."""
    device = reading[0]
    return device.driver is not None or device.id.startswith(f"{PLUGIN.name}:")


def _assembled(host: Host, units: Sequence[Unit], reports: Reports) -> list[Reading]:
    logic, source = logical_ids(units)
    mask = host.env(MASK)
    numbers = visible(logic, mask)
    left = min(len(numbers), len(reports.acl.report.get("devices", ())))
    untold = not all(unit.record for unit in units)
    if untold and mask is None and "devices" in reports.acl.report and left < len(logic):
        source = None  # the order of the nodes tells nothing where some of them are not the driver's
    source = f"{source}, {MASK}" if source and mask is not None else source
    acl = _told_by_acl(host, units, numbers, reports) if source else _told_of_all(host, units, numbers)
    shown = frozenset(logic if left == len(logic) else acl)
    doubt = f"CANN shows {left} of {len(logic)} devices, and which is not known: {UNNUMBERED}"
    versions = read_versions(host)
    cann = versions.get("cann", (None, ""))[0]
    found = []
    for unit in units:
        reading = with_nodes(host, unit.reading, node_number(unit))
        device, unknown = with_gaps(combine(reading, _evidence(host, reading, unit, reports, acl, versions)))
        machine = machine_of(host, reports, cann, device.details["nodes"])
        machine = replace(machine, shown=shown, doubt=doubt if source is None and left < len(logic) else None)
        device = judged(numbered(device, logic, numbers, source), unit, machine)
        gaps = {pointer: why for pointer, why in unknown.items() if pointer != "/adapter"}
        gaps |= {"/indices/npu": UNNUMBERED} if source is None and device.usable and device.visible else {}
        found.append((replace(device, adapter=PLUGIN.name), gaps))
    return found


def _told_by_acl(
    host: Host, units: Sequence[Unit], numbers: Mapping[str, int], reports: Reports
) -> Mapping[str, dict[str, Any]]:
    """By address, what ACL says of the devices that it shows, and their memory where nothing else tells it."""
    shown = reports.acl.report.get("devices", [])
    found = {id_: dict(shown[number]) for id_, number in numbers.items() if number < len(shown)}
    lacking = [unit.id for unit in units if unit.id in found and "memory" not in unit.record]
    sizes = ask_memory(host) if lacking else []
    for id_ in lacking:
        if numbers[id_] < len(sizes) and sizes[numbers[id_]]:
            found[id_]["memory"] = sizes[numbers[id_]]
    return found


def _told_of_all(host: Host, units: Sequence[Unit], numbers: Mapping[str, int]) -> Mapping[str, dict[str, Any]]:
    """By address, the memory of devices whose order is not known, where all of them have the same."""
    if not numbers or all("memory" in unit.record for unit in units):
        return {}
    sizes = ask_memory(host)
    totals = {size.get("total") for size in sizes}
    if len(sizes) != len(numbers) or len(totals) != 1 or None in totals:
        return {}
    return {id_: {"memory": {"total": sizes[0]["total"]}} for id_ in numbers}


def _evidence(
    host: Host,
    reading: Reading,
    unit: Unit,
    reports: Reports,
    acl: Mapping[str, dict[str, Any]],
    versions: Mapping[str, tuple[str, str]],
) -> list[Evidence]:
    """Best first: DCMI, npu-smi, ACL, files."""
    found = []
    driver = reports.dcmi.report.get("driver")
    if unit.dcmi:
        found.append(evidence(host, reading, "DCMI", {**unit.dcmi, **({"driver": driver} if driver else {})}))
    if unit.smi:
        found.append(evidence(host, reading, smi.SOURCE, unit.smi))
    if unit.id in acl:
        found.append(replace(evidence(host, reading, "ACL", acl[unit.id]), unknown={}))
    if not unit.record:
        gaps = dict.fromkeys([*MEMORY, *(f"/details/{name}" for name in WANTED)], reports.silence)
        found.append(Evidence(id=unit.id, source="DCMI", unknown=gaps))
    for name in ("cann", "firmware"):
        if name in versions:
            version, path = versions[name]
            found.append(Evidence(id=unit.id, source=path, facts={f"/details/{name}_version": version}))
    return found

"""Brings together what each source says of each GPU: values, MIG instances, numbers in CUDA and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from vllm_probe.core.device import Device
from vllm_probe.core.system import Host
from vllm_probe.vendors.evidence import Evidence, combine
from vllm_probe.vendors.layer0 import Reading
from vllm_probe.vendors.nvidia import smi
from vllm_probe.vendors.nvidia.codes import nvml_meaning
from vllm_probe.vendors.nvidia.facts import MEMORY, evidence, named, parts, with_gaps, with_links
from vllm_probe.vendors.nvidia.ordinals import card_of, numbered, ordinals
from vllm_probe.vendors.nvidia.platforms import machine_memory, shares_memory, tegra_readings
from vllm_probe.vendors.nvidia.verdict import FEWER, UNRESOLVED, Reports, judged, split

Record: TypeAlias = Mapping[str, Any]

_NVML, _CUDA = "NVML", "libcuda"
_COMPUTED = "order of the bus, CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER"


def assemble(host: Host, shown: Sequence[Reading], reports: Reports, tool: Record) -> list[Reading]:
    """`shown` with what the libraries and nvidia-smi say, each GPU before its MIG instances."""
    readings: list[Reading] = []
    records: dict[str, Record] = {}
    alive = [device.id for device, _ in shown if device.verdict.code != "unusable"] or [
        device.id for device, _ in shown
    ]
    for reading in shown:
        device = reading[0]
        nvml = named(device, _about(device, device.id, alive, reports.nvml.get("devices", ())))
        told = named(device, _about(device, nvml.get("id", device.id), alive, tool["devices"]))
        record = {**told, **nvml}
        cuda = _about(device, record.get("id", device.id), alive, reports.cuda.get("devices", ()))
        whole = _informed(host, reading, (nvml, told, cuda), reports, tool)
        records[device.id] = record
        readings += [whole, *parts(whole, _NVML if nvml.get("parts") else smi.SOURCE, record)]
    reports = replace(reports, scarce=reports.inside and _scarce(host, shown))
    listed: Mapping[str, int] | None = _listed(readings, records, reports.cuda)
    numbers, source = listed, _CUDA
    if numbers is None:
        reached = [device for device, _ in readings if not _out_of_reach(device, records)]
        given = _given(reached, records, reports)
        numbers, source = ordinals(map(card_of, given), reports.mask, host.env("CUDA_DEVICE_ORDER")), _COMPUTED
        listed = numbers if 0 < len(given) < len(reached) else None
        reports = replace(reports, untold=FEWER if reached and not given else None)
    if not numbers and reports.cuda.get("count") != 0 and _may_mean(reports.mask, [device for device, _ in readings]):
        numbers, listed, reports = None, None, replace(reports, untold=UNRESOLVED)
    return _with_verdicts(numbered(readings, numbers, source, reports.mask, reports.untold), records, reports, listed)


def _may_mean(mask: str | None, devices: Sequence[Device]) -> bool:
    """Whether a token of `mask` may be the UUID of a MIG instance whose UUID is not known."""
    nameless = any("parent" in device.details and not device.details.get("uuid") for device in devices)
    return nameless and any(token.strip().startswith("MIG-") for token in (mask or "").split(","))


def _scarce(host: Host, shown: Sequence[Reading]) -> bool:
    driven = [
        device for device, _ in shown if "pci_id" in device.details and (device.driver or "").startswith("nvidia")
    ]
    return len(host.glob("/dev/nvidia[0-9]*")) < len(driven)


def _given(reached: Sequence[Device], records: Mapping[str, Record], reports: Reports) -> Sequence[Device]:
    """Those that the CUDA driver has by its count alone: where it has fewer, those of which NVML or nvidia-smi tells.

    None where these tell of another number.
    """
    count, whole = (
        reports.cuda.get("count"),
        not any(device.details.get("mig") or "parent" in device.details for device in reached),
    )
    if not count or count >= len(reached) or reports.mask is not None or not whole:
        return reached
    told = [device for device in reached if "id" in records.get(device.id, {})]
    return told if len(told) == count else ()


def _out_of_reach(device: Device, records: Mapping[str, Record]) -> bool:
    return device.verdict.code == "unusable" or bool(records.get(device.id, {}).get("status"))


def _with_verdicts(
    readings: Sequence[Reading], records: Mapping[str, Record], reports: Reports, listed: Mapping[str, int] | None
) -> list[Reading]:
    found: list[Reading] = []
    for device, unknown in readings:
        record = records.get(device.id, {})
        at_known_place = not device.id.startswith(("dxg:", "nvidia:")) or "id" in record
        seen = device.id in listed if listed is not None and at_known_place and device.id in records else None
        found.append((judged(device, record, reports, seen=None if device.details.get("mig") else seen), unknown))
    instances = [device for device, _ in found if "parent" in device.details]
    return [
        (split(device, [each for each in instances if each.details["parent"] == device.id]), unknown)
        if device.details.get("mig")
        else (device, unknown)
        for device, unknown in found
    ]


def _about(device: Device, address: str, alive: Sequence[str], records: Sequence[Record]) -> Record:
    """By address or the number of its node; by place where a library tells neither, or another address than Linux has.

    `alive` are the devices of which a library can tell, in order.
    """
    found = next((each for each in records if each.get("id") == address), None)
    if found is None and device.id.startswith("nvidia:"):
        found = next((each for each in records if each.get("minor") == int(device.id.partition(":")[2])), None)
    elsewhere = device.id.startswith(("dxg:", "tegra:")) and address == device.id
    if found is None and device.id in alive and (elsewhere or not any("id" in each for each in records)):
        found = records[alive.index(device.id)] if len(records) == len(alive) else None
    return found or {}


def _informed(
    host: Host, reading: Reading, told: tuple[Record, Record, Record], reports: Reports, tool: Record
) -> Reading:
    """`reading` with the values of NVML, the CUDA driver and nvidia-smi, and what the machine tells in their place."""
    device, (nvml, by_tool, cuda) = reading[0], told
    tegra = device.id.startswith("tegra:")
    arch = nvml.get("arch") or cuda.get("arch") or by_tool.get("arch") or device.arch
    unified = shares_memory(device.memory.kind, arch, cuda.get("integrated"))
    driver = _driver(reports.nvml, tool) if not tegra and _has_driver(device, nvml or by_tool) else {}
    silent = not nvml or nvml.keys() & {"silent", "status"}
    sources = [
        *([Evidence(id=device.id, source=_NVML, unknown=_silent(nvml, reports))] if silent and not unified else []),
        evidence(device.id, _NVML, nvml, unified=unified),
        Evidence(id=device.id, source=_CUDA, facts=_of_cuda(cuda, reports)),
        evidence(device.id, smi.SOURCE, by_tool, unified=unified),
        Evidence(id=device.id, source=_NVML if "driver" in reports.nvml else smi.SOURCE, facts=driver),
    ]
    if tegra:
        sources.append(evidence(device.id, "sysfs", tegra_readings(host), unified=True))
    sized = unified or any("memory" in each for each in (nvml, by_tool))
    if "total" in cuda and not sized and not nvml.get("mig") and not by_tool.get("mig"):
        sources.append(Evidence(id=device.id, source=_CUDA, facts={"/memory/reported_bytes": cuda["total"]}))
    if unified:
        sources.append(machine_memory(host, device.id, {**by_tool, **nvml}))
    elif device.memory.kind is None and "memory" in {**by_tool, **nvml}:
        sources.append(Evidence(id=device.id, source=_NVML, facts={"/memory/kind": "dedicated"}))
    informed, unknown = with_gaps(combine(reading, sources))
    return (informed if unified else with_links(informed, {**by_tool, **nvml})), unknown


def _has_driver(device: Device, record: Record) -> bool:
    """Whether NVIDIA's driver has it: NVML tells of no other, and off the bus there is no other."""
    return bool(record) or "pci_id" not in device.details or (device.driver or "").split()[:1] == ["nvidia"]


def _driver(nvml: Record, tool: Record) -> dict[str, str]:
    version = nvml.get("driver") or tool.get("driver")
    return {"/driver": f"nvidia {version}"} if version else {}


def _of_cuda(cuda: Record, reports: Reports) -> dict[str, Any]:
    version = reports.cuda.get("version") or reports.nvml.get("cuda_version")
    facts = {"/details/cuda_version": version} if version else {}
    return facts | ({"/arch": cuda["arch"]} if "arch" in cuda else {})


def _silent(record: Record, reports: Reports) -> dict[str, str]:
    """Why there is no memory where NVML tells nothing of the device."""
    if record:
        why = f"NVML: {record.get('silent') or nvml_meaning(record['status']).text}"
    else:
        why = reports.nvml_error or "NVML does not list the device"
    return dict.fromkeys(MEMORY.values(), why)


def _listed(readings: Sequence[Reading], records: Mapping[str, Record], cuda: Record) -> dict[str, int] | None:
    """Address to number of what the CUDA driver shows, null where it does not tell."""
    shown = [each for each in cuda.get("devices", ()) if "id" in each]
    if cuda.get("status") != 0 or not (shown or cuda.get("count") == 0):
        return None
    found = {}
    whole = [device for device, _ in readings if "parent" not in device.details]
    for device, _ in readings:
        address = records.get(device.id, {}).get("id", device.id)
        for each in shown:
            if "parent" in device.details:
                same = bool(each.get("uuid")) and each["uuid"] in device.details.get("uuid", "")
            else:
                same = not device.details.get("mig") and (each["id"] == address or len(whole) == len(shown) == 1)
            if same:
                found[device.id] = each["ordinal"]
    return found

"""How what DCMI, npu-smi and ACL say of a chip becomes evidence about a device."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.ascend.codes import dcmi_meaning
from vllm_probe.vendors.ascend.soc import soc_of
from vllm_probe.vendors.evidence import Evidence
from vllm_probe.vendors.layer0 import Reading
from vllm_probe.vendors.nodes import node_facts, read_identity

MEMORY = ("/memory/reported_bytes", "/memory/usable_bytes", "/memory/used_bytes")
_DETAILS = (
    *("card", "chips", "pci_id", "ai_cores", "cube_cores", "vector_cores", "l2_bytes", "health", "memory_type"),
    *("aicore_clock_mhz", "aicore_clock_max_mhz", "memory_clock_mhz", "power_w", "temperature_c", "utilization"),
    *("processes", "product", "firmware", "compatibility"),
)
WANTED = ("health", "utilization", "temperature_c", "processes")
"""Details whose absence is explained: health is judged by them."""


def evidence(host: Host, reading: Reading, source: str, record: Mapping[str, Any]) -> Evidence:
    """What `record` says of the device of `reading`."""
    device, soc = reading[0], soc_of(record.get("name"), record.get("npu_name"))
    facts: dict[str, JsonValue] = {f"/details/{name}": record[name] for name in _DETAILS if name in record}
    if soc:
        facts |= {"/name": soc.name, "/arch": soc.arch, "/details/soc": soc.version}
    elif device.name is None and record.get("name"):
        facts["/name"] = f"Huawei Ascend {re.sub(r'(?i)^ascend *', '', record['name'])}".strip()
    facts |= {"/details/chip_number": record["chip"]} if "chip" in record else {}
    facts |= {"/indices/davinci": record["phy"]} if "phy" in record else {}
    if "driver" in record and not (device.driver and " " in device.driver):
        facts["/driver"] = f"{device.driver or 'davinci'} {record['driver']}"
    shares = _shares_memory(device.memory.kind, facts.get("/arch") or device.arch)
    if device.memory.kind is None and shares is not None:
        facts["/memory/kind"] = "unified" if shares else "dedicated"
    facts |= _memory(host, record.get("memory", {}), shared=bool(shares))
    return Evidence(id=device.id, source=source, facts=facts, unknown=_reasons(source, record))


def _shares_memory(kind: str | None, arch: str | None) -> bool | None:
    """Whether its memory is the machine's: that of a 310B without a function on the bus is (Atlas 200I A2)."""
    return False if kind else arch.startswith("310b") if arch else None


def _memory(host: Host, memory: Mapping[str, int], *, shared: bool) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {}
    total, used, free = memory.get("total"), memory.get("used"), memory.get("free")
    if total:
        facts[MEMORY[0]] = total
        free = total - used if free is None and used is not None else free
        used = total - free if used is None and free is not None else used
    if total and used is not None and free is not None and 0 <= used <= total:
        available = host.stats().memory_available_bytes if shared else None
        facts |= {MEMORY[1]: free if available is None else min(free, available), MEMORY[2]: used}
    return facts


def _reasons(source: str, record: Mapping[str, Any]) -> dict[str, str]:
    failed = record.get("failed", {})

    def why(name: str) -> str:
        if "silent" in record:
            return f"{source}: {record['silent']}"
        status = record.get("status", failed.get(name))
        return f"{source}: {dcmi_meaning(status).text}" if status else f"{source} does not tell it"

    gaps = {f"/details/{name}": why(name) for name in WANTED if name not in record}
    if "used" not in record.get("memory", {}) and "free" not in record.get("memory", {}):
        gaps |= dict.fromkeys(MEMORY, why("memory_info"))
    return gaps


def with_nodes(host: Host, reading: Reading, number: int | None) -> Reading:
    """`reading` with its own /dev/davinciN alone, where its number is known."""
    device, unknown = reading
    if number is None:
        return reading
    own = node_facts(host, f"/dev/davinci{number}", read_identity(host))
    shared = [fact for fact in device.details["nodes"] if not re.fullmatch(r"/dev/davinci[\[0-9].*", fact["path"])]
    return replace(device, details=device.details | {"nodes": [*shared, own]}), unknown


def with_gaps(reading: Reading) -> Reading:
    """`reading` with a null for each detail that only has a reason."""
    device, unknown = reading
    prefix = "/details/"
    gaps = {pointer.removeprefix(prefix): None for pointer in unknown if pointer.startswith(prefix)}
    return replace(device, details=gaps | device.details), unknown

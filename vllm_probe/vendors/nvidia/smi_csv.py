"""`nvidia-smi --query-gpu=... --format=csv`, in the form of NVML's report."""

import csv
import re
from collections.abc import Sequence
from typing import Any

from vllm_probe.vendors.nvidia.smi_words import gone, is_known, parse_address

_MIB = 1 << 20
_UNITS = re.compile(r"\s*\[(?:MiB|%|W|MHz|C)\]")
_NUMBER = re.compile(r"(-?\d{1,15})(\.\d{1,6})?(?: (?:MiB|%|W|MHz|C))?")
_MEMORY = {"memory.total": "total", "memory.used": "used", "memory.free": "free", "memory.reserved": "reserved"}
_TEXTS = {"name": "name", "uuid": "uuid", "gpu_name": "name", "gpu_uuid": "uuid"}
_NUMBERS = {
    "index": "index",
    "utilization.gpu": "utilization",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "power.limit": "power_limit_w",
    "clocks.sm": "sm_clock_mhz",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
}
_WATTS = ("power_w", "power_limit_w")


def parse_csv(text: str, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Driver and devices; `columns` are those of the query where the text has no header of its own.

    Values of `[N/A]` and the like, and rows of another length, such as an error's text, are left out.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, skipinitialspace=True, quoting=csv.QUOTE_NONE)]
    if not columns and rows:
        columns = [_UNITS.sub("", cell) for cell in rows.pop(0)]
    report: dict[str, Any] = {"devices": []}
    for cells in rows:
        named = _named(columns, cells)
        if named is None:
            continue
        device = _device(named)
        if device or "driver_version" in named or all(cell[:1] == "[" for cell in cells):
            report["devices"].append({"index": len(report["devices"])} | device)
        if is_known(named.get("driver_version", "")):
            report["driver"] = named["driver_version"]
    return report


def _named(columns: Sequence[str], cells: list[str]) -> dict[str, str] | None:
    """Cells by column; a name may hold commas, which nvidia-smi does not quote."""
    surplus = len(cells) - len(columns)
    if not columns or surplus < 0 or (surplus and "name" not in columns):
        return None
    at = columns.index("name") if surplus else 0
    joined = [*cells[:at], ", ".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
    found = dict(zip(columns, joined if surplus else cells, strict=True))
    wrong = not re.fullmatch(r"\d[\d.]*|\[.*\]|N/A", found.get("driver_version", "N/A"))
    return None if wrong else found


def _device(named: dict[str, str]) -> dict[str, Any]:
    device: dict[str, Any] = {key: named[name] for name, key in _TEXTS.items() if is_known(named.get(name, ""))}
    for name, key in _NUMBERS.items():
        value = _number(named.get(name))
        if value is not None:
            device[key] = value if key in _WATTS else int(value)
    sizes = {key: _number(named.get(name)) for name, key in _MEMORY.items()}
    memory = {key: int(size) * _MIB for key, size in sizes.items() if size is not None}
    capability = re.fullmatch(r"(\d{1,2})\.(\d)", named.get("compute_cap", ""))
    address = parse_address(named.get("pci.bus_id", ""))
    device |= {"memory": memory} if memory.get("total") else {}
    device |= {"arch": f"sm_{capability[1]}{capability[2]}"} if capability else {}
    status = gone(*(cell.strip("[]") for cell in named.values()))
    device |= {} if status is None else {"status": status}
    return device | ({"id": address} if address else {})


def _number(text: str | None) -> float | None:
    match = _NUMBER.fullmatch(text or "")
    return float(match[1] + (match[2] or "")) if match else None

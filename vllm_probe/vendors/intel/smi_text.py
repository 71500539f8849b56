"""What `xpu-smi discovery`, `discovery -d`, `stats -d` and bare `xpu-smi` print, in the form of `smi_json`."""

import re
from typing import Any

from vllm_probe.vendors.intel.smi_json import MIB, in_units, known, memory, number, parse_address, parse_pci_id

_DISCOVERY = re.compile(r"[\s|]*(?:(\d{1,4})[\s|]+)?([A-Z][\w /()-]*?): +(.*?)[\s|]*")
_STATISTIC = re.compile(r"\|\s*([A-Z][^|]*?\([^|()]{1,8}\))\s*\|\s*([^|]*?)\s*\|")
_FIRST_ROW = re.compile(r"\|\s*(\d{1,4})\s+(?:(\S.*?)\s+)?(?:On|Off)\s*\|\s*([0-9a-fA-F:.]{7,16})\s[^|]*\|[^|]*\|")
_NAME_ROW = re.compile(r"\|\s*(\S[^|]*?)\s*\|\s*\|\s*\|")
_MEMORY_ROW = re.compile(r"\|([^|]*)\|\s*(\d{1,9})MiB / (\d{1,9})MiB\s*\|[^|]*\|")
_WATTS = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)W / (\d{1,6}(?:\.\d{1,3})?)W")
_READINGS = {
    "GPU Memory Used (MiB)": "memory_used_mib",
    "GPU Power (W)": "power_w",
    "GPU Frequency (MHz)": "clock_mhz",
    "GPU Core Temperature (C)": "temperature_c",
}


def parse_discovery_text(text: str) -> dict[str, Any]:
    """Devices in a list or a description of one, with or without a box around it."""
    devices: list[dict[str, str]] = []
    for line in text.splitlines():
        match = _DISCOVERY.fullmatch(line[:400])
        if match and match[1] is not None:
            devices.append({"Device ID": match[1]})
        if match and devices:
            devices[-1].setdefault(match[2], match[3])
    return {"devices": [_described(each) for each in devices]}


def parse_stats_text(text: str) -> dict[str, Any]:
    """As `smi_json.parse_stats`; where each tile has a value, memory is their sum."""
    values: dict[str, float] = {}
    for label, cell in (match.groups() for line in text.splitlines() if (match := _STATISTIC.match(line[:400]))):
        told = [number(part) for part in re.findall(r"(?:^|: )(\d[\d.]{0,17})", cell)]
        known_ones = [value for value in told if value is not None]
        if label in _READINGS and known_ones:
            name = _READINGS[label]
            values[name] = sum(known_ones) if name == "memory_used_mib" else known_ones[0]
    return in_units(values)


def parse_summary(text: str) -> dict[str, Any]:
    """Devices in the table of bare `xpu-smi` 2.x; a name may be missing, or go on in the row below."""
    devices: list[dict[str, Any]] = []
    for line in text.splitlines():
        first, name, sizes = (pattern.match(line[:400]) for pattern in (_FIRST_ROW, _NAME_ROW, _MEMORY_ROW))
        if first and (address := parse_address(first[3])):
            devices.append({"index": int(first[1]), "id": address} | ({"name": first[2]} if first[2] else {}))
        elif sizes and devices:
            devices[-1] |= _sizes(int(sizes[2]), int(sizes[3])) | _power(sizes[1])
        elif name and devices and "name" in devices[-1] and "memory" not in devices[-1]:
            devices[-1]["name"] += f" {name[1]}"
    return {"devices": devices}


def _described(told: dict[str, str]) -> dict[str, Any]:
    megahertz = re.fullmatch(r"(\d{1,6}) MHz", told.get("Core Clock Rate", ""))
    values: dict[str, Any] = {
        "id": parse_address(told.get("PCI BDF Address")),
        "name": known(told.get("Device Name")),
        "pci_id": parse_pci_id(told.get("PCI Device ID")),
        "state": known(told.get("Device State")),
        "function": known(told.get("Device Function Type") or told.get("Function Type")),
        "driver_version": known(told.get("Driver Version")),
        "compute_units": _whole(told.get("Number of EUs")),
        "tiles": _whole(told.get("Number of Tiles")),
        "ecc": {"enabled": True, "disabled": False}.get(told.get("ECC State", "").lower()),
        "clock_max_mhz": int(megahertz[1]) if megahertz else None,
    }
    sizes = (_bytes(told.get(f"Memory {which} Size")) for which in ("Physical", "Free"))
    known_ones = {name: value for name, value in values.items() if value is not None}
    return {"index": int(told["Device ID"])} | known_ones | memory(*sizes)


def _sizes(used: int, total: int) -> dict[str, Any]:
    sizes = {"total": total * MIB, "used": used * MIB}
    return {"memory": {name: size for name, size in sizes.items() if size}} if total else {}


def _power(cell: str) -> dict[str, float]:
    watts = _WATTS.search(cell)
    return {"power_w": float(watts[1]), "power_limit_w": float(watts[2])} if watts and float(watts[1]) else {}


def _whole(text: str | None) -> int | None:
    return int(number(text) or 0) or None


def _bytes(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) MiB", text or "")
    return float(match[1]) * MIB if match else None

"""`xpu-smi discovery -j`, of the whole machine and of one device, and `xpu-smi stats -j`, of 1.x and 2.x.

A device has those of `index id name pci_id state function memory driver_version compute_units tiles ecc clock_max_mhz`
that the text tells; `memory` has those of `total free used`, in bytes.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.tool_json import json_behind

Record: TypeAlias = dict[str, Any]

MIB = 1 << 20
_TEXTS = {
    "device_name": "name",
    "device_state": "state",
    "device_function_type": "function",
    "driver_version": "driver_version",
}
_NUMBERS = {
    "number_of_eus": "compute_units",
    "number_of_tiles": "tiles",
    "core_clock_rate_mhz": "clock_max_mhz",
}
_METRICS = {
    "XPUM_STATS_MEMORY_USED": "memory_used_mib",
    "XPUM_STATS_POWER": "power_w",
    "XPUM_STATS_GPU_FREQUENCY": "clock_mhz",
    "XPUM_STATS_GPU_CORE_TEMPERATURE": "temperature_c",
}
_PATHS = {
    "memory_used_mib": ("memory", "used_mib"),
    "power_w": ("power", "gpu_power_w"),
    "clock_mhz": ("frequency", "gpu_frequency_mhz"),
    "temperature_c": ("temperature", "gpu_core_celsius"),
}
_UNKNOWN = {"[n/a]", "err!", "", "unknown", "n/a", "none"}


def parse_discovery(text: str) -> Record:
    """`{"devices": [...]}`; `listed` says whether the text is a list of devices, which may be empty."""
    document = json_behind(text)
    if not isinstance(document, dict):
        return {"devices": [], "listed": False}
    listed = document["device_list"] if "device_list" in document else [document] * ("device_id" in document)
    return {"devices": [_device(each) for each in _dicts(listed)], "listed": "device_list" in document}


def parse_error(text: str) -> str | None:
    """What xpu-smi says in place of an answer, null where it does not say that it failed."""
    document = json_behind(text)
    return known(document.get("error")) if isinstance(document, dict) else None


def parse_stats(text: str) -> Record:
    """Those of `memory` with `used`, `power_w`, `clock_mhz` and `temperature_c` that the text tells of one device."""
    document = json_behind(text)
    if not isinstance(document, dict):
        return {}
    values = _of_1(document) if "device_level" in document or "tile_level" in document else _of_2(document)
    return in_units(values)


def in_units(values: Mapping[str, float]) -> Record:
    """Readings under the names of a device; of what 0 says, that a GPU rests or the driver is silent, none is kept."""
    found: Record = {}
    used = values.get("memory_used_mib")
    found |= {"memory": {"used": round(used * MIB)}} if used else {}
    power = values.get("power_w")
    found |= {"power_w": power} if power else {}
    for name in ("clock_mhz", "temperature_c"):
        found |= {name: round(values[name])} if values.get(name) else {}
    return found


def parse_address(text: object) -> str | None:
    """`0000:03:00.0` of an address as tools write it, null where it is none."""
    match = re.fullmatch(r"(?:0{0,4}([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])", str(text).strip())
    return f"{match[1] or '0000'}:{match[2]}".lower() if match else None


def parse_pci_id(text: object) -> str | None:
    """`8086:020a` of `0x20a`, null where it is no number."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,4})", str(text).strip())
    return f"8086:{int(match[1], 16):04x}" if match else None


def known(text: object) -> str | None:
    """`text` unless it stands for nothing."""
    return text.strip() if isinstance(text, str) and text.strip().lower() not in _UNKNOWN else None


def memory(total: float | None, free: float | None) -> Record:
    """`{"memory": ...}` in bytes; all free is what xpu-smi makes of a driver that does not tell, so it says nothing."""
    if not total:
        return {}
    told = free is not None and 0 < free < total
    return {"memory": {"total": int(total)} | ({"free": int(free or 0)} if told else {})}


def number(value: object) -> float | None:
    """A number that is one, or a text that is one."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", value.strip()):
        value = float(value) if "." in value else int(value)
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return value if whole and isinstance(value, int | float) and 0 <= value < 1 << 60 else None


def _device(each: Mapping[str, JsonValue]) -> Record:
    found: Record = {"index": each["device_id"]} if isinstance(each.get("device_id"), int) else {}
    values: Record = {name: known(each.get(key)) for key, name in _TEXTS.items()}
    values |= {"id": parse_address(each.get("pci_bdf_address")), "pci_id": parse_pci_id(each.get("pci_device_id"))}
    values |= {name: int(number(each.get(key)) or 0) or None for key, name in _NUMBERS.items()}
    values["ecc"] = {"enabled": True, "disabled": False}.get(str(each.get("memory_ecc_state")).lower())
    sizes = (number(each.get(f"memory_{which}_size_byte")) for which in ("physical", "free"))
    return found | {name: value for name, value in values.items() if value is not None} | memory(*sizes)


def _of_1(document: Mapping[str, JsonValue]) -> dict[str, float]:
    """Metrics of the device, or, where only its tiles have one, of them: the sum of memory, else the first."""
    whole = _metrics(document.get("device_level"))
    tiles = [_metrics(tile.get("data_list")) for tile in _dicts(document.get("tile_level"))]
    for name in _METRICS.values():
        told = [tile[name] for tile in tiles if name in tile]
        if told and name not in whole:
            whole[name] = sum(told) if name == "memory_used_mib" else told[0]
    return whole


def _metrics(items: JsonValue) -> dict[str, float]:
    told = {_METRICS.get(str(item.get("metrics_type"))): number(item.get("value")) for item in _dicts(items)}
    return {name: value for name, value in told.items() if name and value is not None}


def _of_2(document: Mapping[str, JsonValue]) -> dict[str, float]:
    found = {}
    for name, path in _PATHS.items():
        value: JsonValue = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        told = list(_current(value))
        if told:
            found[name] = sum(told) if name == "memory_used_mib" else told[0]
    return found


def _current(value: JsonValue, depth: int = 3) -> Iterable[float]:
    """The readings now in a number, `{"current": ...}`, or one of these for each tile."""
    whole = number(value)
    if whole is not None:
        yield whole
    elif isinstance(value, dict) and depth:
        for part in [value["current"]] if "current" in value else value.values():
            yield from _current(part, depth - 1)


def _dicts(items: JsonValue) -> list[dict[str, JsonValue]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []

"""`rocm-smi --json` of ROCm 3 to 7, whose keys changed with the releases, and the text forms."""

import re
from collections.abc import Callable
from typing import Any

from vllm_probe.vendors.amd import printed
from vllm_probe.vendors.tool_json import json_behind

_READINGS: dict[str, tuple[Callable[[Any], float | None], tuple[str, ...]]] = {
    "utilization": (printed.percent, ("GPU use (%)",)),
    "power_w": (
        printed.watts,
        ("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)"),
    ),
    "power_limit_w": (printed.watts, ("Max Graphics Package Power (W)",)),
    "temperature_c": (printed.degrees, ("Temperature (Sensor edge) (C)",)),
    "junction_c": (printed.degrees, ("Temperature (Sensor junction) (C)",)),
    "memory_temperature_c": (printed.degrees, ("Temperature (Sensor memory) (C)",)),
    "core_clock_mhz": (printed.megahertz, ("sclk clock speed:",)),
    "memory_clock_mhz": (printed.megahertz, ("mclk clock speed:",)),
}
"""What is read, how, and the keys that it has had, newest first."""
_SIZES = {
    "vram_total": "VRAM Total Memory (B)",
    "vram_used": "VRAM Total Used Memory (B)",
    "gtt_total": "GTT Total Memory (B)",
    "gtt_used": "GTT Total Used Memory (B)",
}
_NEVER_0 = frozenset({"vram_total", "gtt_total"})
_LINE = re.compile(r"^GPU\[([0-9]{1,4})\][ \t]*: ([^\n]{1,80}?:?): ([^\n]{0,200}?)[ \t]*$", re.MULTILINE)
_TABLE_ROW = re.compile(r"^([0-9]{1,4}) +([0-9]{1,4}) +(0x[0-9a-f]{1,4}),? +[0-9]{1,10} ([^\n]{0,400})$", re.MULTILINE)
_BUS_COLUMN = re.compile(r" (\S{12}) +([0-9]{1,3})\s*$")


def parse_rocm_smi(text: str) -> list[dict[str, Any]]:
    """The cards, by rocm-smi's number, which is not that of DRM; none where the text is something else."""
    document = json_behind(text)
    if not isinstance(document, dict):
        return _lines(text) or _table(text)
    system = document.get("system")
    driver = printed.version(system.get("Driver version")) if isinstance(system, dict) else None
    cards = [(int(match[1]), row) for key, row in document.items() if (match := re.fullmatch(r"card([0-9]{1,4})", key))]
    return [
        _device(index, row, driver) for index, row in sorted(cards, key=lambda each: each[0]) if isinstance(row, dict)
    ]


def _lines(text: str) -> list[dict[str, Any]]:
    """Lines such as `GPU[0]  : GPU use (%): 3`."""
    rows: dict[int, dict[str, Any]] = {}
    for index, key, value in _LINE.findall(text):
        rows.setdefault(int(index), {})[key] = value
    return [_device(index, row, None) for index, row in sorted(rows.items())]


def _table(text: str) -> list[dict[str, Any]]:
    """Rows of the tables of ROCm 6.1 and later: number, node, device id, and with --showhw gfx, bus and partition."""
    devices = []
    for index, node, pci_id, rest in _TABLE_ROW.findall(text):
        bus = _BUS_COLUMN.search(rest)
        device = {
            "index": int(index),
            "kfd": int(node),
            "pci_id": printed.identity(pci_id),
            "arch": printed.arch(rest.split()[0]) if rest.split() else None,
            "id": printed.address(bus[1]) if bus else None,
            "partition": int(bus[2]) if bus else None,
        }
        devices.append(printed.known(device))
    return devices


def _device(index: int, row: dict[str, Any], driver: str | None) -> dict[str, Any]:
    device: dict[str, Any] = {
        "index": index,
        "id": printed.address(row.get("PCI Bus")),
        "name": _first_name(row, "Card Series", "Card series", "Device Name"),
        "pci_id": printed.identity(row.get("Device ID")) or printed.identity(row.get("GPU ID")),
        "arch": printed.arch(row.get("GFX Version")),
        "driver": driver,
        "kfd": _whole(row.get("Node ID")),
        "memory_vendor": printed.name(row.get("GPU memory vendor")),
        "unique_id": printed.identity(row.get("Unique ID")),
    }
    device |= {name: _first(row, read, keys) for name, (read, keys) in _READINGS.items()}
    device |= {name: _whole(row.get(key)) for name, key in _SIZES.items()}
    return {key: value for key, value in device.items() if value is not None and not (value == 0 and key in _NEVER_0)}


def _first_name(row: dict[str, Any], *keys: str) -> str | None:
    return next((name for key in keys if (name := printed.name(row.get(key)))), None)


def _first(row: dict[str, Any], read: Callable[[Any], float | None], keys: tuple[str, ...]) -> float | None:
    return next((value for key in keys if (value := read(row.get(key))) is not None), None)


def _whole(value: Any) -> int | None:
    found = printed.number(value)
    return int(found) if found is not None and found >= 0 else None

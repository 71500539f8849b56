"""`xpu-smi --query-gpu=... --format=csv` of 2.x, and `xpu-smi dump` of 1.x, in the form of `smi_json`."""

import csv
import re
from collections.abc import Sequence
from typing import Any

from vllm_probe.vendors.intel.smi_json import MIB, in_units, known, memory, number, parse_address

_INDEX = ("index", "DeviceId")
_READINGS = {
    "memory.used": "memory_used_mib",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
    "GPU Memory Used (MiB)": "memory_used_mib",
    "GPU Power (W)": "power_w",
    "GPU Frequency (MHz)": "clock_mhz",
    "GPU Core Temperature (Celsius Degree)": "temperature_c",
}
_LONGEST = 4096
_COLUMNS = {"name", "memory.total", "memory.free", "pci.bus_id", *_INDEX, *_READINGS}


def parse_csv(text: str, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Devices by their first row's order; of a device with several rows, as `dump` has, the last tells.

    `columns` are those of the query where the text has no header of its own. Cells that are empty or `N/A`, and rows
    of another length, are left out.
    """
    devices: dict[object, dict[str, Any]] = {}
    lines = [line[:_LONGEST] for line in text.splitlines()]
    for row in csv.reader(lines, skipinitialspace=True, quoting=csv.QUOTE_NONE):
        cells = [cell.strip() for cell in row]
        header = [re.sub(r" \[\w+\]$", "", cell) for cell in cells]
        if _COLUMNS.intersection(header):
            columns = header
        elif columns and len(cells) == len(columns):
            device = _device(dict(zip(columns, cells, strict=True)))
            if device:
                devices[device.get("index", device.get("id", len(devices)))] = device
    return {"devices": list(devices.values())}


def _device(named: dict[str, str]) -> dict[str, Any]:
    index = next((value for name in _INDEX if (value := number(named.get(name))) is not None), None)
    address, name = parse_address(named.get("pci.bus_id")), known(named.get("name"))
    found: dict[str, Any] = {} if index is None else {"index": int(index)}
    found |= {"id": address} if address else {}
    found |= {"name": name} if name else {}
    sizes = [None if (mib := _plain(named, f"memory.{which}")) is None else mib * MIB for which in ("total", "free")]
    told = {ours: value for column, ours in _READINGS.items() if (value := _plain(named, column)) is not None}
    readings = in_units(told)
    both = {**memory(*sizes).get("memory", {}), **readings.pop("memory", {})}
    return found | readings | ({"memory": both} if both else {})


def _plain(named: dict[str, str], column: str) -> float | None:
    return number(re.sub(r" (MiB|W|C|MHz)$", "", named.get(column, "")))

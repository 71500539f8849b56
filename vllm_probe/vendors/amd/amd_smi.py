"""`amd-smi static`, `metric` and `list`, as JSON of ROCm 6 and later, or as text."""

import re
from typing import Any

from vllm_probe.vendors.amd import printed
from vllm_probe.vendors.tool_json import json_behind

_UNKNOWN_WIDTH = 0xFFFFFFFF
_ROW = re.compile(r"^( {0,40})([A-Za-z0-9_]{1,64}):[ \t]*(.{0,4096}?)[ \t]*$", re.MULTILINE)
_INDENT = 4


def parse_amd_smi(text: str) -> list[dict[str, Any]]:
    """The GPUs that are listed, each with what is told of it; none where the text is something else.

    ROCm 6 prints a list, later releases one under `gpu_data`; whole sections can be `N/A`. Before ROCm 6.1 the size was
    `vram_size_mb`, what is in use stood in `fb_usage`, and the power was `average_socket_power`, in ROCm 5.7 `power`
    itself (`amdsmi_cli/amdsmi_commands.py` of https://github.com/ROCm/amdsmi).
    """
    document = json_behind(text)
    rows = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        rows = _rows(text)
    return [_device(row) for row in rows if isinstance(row, dict) and printed.number(row.get("gpu")) is not None]


def _rows(text: str) -> list[Any]:
    """The same nesting in the text form, where it is shown by indentation."""
    rows: list[Any] = []
    open_: list[dict[str, Any]] = []
    for indent, key, value in _ROW.findall(text):
        depth = len(indent) // _INDENT
        if depth == 0 and key == "GPU":
            open_ = [{"gpu": value}]
            rows.append(open_[0])
        elif 0 < depth <= len(open_):
            del open_[depth:]
            open_[-1][key.lower()] = value or {}
            if not value:
                open_.append(open_[-1][key.lower()])
    return rows


def _device(row: dict[str, Any]) -> dict[str, Any]:
    asic, bus, vram = _section(row, "asic"), _section(row, "bus"), _section(row, "vram")
    power, heat, memory = _section(row, "power"), _section(row, "temperature"), _section(row, "mem_usage")
    partition, frame = _section(row, "partition"), _section(row, "fb_usage")
    sizes = (vram.get("size"), vram.get("vram_size_mb"), memory.get("total_vram"), frame.get("vram_total"))
    powers = (power.get("socket_power"), power.get("average_socket_power"), row.get("power"))
    device = {
        "index": _whole(row.get("gpu")),
        "id": printed.address(bus.get("bdf") or row.get("bdf")),
        "name": printed.name(asic.get("market_name")),
        "pci_id": printed.identity(asic.get("device_id")),
        "arch": printed.arch(asic.get("target_graphics_version")),
        "compute_units": _positive(asic.get("num_compute_units")),
        "driver": _driver(row.get("driver")),
        "vram_total": next(filter(None, map(printed.size, sizes)), None),
        "vram_used": printed.size(memory.get("used_vram", frame.get("vram_used"))),
        "bus_width_bits": _width(vram.get("bit_width")),
        "bandwidth_gb_s": printed.number(vram.get("max_bandwidth")) or None,
        "compute_partition": printed.name(partition.get("compute_partition")),
        "memory_partition": printed.name(partition.get("memory_partition")),
        "partition": _whole(partition.get("partition_id", row.get("partition_id"))),
        "utilization": printed.percent(_section(row, "usage").get("gfx_activity")),
        "power_w": next(filter(None, map(printed.watts, powers)), None),
        "temperature_c": printed.degrees(heat.get("edge")),
        "junction_c": printed.degrees(heat.get("hotspot")),
        "memory_temperature_c": printed.degrees(heat.get("mem")),
        "kfd": _whole(row.get("node_id")),
        "hip": _whole(row.get("hip_id")),
        "drm_render": _minor(row.get("render"), "renderD"),
        "drm_card": _minor(row.get("card"), "card"),
    }
    return printed.known(device)


def _section(row: dict[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _driver(value: Any) -> str | None:
    if isinstance(value, dict):
        return printed.version(value.get("version") or value.get("driver_version"))
    return printed.version(value)


def _whole(value: Any) -> int | None:
    found = printed.number(value)
    return int(found) if found is not None and found >= 0 else None


def _positive(value: Any) -> int | None:
    return _whole(value) or None


def _width(value: Any) -> int | None:
    found = _positive(value)
    return None if found == _UNKNOWN_WIDTH else found


def _minor(value: Any, prefix: str) -> int | None:
    match = re.fullmatch(rf"{prefix}([0-9]{{1,4}})", str(value))
    return int(match[1]) if match else None

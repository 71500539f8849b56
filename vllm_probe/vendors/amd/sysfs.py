"""What the amdgpu driver tells of a card in sysfs.

The files: https://www.kernel.org/doc/html/latest/gpu/amdgpu/driver-misc.html and .../thermal.html.
"""

import re
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.amd import printed
from vllm_probe.vendors.pci import ROOT

_SIZES = {
    "vram_total": "mem_info_vram_total",
    "vram_used": "mem_info_vram_used",
    "gtt_total": "mem_info_gtt_total",
    "gtt_used": "mem_info_gtt_used",
}
_TEXTS = {
    "compute_partition": "current_compute_partition",
    "memory_partition": "current_memory_partition",
    "memory_vendor": "mem_info_vram_vendor",
    "vbios": "vbios_version",
}
_LEVELS = {"core_clock": "pp_dpm_sclk", "memory_clock": "pp_dpm_mclk"}
_WATTS = {
    "power_w": ("power1_average", "power1_input"),
    "power_limit_w": ("power1_cap",),
    "power_default_w": ("power1_cap_default",),
}
_SENSORS = {"edge": "temperature_c", "junction": "junction_c", "mem": "memory_temperature_c"}
_ORDER = {"1": "edge", "2": "junction", "3": "mem"}  # where sensors have no label
_NEVER_0 = frozenset({"vram_total", "gtt_total", *_WATTS, *_SENSORS.values(), "junction_limit_c"})


def read_card(host: Host, address: str, *, live: bool) -> dict[str, Any]:
    """The values that are there: sizes in bytes, texts, and where `live`, load, clocks, temperatures and power."""
    folder = f"{ROOT}/{address}"
    card: dict[str, Any] = {name: _number(host, f"{folder}/{file}") for name, file in _SIZES.items()}
    card |= {name: _text(host, f"{folder}/{file}") for name, file in _TEXTS.items()}
    card["unique_id"] = parse_unique_id(host.read_text(f"{folder}/unique_id") or "")
    if live:
        card["utilization"] = printed.percent(_number(host, f"{folder}/gpu_busy_percent"))
        for name, file in _LEVELS.items():
            now, most = parse_levels(host.read_text(f"{folder}/{file}") or "")
            card |= {f"{name}_mhz": now, f"{name}_max_mhz": most}
        for path in host.glob(f"{folder}/hwmon/hwmon*"):
            card |= _sensors(host, path)
    return {name: value for name, value in card.items() if value is not None and not (value == 0 and name in _NEVER_0)}


def parse_unique_id(text: str) -> str | None:
    """`0x` and 16 digits, as KFD's number is written too; null for 0 and for what is no number."""
    match = re.fullmatch(r"\s*(?:0x)?([0-9a-fA-F]{1,16})\s*", text)
    return f"0x{number:016x}" if match and (number := int(match[1], 16)) else None


def parse_levels(text: str) -> tuple[int | None, int | None]:
    """Clock now and highest, in MHz, of lines such as `1: 945Mhz *`, of which the star marks the present one."""
    levels = re.findall(r"^\w{1,3}:[ \t]*([0-9]{1,6})M[Hh]z[ \t]*(\*?)", text, re.MULTILINE)
    clocks = [int(clock) for clock, _ in levels]
    now = next((int(clock) for clock, star in levels if star), None)
    return now, max(clocks, default=0) or None


def _sensors(host: Host, folder: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path in host.glob(f"{folder}/temp*_input"):
        stem = path.removesuffix("_input")
        label = _text(host, f"{stem}_label") or _ORDER.get(stem[-1], "")
        if label in _SENSORS:
            values[_SENSORS[label]] = printed.degrees(_scaled(host, path, 1000))
        if label == "junction":
            values["junction_limit_c"] = printed.degrees(_scaled(host, f"{stem}_crit", 1000))
    for name, files in _WATTS.items():
        readings = (printed.watts(_scaled(host, f"{folder}/{file}", 1_000_000)) for file in files)
        values[name] = next((reading for reading in readings if reading), None)
    return values


def _scaled(host: Host, path: str, divisor: int) -> float | None:
    number = _number(host, path)
    return None if number is None else round(number / divisor, 3)


def _number(host: Host, path: str) -> int | None:
    text = (host.read_text(path) or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def _text(host: Host, path: str) -> str | None:
    text = (host.read_text(path) or "").strip()
    return text if text and len(text) <= 64 and text.isprintable() else None

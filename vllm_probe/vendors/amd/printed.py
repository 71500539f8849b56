"""What amd-smi, rocm-smi and rocminfo print, as values: words and numbers that stand for unknown are null."""

import re
from typing import Any

_MOST_BYTES = 1 << 45  # what is above is no size in this unit
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "MIB": 1 << 20, "GIB": 1 << 30}
_UNKNOWN = re.compile(r"(?i)\s*|n/?a\b.*|none|unknown|not supported|0x[0-9a-f]+|[0-9]+")


def number(value: Any) -> float | None:
    """The number in `3`, `"3.0"`, `"39 °C"`, `"(96Mhz)"` or `{"value": 3}`; null for words and what is not finite."""
    if isinstance(value, dict):
        return number(value.get("value"))
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e18 else None
    match = re.fullmatch(r"\(?(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?[A-Za-z%/°]{0,5}\)?", str(value).strip())
    return float(match[1]) if match else None


def percent(value: Any) -> int | None:
    """From 0 to 100; 65535 is amd-smi's word for unknown."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= 100 else None


def watts(value: Any) -> float | None:
    """Above 0 and below 10 kW."""
    found = number(value)
    return found if found is not None and 0 < found < 10_000 else None


def degrees(value: Any) -> float | None:
    """Of Celsius, from -99 to 199; 0 is a sensor that is not there, and -273 one that says 0 kelvin."""
    found = number(value)
    return found if found and -99 <= found <= 199 else None


def megahertz(value: Any) -> int | None:
    """From 0, a clock that is off, to 20 GHz."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= 20_000 else None


def size(value: Any) -> int | None:
    """Bytes of `{"value": 65520, "unit": "MB"}` or `65520 MB`, in which MB means MiB; of a bare number, MiB."""
    found = number(value)
    unit = value.get("unit") if isinstance(value, dict) else re.sub(r"[^A-Za-z]", "", str(value))
    scale = _SIZES.get(str(unit or "MB").upper())
    total = int(found * scale) if found is not None and found >= 0 and scale else None
    return total if total is not None and total < _MOST_BYTES else None


def name(value: Any) -> str | None:
    """A name; null where the tool puts a number or a word for unknown in its place."""
    text = value.strip() if isinstance(value, str) else ""
    good = len(text) <= 128 and text.isprintable() and not _UNKNOWN.fullmatch(text)
    return text if good else None


def address(value: Any) -> str | None:
    """`0000:1e:00.0`."""
    match = re.fullmatch(r"(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", str(value).lower())
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}" if match else None


def identity(value: Any) -> str | None:
    """`0x74a1`, a number in hexadecimal with its prefix, which is not 0."""
    text = str(value).lower()
    return text if re.fullmatch(r"0x[0-9a-f]{1,16}", text) and int(text, 16) else None


def version(value: Any) -> str | None:
    """`6.12.12`; null for the banner of the kernel that some drivers give."""
    text = str(value)
    return text if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,8}){1,4}([-+~][\w.+~-]{1,32})?", text) else None


def arch(value: Any) -> str | None:
    """`gfx942`, `gfx1100`: three digits before generation 10, then four.

    ROCm 6.1 wrote the numbers of KFD in decimal: `gfx9010`, `gfx11000`.
    https://llvm.org/docs/AMDGPUUsage.html#processors
    """
    text = str(value).lower()
    return text if re.fullmatch(r"gfx(?:[6-9]|1[0-9])[0-9a-f]{2}", text) else None


def known(values: dict[str, Any]) -> dict[str, Any]:
    """`values` without those that are null."""
    return {key: value for key, value in values.items() if value is not None}

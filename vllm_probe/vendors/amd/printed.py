"""What amd-smi and rocm-smi print, as values: JSON behind warnings, and words that stand for unknown."""

import json
import re
from itertools import islice
from typing import Any

_MOST_BEGINNINGS = 8  # a warning may begin with a bracket too
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "MIB": 1 << 20, "GIB": 1 << 30}
_UNKNOWN = re.compile(r"(?i)\s*|n/?a\b.*|none|unknown|not supported|0x[0-9a-f]+|[0-9]+")


def json_behind(text: str) -> Any:
    """The first JSON object or list that begins a line, whatever stands before and behind it; null without one."""
    for match in islice(re.finditer(r"^[ \t]*(?=[{\[])", text, re.MULTILINE), _MOST_BEGINNINGS):
        try:
            return json.JSONDecoder().raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue
    return None


def number(value: Any) -> float | None:
    """The number in `3`, `"3.0"`, `"(96Mhz)"` or `{"value": 3, "unit": "W"}`; null for words and what is not finite."""
    if isinstance(value, dict):
        return number(value.get("value"))
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e18 else None
    match = re.fullmatch(r"\(?(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?[A-Za-z%/]{0,5}\)?", str(value).strip())
    return float(match[1]) if match else None


def size(value: Any) -> int | None:
    """Bytes of `{"value": 65520, "unit": "MB"}` or `65520 MB`, in which MB means MiB; of a bare number, MiB."""
    found = number(value)
    unit = value.get("unit") if isinstance(value, dict) else re.sub(r"[^A-Za-z]", "", str(value))
    scale = _SIZES.get(str(unit or "MB").upper())
    return int(found * scale) if found is not None and found >= 0 and scale else None


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
    """`gfx942`."""
    text = str(value).lower()
    return text if re.fullmatch(r"gfx[1-9][0-9a-f]{2,4}", text) else None


def known(values: dict[str, Any]) -> dict[str, Any]:
    """`values` without those that are null."""
    return {key: value for key, value in values.items() if value is not None}

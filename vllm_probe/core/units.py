"""Bytes, rates and counts between people and documents."""

import re

from vllm_probe.core.errors import BadUsage

GIB = 1 << 30
_FACTORS = {"": 1, "b": 1}
_FACTORS |= {f"{p}ib": 1 << (10 * i) for i, p in enumerate("kmgt", 1)}
_FACTORS |= {f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([a-z]{0,3})\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of `text`, a number with an optional KiB/MiB/GiB/TiB/KB/MB/GB/TB.

    Raises:
        BadUsage: anything else, zero included.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match[2].lower()) if match else None
    size = int(float(match[1]) * factor) if match and factor else 0
    if size <= 0:
        raise BadUsage(f"not a size: {text!r}", hint="give bytes or a number with a unit, such as 24GiB or 24GB")
    return size


def format_figure(value: float) -> str:
    """A rate or ratio for a person: three digits, or whole with thousands separators from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_rounded(value: float) -> str:
    """A figure that is not known to more than three digits: `14,400`, `0.123`."""
    return f"{float(f'{value:.3g}'):,.10g}"


def format_count(number: int | None, noun: str) -> str:
    """`1 core`, `2 cores`, `? cores`."""
    return f"{'?' if number is None else number} {noun if number == 1 else noun + 's'}"


def format_bytes(count: int | None) -> str:
    """`count` bytes for a person, in binary units; an unknown count is `?`."""
    if count is None:
        return "?"
    for exponent, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        size = 1 << (10 * exponent)
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"

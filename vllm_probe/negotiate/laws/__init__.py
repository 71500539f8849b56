"""Memory laws, support tables and device rules: data with sources, keyed by engine version and device type."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vllm_probe.core.errors import BadUsage

Row = Mapping[str, Any]


@cache
def table(name: str) -> dict[str, Any]:
    """The data file `name`."""
    return dict(json.loads((Path(__file__).parent / f"{name}.json").read_bytes()))


def device_row(device_type: str) -> tuple[str, Row]:
    """First name and rules of a device type; an unknown type has the cautious rules of `*`."""
    for name, row in table("devices").items():
        if device_type.lower() in (name, *row["also"]):
            return name, row
    return "*", table("devices")["*"]


def by_device(rows: Row, name: str) -> Row:
    """The entry of a device type, or that of every other one."""
    found: Row = rows.get(name, rows.get("*", {}))
    return found


def band(engine: str, version: str | None) -> tuple[str, Row, str | None]:
    """Engine version, its memory law, and a warning when the law was not fitted to that version.

    Raises:
        BadUsage: `version` is not a version number.
    """
    law = table(engine)
    wanted = version or law["newest"] or "0"
    number = version_number(wanted)
    bands = law["bands"]
    chosen = next((row for row in bands if number <= version_number(row["to"])), bands[-1])
    first, last = version_number(bands[0]["from"]), version_number(bands[-1]["to"])
    warning = None
    if not first <= number <= last:
        warning = (
            f"the memory law of {engine} {chosen['from']} to {chosen['to']} is used outside its range, for {wanted}"
        )
    return wanted, chosen, warning


def version_number(version: str) -> tuple[int, int]:
    """Major and minor number of an engine version.

    Raises:
        BadUsage: it is no version number.
    """
    parts = version.removeprefix("v").split(".")
    if not all(part.isdigit() for part in parts[:2]):
        raise BadUsage(f"not an engine version: {version!r}", hint="give a release such as --engine-version 0.33.0")
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0

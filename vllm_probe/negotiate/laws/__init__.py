"""Memory laws, support tables and device rules: data with sources, keyed by engine version and device type."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vllm_probe.core.releases import at_version, version_number
from vllm_probe.core.units import GIB

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
    steps = {name: at_version(rows, wanted) for name, rows in law.get("steps", {}).items()}
    first, last = version_number(bands[0]["from"]), version_number(bands[-1]["to"])
    warning = None
    if not first <= number <= last:
        warning = (
            f"the memory law of {engine} {chosen['from']} to {chosen['to']} is used outside its range, for {wanted}"
        )
    return wanted, {**chosen, **steps}, warning


def card_of(name: str) -> Row | None:
    """Device type, architecture and the memory that an engine sees of the card with that name, null when not known."""
    words = set(re.findall(r"[a-z]*\d+[a-z]*", name.lower()))
    return next((row for row in table("cards")["rows"] if all(_names(word, words) for word in row["words"])), None)


def _names(word: str, words: set[str]) -> bool:
    """Whether one of `words` is `word`, a size with its unit included."""
    return word in words or any(each.startswith(word) and each[len(word) :] in ("g", "gb", "d") for each in words)


def server_defaults(version: str, total_bytes: int, arch: str | None) -> dict[str, int]:
    """Tokens and sequences of a step that vLLM's server takes by default, as its options."""
    for row in table("vllm")["defaults"]:
        holds = total_bytes / GIB >= row["least_gib"] and arch not in row.get("but_arch", ())
        if holds and at_version([(row["to"], True), ("*", False)], version):
            return {"max_num_batched_tokens": row["tokens"], "max_num_seqs": row["seqs"]}
    raise AssertionError("the last row of the defaults holds always")

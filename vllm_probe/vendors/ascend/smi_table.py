"""The table of `npu-smi info`, in all its layouts: values are found by the words of its two header rows."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

Cells: TypeAlias = list[str]

_MIB = 1 << 20
_MOST_LINES = 4096
_HOTTEST = 199
_VALUES = re.compile(r"(?:[0-9]{1,9}|-|NA|N/A)\s*/\s*(?:[0-9]{1,9}|-|NA|N/A)(?=\s|$)|\S+")
"""A pair such as `2870 / 32768` or `1460/ 44280` is one value."""
_PAIR = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_STATUS = re.compile(r"\bret(?: is|=|:)\s{0,4}(-8[0-9]{3})\b")
_OF_CHIP = re.compile(
    r"\b(?:npu|card)(?: id)?[ :=]{1,4}([0-9]{1,3})\b(?:[ ,]{1,3}chip(?: id)?[ :=]{1,4}([0-9]{1,2})\b)?"
    r"[^\n]{0,120}?\bret(?: is|=|:)\s{0,4}(-8[0-9]{3})\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
BLANK = {"", "NA", "N/A", "[N/A]", "-", "--", "UNKNOWN", "ERR!"}
HEALTH = {"ok", "warning", "alarm", "critical"}


def parse_table(text: str) -> dict[str, Any]:
    """`devices`, one for each chip, in the form of DCMI's report.

    The pair below Hugepages-Usage is no memory of the device. Of Memory-Usage and HBM-Usage the second is the device's,
    unless its total is 0. A card of which the chip's row is missing is listed with what its own row says.
    """
    first, second, columns = Cells(), Cells(), Cells()
    devices: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] | None = None
    for cells in _rows(text):
        if "Health" in cells:
            first, second, columns = cells, [], []
        elif "Bus-Id" in cells:
            second = cells
        elif "Process id" in cells:
            columns, processes = cells, processes or []
        elif columns and processes is not None:
            processes += _process(columns, cells)
        elif first and second:
            _add(devices, first, second, cells)
    for device in devices if processes is not None else ():
        place = (device["card"], device.setdefault("chip", 0))
        device["processes"] = [each["row"] for each in processes or () if each["place"] == place]
    return {"devices": [{"chip": 0} | device for device in devices]}


def parse_error(text: str) -> int | None:
    """The status of DCMI that npu-smi says it failed with, null where it says none but those of single chips."""
    match = _STATUS.search(_OF_CHIP.sub("", text))
    return int(match[1]) if match else None


def parse_chip_errors(text: str) -> dict[tuple[int, int], int]:
    """By card and chip the status in lines such as `Failed to get temperature of npu 1 chip 0, ret is -8012`."""
    return {(int(card), int(chip or 0)): int(status) for card, chip, status in _OF_CHIP.findall(text)}


def address_of(text: str | None) -> str | None:
    """`0000:c1:00.0`, null for what is none."""
    found = (text or "").strip().lower()
    return found if _ADDRESS.fullmatch(found) else None


def number_of(text: str | None) -> float | None:
    """A number, null for `-`, `NA` and other words."""
    found = (text or "").strip()
    return float(found) if _NUMBER.fullmatch(found) else None


def celsius_of(text: str | None) -> float | None:
    """A temperature; 0 is what npu-smi prints where it has no reading, and what is above 199 is none."""
    number = number_of(text)
    return number if number and number <= _HOTTEST else None


def count_of(text: str | None) -> int | None:
    """A whole number, null for what is none."""
    number = number_of(text)
    return int(number) if number is not None and number == int(number) else None


def _rows(text: str) -> Iterator[Cells]:
    """Cells of each line between bars."""
    for line in islice(text.splitlines(), _MOST_LINES):
        stripped = line.strip()
        if stripped.startswith("|") and stripped.endswith("|") and len(stripped) > 1:
            yield [cell.strip() for cell in stripped[1:-1].split("|")]


def _named(head: Cells, cells: Cells) -> dict[str, str]:
    """Values by the word above them, in lower case and without its unit; what is too much belongs to the last."""
    found: dict[str, str] = {}
    for title, cell in zip(head, cells, strict=True):
        names = [re.sub(r"\(.*", "", name).lower() for name in title.split()]
        values = _VALUES.findall(cell)
        if names and len(values) > len(names):
            values[len(names) - 1 :] = [" ".join(values[len(names) - 1 :])]
        found |= dict(zip(names, values, strict=False))
    return found


def _add(devices: list[dict[str, Any]], first: Cells, second: Cells, cells: Cells) -> None:
    """A row of a card begins a device; one of a chip fills it, or begins the next chip of the same card."""
    at = second.index("Bus-Id")
    last = devices[-1] if devices else None
    bus = cells[at] if len(cells) == len(second) else None
    if bus is not None and last is not None and (address_of(bus) or ("chip" not in last and bus.upper() in BLANK)):
        known: dict[str, Any] = {key: last[key] for key in ("card", "name") if key in last}
        filled = known if "chip" in last else last
        filled |= _chip(_named(second, cells))
        if filled is known:
            devices.append(filled)
    elif len(cells) == len(first):
        card = _card(_named(first, cells))
        devices += [card] if card else []


def _card(values: dict[str, str]) -> dict[str, Any]:
    number, name, health = count_of(values.get("npu")), values.get("name"), values.get("health", "").lower()
    if number is None:
        return {}
    record: dict[str, Any] = {
        "card": number,
        "name": name if name and name.upper() not in BLANK and name.isprintable() else None,
        "health": health if health in HEALTH else None,
        "power_w": number_of(values.get("power")) or None,
        "temperature_c": celsius_of(values.get("temp")),
    }
    return {key: value for key, value in record.items() if value is not None}


def _chip(values: dict[str, str]) -> dict[str, Any]:
    usage = number_of(values.get("aicore"))
    record: dict[str, Any] = {
        "chip": count_of(values.get("chip")) or 0,
        "phy": count_of(values.get("phy-id", values.get("device"))),
        "id": address_of(values.get("bus-id")),
        "utilization": int(usage) if usage is not None and usage <= 100 else None,
        "memory": _memory(values.get("hbm-usage")) or _memory(values.get("memory-usage")),
    }
    return {key: value for key, value in record.items() if value is not None}


def _memory(text: str | None) -> dict[str, int] | None:
    pair = _PAIR.fullmatch(text or "")
    if pair is None or not int(pair[2]):
        return None
    return {"total": int(pair[2]) * _MIB, "used": int(pair[1]) * _MIB}


def _process(columns: Sequence[str], cells: Cells) -> Iterator[dict[str, Any]]:
    if len(cells) != len(columns):
        return
    by_name = dict(zip(columns, cells, strict=True))
    place = [count_of(word) for word in cells[0].split()]
    pid, held = count_of(by_name["Process id"]), count_of(by_name.get("Process memory(MB)"))
    if pid and len(place) == 2 and None not in place:
        yield {"place": tuple(place), "row": {"pid": pid, "bytes": held * _MIB if held else None, "kind": "compute"}}

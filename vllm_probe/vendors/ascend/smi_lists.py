"""What `npu-smi info` prints as `key : value` lines (`-t usages`, `board`, ..., and `-l`), and its map `-m`."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from vllm_probe.vendors.ascend.smi_table import BLANK, HEALTH, address_of, celsius_of, count_of, number_of

Pairs: TypeAlias = list[tuple[str, str]]

_MIB = 1 << 20
_MOST_LINES = 4096
_PAIR = re.compile(r"\s*([A-Za-z][A-Za-z0-9 _-]{1,48}?)\s*(?:\([^()\n]{1,12}\))?\s*:\s*(\S[^\n]{0,199})?")
_OF_ALL = {"npuid", "chipcount"}
_COLUMNS = re.compile(r"NPU ID|Chip ID|Chip Logic ID|Chip Phy-?\s?ID|Chip Name", re.IGNORECASE)
_KEYS = {
    "utilization": ("aicoreusagerate",),
    "ai_cores": ("aicorecount",),
    "aicore_clock_mhz": ("aicorecurfreq",),
    "aicore_clock_max_mhz": ("aicorefreq",),
    "temperature_c": ("nputemperature", "temperature"),
    "power_w": ("npurealtimepower", "powerdissipation"),
    "memory_clock_mhz": ("hbmclockspeed", "ddrclockspeed"),
}
"""Our names to keys without their unit, spaces and case; of several keys the first that has a number."""
_WORDS = {
    "name": "chipname",
    "npu_name": "npuname",
    "product": "producttype",
    "driver": "softwareversion",
    "firmware": "firmwareversion",
    "compatibility": "compatibility",
}


def parse_blocks(text: str) -> list[dict[str, Any]]:
    """Values of each chip in `npu-smi info -t ...`, in the form of DCMI's report.

    `Chip ID` ends the block of its chip; where nothing but the card stands before it, it begins it. Without one, all is
    chip 0. Blocks of a management controller are left out.
    """
    pairs = _pairs(text)
    card = next((count_of(value) for key, value in pairs if key == "npuid"), None)
    common = {"card": card} if card is not None else {}
    return [common | {"chip": chip} | _values(dict(block)) for chip, block in _split(pairs)]


def parse_list(text: str) -> list[tuple[int, int]]:
    """Cards of `npu-smi info -l`, each with how many chips it has."""
    found: list[tuple[int, int]] = []
    for key, value in _pairs(text):
        number = count_of(value)
        if key == "npuid" and number is not None:
            found.append((number, 1))
        elif key == "chipcount" and number and found:
            found[-1] = (found[-1][0], number)
    return found


def parse_map(text: str) -> list[dict[str, Any]]:
    """`card`, `chip`, `logic`, `name` and, where the map has it, `phy` of each NPU of `npu-smi info -m`."""
    columns: list[str] = []
    rows: list[dict[str, Any]] = []
    for line in islice(text.splitlines(), _MOST_LINES):
        heads = [re.sub(r"[^a-z]", "", word.lower()) for word in _COLUMNS.findall(line)]
        if {"npuid", "chipid", "chiplogicid"} <= set(heads):
            columns = [head for head in heads if head != "chipname"]
        elif columns:
            rows += _mapped(columns, line.split())
    return rows


def _mapped(columns: list[str], words: list[str]) -> Iterator[dict[str, Any]]:
    numbers = {column: count_of(word) for column, word in zip(columns, words, strict=False)}
    card, chip, logic = (numbers.get(key) for key in ("npuid", "chipid", "chiplogicid"))
    if card is None or chip is None or logic is None:  # `-` for a management controller
        return
    name, phy = " ".join(words[len(columns) :]), numbers.get("chipphyid")
    yield (
        {"card": card, "chip": chip, "logic": logic}
        | ({"phy": phy} if phy is not None else {})
        | ({"name": name} if name.upper() not in BLANK and name.isprintable() else {})
    )


def _pairs(text: str) -> Pairs:
    matches = (_PAIR.match(line) for line in islice(text.splitlines(), _MOST_LINES))
    return [(re.sub(r"[^a-z0-9]", "", match[1].lower()), (match[2] or "").strip()) for match in matches if match]


def _split(pairs: Pairs) -> Iterable[tuple[int, Pairs]]:
    own = [pair for pair in pairs if pair[0] not in _OF_ALL]
    places = [(i, count_of(value)) for i, (key, value) in enumerate(own) if key == "chipid"]
    chips = [(i, chip) for i, chip in places if chip is not None]
    if not chips:
        return [(0, own)] if own else []
    if chips[0][0] == 0:
        ends = [*(i for i, _ in chips[1:]), len(own)]
        blocks = [(chip, own[i + 1 : end]) for (i, chip), end in zip(chips, ends, strict=True)]
    else:
        begins = [0, *(i + 1 for i, _ in chips[:-1])]
        blocks = [(chip, own[begin:i]) for begin, (i, chip) in zip(begins, chips, strict=True)]
    return [(chip, block) for chip, block in blocks if ("chipname", "MCU") not in [(k, v.upper()) for k, v in block]]


def _values(block: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, keys in _KEYS.items():
        read = celsius_of if name == "temperature_c" else number_of
        number = next((each for key in keys if (each := read(block.get(key))) is not None), None)
        if number or (number == 0 and name == "utilization"):
            found[name] = number if name.endswith(("_w", "_c")) else int(number)
    if found.get("utilization", 0) > 100:
        del found["utilization"]
    for name, key in _WORDS.items():
        word = block.get(key, "")
        if word.upper() not in BLANK and word.isprintable():
            found[name] = word
    health = (block.get("health") or block.get("healthstatus") or "").lower()
    address, number_on_bus = address_of(block.get("pciebusinfo")), _pci_id(block)
    values = {"health": health if health in HEALTH else None, "id": address, "pci_id": number_on_bus}
    return found | {key: value for key, value in values.items() if value} | _memory(block)


def _pci_id(block: dict[str, str]) -> str | None:
    words = [re.fullmatch(r"0x([0-9a-f]{1,4})", block.get(f"pci{each}id", "").lower()) for each in ("vendor", "device")]
    return ":".join(f"{int(word[1], 16):04x}" for word in words if word) if all(words) else None


def _memory(block: dict[str, str]) -> dict[str, Any]:
    """Total bytes, and what the rate, a whole percentage, makes of them as used; a rate of 0 tells nothing."""
    for kind in ("hbm", "ddr", "memory"):
        capacity, rate = count_of(block.get(f"{kind}capacity")), number_of(block.get(f"{kind}usagerate"))
        if capacity:
            used = {"used": int(capacity * _MIB * rate / 100)} if rate and rate <= 100 else {}
            return {"memory": {"total": capacity * _MIB, **used}}
    return {}

"""What a user may call a model: any case, `org/` prefix, and suffixes that change tuning or number format only."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from vllm_probe.models import catalogue

_TUNING = re.compile(r"-(?:instruct|thinking|chat|it|pt|hf|base|\d{4}|\d{6}|\d{8}|20\d\d-\d\d(?:-\d\d)?)$")
_RELEASE = re.compile(r"-(?:thinking|[\d-]+)$")
_QUANTIZED = {
    r"-fp8(?:-dynamic|-block)?$": "fp8",
    r"-(?:quantized\.)?w8a8$": "w8a8",
    r"-(?:quantized\.)?w4a16$": "w4a16",
    r"-awq(?:-int4|-4bit)?$": "awq",
    r"-gptq(?:-int4|-4bit)?$": "gptq",
    r"-(?:gptq-int8|(?:quantized\.)?w8a16)$": "w8a16",
    r"-(?:nv)?fp4$": "nvfp4",
    r"-(?:unsloth-)?bnb-4bit$": "bitsandbytes",
}
MAX_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to understand a name.

    Attributes:
        base: lower-case name without prefix and the suffixes taken off.
        quantization: what a suffix says, `none` without one.
        release: the first suffix taken off that names another release, which may have another context or number
            format; empty without one.
    """

    base: str
    quantization: str = "none"
    release: str = ""


def readings(name: str) -> Iterator[Reading]:
    """Every way to understand `name`, the most literal first; a name too long to be one has none."""
    if len(name) > MAX_LENGTH:
        return
    base, quantization, release = name.rpartition("/")[2].lower(), "none", ""
    while base:
        yield Reading(base=base, quantization=quantization, release=release)
        shorter = _TUNING.sub("", base)
        dated = _RELEASE.fullmatch(base.removeprefix(shorter))
        release = release or (dated[0] if dated else "")
        for pattern, method in _QUANTIZED.items():
            if shorter == base and quantization == "none" and re.search(pattern, base):
                shorter, quantization = re.sub(pattern, "", base), method
        if shorter == base:
            return
        base = shorter


def find(name: str) -> tuple[str, Reading] | None:
    """The catalogue's name for `name` and the reading that led to it."""
    known = {entry.lower(): entry for entry in catalogue.entries()}
    for reading in readings(name):
        if entry := known.get(reading.base) or _aliases().get(reading.base) or _siblings().get(reading.base):
            return entry, reading
    return None


def only_member(name: str) -> str | None:
    """The one catalogue model of the family `name`; null for the name of a model, and for a larger family."""
    family = members(name) if find(name) is None else ()
    return family[0] if len(family) == 1 else None


def unaliased(name: str) -> str:
    """The catalogue's name of the model that has `name` as an alias, else `name`."""
    return _aliases().get(name, name)


@cache
def _aliases() -> dict[str, str]:
    return {alias: entry for entry, labels in catalogue.labels().items() for alias in labels.aliases}


@cache
def _siblings() -> dict[str, str]:
    return {sibling: entry for entry, labels in catalogue.labels().items() for sibling in labels.siblings}


def members(name: str) -> tuple[str, ...]:
    """Catalogue models of the family `name`, sorted; `qwen`, `qwen3-embedding` and `llama-3` are families too."""
    asked = name.lower()
    return tuple(
        entry
        for entry, labels in catalogue.labels().items()
        if asked in (labels.family, labels.family.rstrip("0123456789."))
        or (asked.startswith(labels.family) and entry.lower().startswith((f"{asked}-", f"{asked}.")))
    )


def near_misses(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three of `known` that look like `name`, the likest first."""
    from difflib import get_close_matches

    by_lower = {entry.lower(): entry for entry in known}
    bases = [reading.base for reading in readings(name)]
    found = [match for base in (*bases[:1], *bases[-1:]) for match in get_close_matches(base, by_lower, n=3)]
    return tuple(by_lower[match] for match in dict.fromkeys(found))[:3]

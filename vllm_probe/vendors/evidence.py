"""What several sources say of one device, brought together: the first that knows a value gives it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.layer0 import Reading

_TOLERANCE = 0.02
"""Two sources agree on a number that differs by less: they round, and read at different moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one source says of one device.

    Attributes:
        id: address of the device, as the other sources name it.
        source: where the values come from.
        facts: JSON pointer within the device to its value; only what is known.
        unknown: JSON pointer to why this source has no value where it should.
    """

    id: str
    source: str
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def combine(reading: Reading, evidence: Iterable[Evidence]) -> Reading:
    """`reading` with the facts of `evidence` about it, the best source first; all are better than the reading.

    Where sources disagree, `details.conflicts` holds what the others say.
    """
    device, unknown = reading
    document, gaps, conflicts = codec.to_json(device), dict(unknown), dict[str, list[dict[str, JsonValue]]]()
    taken: dict[str, JsonValue] = {}
    about = [each for each in evidence if each.id == device.id]
    for each in about:
        for pointer, value in each.facts.items():
            if pointer not in taken:
                taken[pointer] = value
                document["sources"][pointer] = each.source
                gaps.pop(pointer, None)
            elif not _agree(taken[pointer], value):
                conflicts.setdefault(pointer, []).append({"value": value, "source": each.source})
    for pointer, value in taken.items():
        _put(document, pointer.split("/")[1:], value)
    if conflicts:
        document["details"]["conflicts"] = conflicts
    reasons = {pointer: why for each in reversed(about) for pointer, why in each.unknown.items()}
    gaps |= {pointer: why for pointer, why in reasons.items() if _get(document, pointer.split("/")[1:]) is None}
    return codec.from_json(Device, document), gaps


def _agree(one: JsonValue, other: JsonValue) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return bool(one == other or (numbers and abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))))


def _get(document: JsonValue, path: Sequence[str]) -> JsonValue:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _put(document: JsonValue, path: Sequence[str], value: JsonValue) -> None:
    *folders, key = path
    for folder in folders:
        document = document.setdefault(folder, {})
    document[key] = value

"""Two capability documents, value by value."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.values import JsonValue

_ABOUT = {"schema_version", "created_at", "tool_version", "host_fingerprint", "unknown", "measurements"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that differs.

    Attributes:
        pointer: JSON pointer of the value; a curve is compared row count by row count, which ends the pointer.
        old: value of the first document, null where it has none.
        new: value of the second.
        ratio: new over old, null where one is no number or zero.
    """

    pointer: str
    old: JsonValue
    new: JsonValue
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What two documents say differently, without when and how they were made.

    Attributes:
        old: the first document.
        new: the second.
        same: number of values that are equal in both.
        changes: the others, by pointer.
    """

    old: str
    new: str
    same: int
    changes: tuple[Change, ...]


def compare(old_name: str, old: Capability, new_name: str, new: Capability) -> Difference:
    """What `new` says differently from `old`; a value that neither has is in neither list."""
    before, after = _values(old), _values(new)
    changed = [pointer for pointer in sorted(before | after, key=_order) if before.get(pointer) != after.get(pointer)]
    changes = tuple(_change(pointer, before.get(pointer), after.get(pointer)) for pointer in changed)
    return Difference(old=old_name, new=new_name, same=len(before | after) - len(changes), changes=changes)


def _change(pointer: str, old: JsonValue, new: JsonValue) -> Change:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) and value for value in (old, new))
    return Change(pointer=pointer, old=old, new=new, ratio=new / old if numbers else None)


def _order(pointer: str) -> list[str]:
    return [part.zfill(12) if part.isdigit() else part for part in pointer.split("/")]


def _values(capability: Capability) -> dict[str, JsonValue]:
    sections = {key: value for key, value in codec.to_json(capability).items() if key not in _ABOUT}
    return dict(_leaves(sections, ""))


def _leaves(value: Any, pointer: str) -> Iterator[tuple[str, JsonValue]]:
    """Pointer and value of everything that is there: no null, nothing empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, codec.join(pointer, key))
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for rows, *rest in value:
            yield codec.join(pointer, rows), rest[0] if len(rest) == 1 else rest
    elif value not in (None, []):
        yield pointer, value

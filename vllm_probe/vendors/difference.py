"""Two capability documents, value by value."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from vllm_probe.core import codec
from vllm_probe.core.capability import HELD_DOWN, Capability, Measurement
from vllm_probe.core.values import JsonValue

Outcome: TypeAlias = Literal["SAME", "FASTER", "SLOWER", "AMBIGUOUS"]

_ABOUT = {"schema_version", "created_at", "tool_version", "host_fingerprint", "unknown", "measurements"}
_THRESHOLD = 0.05
"""Smallest change that counts, as SuperBench's rule for a defect:
https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis."""
_FAILED = {"error", "unsupported"}
_QUANTITY = re.compile(r"[_/](gb_s|gflops|us|bytes|ratio|gain)$|^/cache/|curve/\d+$")
"""Pointers of rates, times, sizes and ratios; of a count, a list or a width the quotient says nothing."""
_LESS_IS_BETTER = "_alignment_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that differs.

    Attributes:
        pointer: JSON pointer of the value; a curve is compared row count by row count, which ends the pointer.
        old: value of the first document, null where it has none.
        new: value of the second.
        ratio: new over old of a rate, time or size, null where one is no number or zero, and for all else.
        outcome: whether a measured value became better, null where one of the two was not timed.
    """

    pointer: str
    old: JsonValue
    new: JsonValue
    ratio: float | None
    outcome: Outcome | None = None


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

    def outcomes(self) -> dict[Outcome, int]:
        """How many measured values had each outcome; equal ones are not counted."""
        count = Counter(change.outcome for change in self.changes)
        return {outcome: count[outcome] for outcome in get_args(Outcome)}


class _Leaf(NamedTuple):
    value: JsonValue
    about: Measurement | None


def compare(old_name: str, old: Capability, new_name: str, new: Capability) -> Difference:
    """What `new` says differently from `old`; a value that neither has is in neither list."""
    before, after = _values(old), _values(new)
    both = {
        pointer: tuple(
            leaves.get(pointer) or _Leaf(None, document.measurements.get(pointer))
            for leaves, document in ((before, old), (after, new))
        )
        for pointer in before | after
    }
    changed = sorted((pointer for pointer, (a, b) in both.items() if a.value != b.value), key=_order)
    changes = tuple(_change(pointer, *both[pointer]) for pointer in changed)
    return Difference(old=old_name, new=new_name, same=len(both) - len(changes), changes=changes)


def measured_in_both(found: Difference) -> Difference:
    """`found` without what one of the two does not have, except for what can be measured no more."""
    kept = (each for each in found.changes if each.outcome == "SLOWER" or (each.outcome and _is_in_both(each)))
    return replace(found, changes=tuple(kept))


def _is_in_both(change: Change) -> bool:
    return change.old is not None and change.new is not None


def _change(pointer: str, old: _Leaf, new: _Leaf) -> Change:
    was, now = _number(old.value), _number(new.value)
    ratio = now / was if was and now and _QUANTITY.search(pointer) else None
    return Change(
        pointer=pointer, old=old.value, new=new.value, ratio=ratio, outcome=_outcome(pointer, old, new, ratio)
    )


def _number(value: JsonValue) -> float | None:
    """The value, or the first of several that were timed together."""
    first = value[0] if isinstance(value, list) else value
    return first if isinstance(first, int | float) and not isinstance(first, bool) else None


def _outcome(pointer: str, old: _Leaf, new: _Leaf, ratio: float | None) -> Outcome | None:
    """Better or worse where the ranges of the rounds are further apart than the threshold.

    A value that is doubtful in either document is ambiguous unless it stays within the threshold. What holds down the
    device itself, as heat does, is no doubt about it. What cannot be measured any more is slower. A value that was not
    timed, as that of a data sheet, has no outcome.
    """
    if old.about is None or new.about is None or not old.about.samples:
        return None
    if new.value is None and old.about.status == "measured" and new.about.status in _FAILED:
        return "SLOWER"
    if new.value is not None and not new.about.samples:
        return None
    if ratio is None:
        return "AMBIGUOUS"
    gain = 1 / ratio if new.about.unit == "us" or pointer.endswith(_LESS_IS_BETTER) else ratio
    if abs(gain - 1) <= _THRESHOLD:
        return "SAME"
    uncertainty = (_half_range(old.about) + gain * _half_range(new.about)) / 100
    if (
        not (_is_sure(old.about) and (_is_sure(new.about) or (gain < 1 and _is_held_down(new.about))))
        or abs(gain - 1) - uncertainty <= _THRESHOLD
    ):
        return "AMBIGUOUS"
    return "FASTER" if gain > 1 else "SLOWER"


def _is_sure(about: Measurement) -> bool:
    return about.status == "measured"


def _is_held_down(about: Measurement) -> bool:
    return about.status == "throttled" and (about.reason or "").startswith(HELD_DOWN)


def _half_range(about: Measurement) -> float:
    return (about.spread_pct or 0.0) / 2


def _order(pointer: str) -> list[str]:
    return [part.zfill(12) if part.isdigit() else part for part in pointer.split("/")]


def _values(capability: Capability) -> dict[str, _Leaf]:
    sections = {key: value for key, value in codec.to_json(capability).items() if key not in _ABOUT}
    about = capability.measurements
    return {pointer: _Leaf(value, about.get(source)) for pointer, source, value in _leaves(sections, "")}


def _leaves(value: Any, pointer: str) -> Iterator[tuple[str, str, JsonValue]]:
    """Pointer by rows, pointer of the measurement, and value of everything that is there: no null, nothing empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, codec.join(pointer, key))
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for index, (rows, *rest) in enumerate(value):
            yield codec.join(pointer, rows), codec.join(pointer, index), rest[0] if len(rest) == 1 else rest
    elif value not in (None, []):
        yield pointer, pointer, value

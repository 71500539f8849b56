"""Whether a capability document says of each of its values how it was obtained, and nothing that cannot be."""

from collections.abc import Iterator

from vllm_probe.core import codec
from vllm_probe.core.schema import Violation, unknown_keys
from vllm_probe.core.values import JsonValue

SECTIONS = ("compute_units", "memory", "dma", "device", "weight_only", "cache", "execution", "primitives", "thermal")
"""Keys of a capability document that hold values, each of which has an entry in its `measurements`."""

_MOST_PCT = 105.0  # of the peak at the observed clock; beyond it the count of the work or the clock is wrong
_MOST_SPREAD_PCT = 10.0  # a load that is held may differ so much between its parts, no other test does
_MOST_OF_CURVE = 1.05  # what the best of a curve may be short of the rate that was measured at the best shape
_ABSENT: tuple[JsonValue, ...] = (None, [], {})


def unfounded(document: JsonValue) -> tuple[Violation, ...]:
    """Every place where a document that keeps its schema contradicts itself or leaves out how a value came about.

    Only of version 2 with `measurements`: reading requires none, and a document written by hand may leave them out.
    """
    notes = document.get("measurements")
    if not notes or not document.get("schema_version", "1.0").startswith("2."):
        return ()
    found = dict(_contradictions(notes, document))
    strangers = {each.pointer for each in unknown_keys("capability", document)}
    unknown = document.get("unknown") or {}
    for section in SECTIONS:
        for pointer, value in _leaves(document.get(section, {}), codec.join("", section)):
            if strangers.isdisjoint(_enclosing(pointer)):
                note = next((notes[each] for each in _enclosing(pointer) if each in notes), None)
                lack = _lack(value, note, unknown.get(pointer))
                found |= {pointer: lack} if lack and pointer not in found else {}
    return tuple(Violation(pointer, message) for pointer, message in sorted(found.items()))


def _lack(value: JsonValue, note: JsonValue, reason: str | None) -> str | None:
    """What is not said of `value`."""
    if value in _ABSENT:
        known = reason or (note and note.get("reason"))
        return None if known else "nothing, and neither `unknown` nor `measurements` gives the reason"
    return None if note else "`measurements` does not say how this value was obtained"


def _contradictions(notes: JsonValue, document: JsonValue) -> Iterator[tuple[str, str]]:
    """Pointers of `measurements` where what is said of a value cannot be, and why."""
    for pointer, note in notes.items():
        try:
            value = _at(document, pointer)
        except LookupError:
            yield pointer, "`measurements` describes this value, and there is none"
            continue
        if said := "; ".join([*_of_value(value, note["status"]), *_of_trust(note)]):
            yield pointer, said
    for dtype, unit in document.get("compute_units", {}).items():
        pointer = codec.join(codec.join("/compute_units", dtype), "throughput_gflops")
        rate, best = unit.get("throughput_gflops"), max((point[1] for point in unit.get("curve", ())), default=None)
        if rate and best and rate > _MOST_OF_CURVE * best and notes.get(pointer, {}).get("source") == "measured":
            yield pointer, f"{rate:g}, and no point of its curve is above {best:g}"


def _of_value(value: JsonValue, status: str) -> Iterator[str]:
    """What cannot be said of it."""
    if value in _ABSENT and status == "measured":
        yield f"nothing, and its status is {status}"
    elif isinstance(value, int | float | str) and status in {"unsupported", "error", "skipped"}:
        yield f"a value, and its status is {status}"


def _of_trust(note: JsonValue) -> Iterator[str]:
    """What of a note speaks against the trust that it states."""
    status, verdict = note["status"], note.get("verdict")
    if "suspect" in {status, verdict} and not note.get("reason"):
        yield "suspect, and no reason is given"
    if verdict == "suspect" and status == "measured":
        yield f"its verdict is {verdict}, and its status is {status}"
    if note.get("confidence") == "high":
        share, spread_pct = note.get("pct_of_peak") or 0.0, note.get("spread_pct") or 0.0
        found = (
            (status != "measured", f"its status is {status}"),
            (note.get("samples") == 0, "there are no samples"),
            (spread_pct > _MOST_SPREAD_PCT, f"rounds differ by {spread_pct:g} %"),
            (share > _MOST_PCT, f"it is {share:g} % of the peak at the observed clock"),
        )
        yield from (f"{reason}, and its confidence is high" for applies, reason in found if applies)


def _leaves(value: JsonValue, pointer: str) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, codec.join(pointer, key))
    else:
        yield pointer, value


def _enclosing(pointer: str) -> Iterator[str]:
    """`pointer` and those of what it stands in, the nearest first."""
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]


def _at(document: JsonValue, pointer: str) -> JsonValue:
    """What stands in `document` at `pointer`.

    Raises:
        LookupError: nothing does.
    """
    head, *parts = pointer.split("/")
    if head:
        raise LookupError(pointer)
    for part in parts:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and key.isdecimal():
            document = document[int(key)]
        elif isinstance(document, dict):
            document = document[key]
        else:
            raise LookupError(pointer)
    return document

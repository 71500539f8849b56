"""The rate of a number format that a descriptor is taken at its word for: sustained, or else of short runs."""

from typing import Literal, NamedTuple

from vllm_probe.core.capability import Capability


class Headline(NamedTuple):
    """A rate in 1e9 operations per second, and whether it lasts."""

    gflops: float
    kind: Literal["sustained", "burst"]


def headline(capability: Capability, word: str) -> Headline | None:
    """Rate of two matrices of a format: sustained, or burst where there is no other or none that can be believed."""
    unit = capability.compute_units.get(word)
    if unit and unit.sustained_gflops and not is_passed_over(capability, word):
        return Headline(unit.sustained_gflops, "sustained")
    return Headline(unit.throughput_gflops, "burst") if unit and unit.throughput_gflops else None


def is_passed_over(capability: Capability, word: str) -> bool:
    """Whether the sustained rate of a format is not believed: then neither is any other, so that they compare."""
    unit = capability.compute_units.get(word)
    if unit is None or not unit.sustained_gflops or not unit.throughput_gflops:
        return False
    return f"/compute_units/{word}/sustained_gflops" in capability.measurements and ratio_doubt(capability) is not None


def ratio_doubt(capability: Capability) -> str | None:
    """What is wrong with the ratio of sustained to burst that was measured in one format for others; null: nothing.

    Where the document says nothing of the ratio, what it says of the rates that were derived with it counts.
    """
    notes = capability.measurements
    derived = [
        note
        for word in capability.compute_units
        if (note := notes.get(f"/compute_units/{word}/sustained_gflops")) and note.source == "derived"
    ]
    ratio = notes.get("/thermal/ratio")
    for note in [ratio] if derived and ratio else derived:
        if note.status != "measured":
            return note.status
        if note.confidence == "low":
            return "low confidence"
    return None

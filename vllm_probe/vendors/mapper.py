"""ExecutionPrimitiveMapper: which implementation of a primitive is used, numerics first, measured speed second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which implementation of a primitive is used in one number format.

    Attributes:
        implementation: the fastest that computes correctly.
        second: the next fastest, null when no other was measured.
        ratio: how many times faster than it, null when no other was measured.
        refused: implementations that failed or were wrong, with the reason.
    """

    implementation: str
    second: str | None = None
    ratio: float | None = None
    refused: dict[str, str] = field(default_factory=dict)


def choose(candidates: Sequence[str], measurements: Mapping[str, float], refused: Mapping[str, str]) -> Choice:
    """The fastest of `candidates` that is not refused; the first of them where none is measured.

    Args:
        candidates: names in the order in which the adapter prefers them.
        measurements: seconds of the same work, by name.
        refused: why an implementation may not be used, by name.

    Raises:
        ArithmeticError: all of them are refused, or there are none.
    """
    correct = [name for name in candidates if name not in refused]
    if not correct:
        raise ArithmeticError("; ".join(f"{name}: {refused[name]}" for name in candidates) or "no implementation")
    ranking = sorted((name for name in correct if name in measurements), key=measurements.__getitem__) or correct
    kept = {name: refused[name] for name in candidates if name in refused}
    if len(ranking) < 2 or ranking[0] not in measurements:
        return Choice(implementation=ranking[0], refused=kept)
    first, second = ranking[:2]
    ratio = measurements[second] / measurements[first]
    return Choice(implementation=first, second=second, ratio=ratio, refused=kept)

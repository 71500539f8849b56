"""ExecutionPrimitiveMapper: which implementation of a primitive is used, numerics first, measured speed second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which implementation of a primitive is used in one number format.

    Attributes:
        implementation: the fastest that computes correctly, or the preferred one where none is clearly faster.
        second: the next fastest, null when no other was measured or the difference is not clear.
        ratio: how many times faster than it, null as well.
        refused: implementations that failed or were wrong, with the reason.
    """

    implementation: str
    second: str | None = None
    ratio: float | None = None
    refused: dict[str, str] = field(default_factory=dict)


def choose(
    candidates: Sequence[str], measurements: Mapping[str, float], refused: Mapping[str, str], apart: float = 0.0
) -> Choice:
    """The fastest of `candidates` that is not refused, where it is known to be faster than those preferred to it.

    One that was not measured, or is slower by no more than `apart`, keeps its place before it. The lead is stated only
    where it is larger.

    Args:
        candidates: names in the order in which the adapter prefers them.
        measurements: seconds of the same work, by name.
        refused: why an implementation may not be used, by name.
        apart: relative difference that tells nothing; infinite where the measurements tell nothing at all.

    Raises:
        ArithmeticError: all of them are refused, or there are none.
    """
    correct = [name for name in candidates if name not in refused]
    if not correct:
        raise ArithmeticError("; ".join(f"{name}: {refused[name]}" for name in candidates) or "no implementation")
    kept = {name: refused[name] for name in candidates if name in refused}
    times = {name: measurements[name] for name in correct if name in measurements}
    most = min(times.values(), default=0.0) * (1 + apart)
    chosen = next(name for name in correct if name not in times or times[name] <= most)
    others = sorted(times.keys() - {chosen}, key=times.__getitem__)
    if chosen not in times or not others or times[others[0]] <= times[chosen] * (1 + apart):
        return Choice(implementation=chosen, refused=kept)
    return Choice(implementation=chosen, second=others[0], ratio=times[others[0]] / times[chosen], refused=kept)

"""ExecutionPrimitiveMapper: the best of an adapter's implementations, numerics first, measured speed second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "int8": 0.0}
"""Largest relative error, |y - reference| / |reference| in the Frobenius norm, against float32 on the same operands.

Rounding the result alone costs about 0.4 units of roundoff: 2**-9 for bf16 and 2**-11 for fp16 and tf32 (IEEE 754
binary16; bfloat16 has 8 bits of significand), with room for partial sums kept in the format. fp32 allows for sums
in another order over 16384 terms, 128 * 2**-24. Integer products are exact.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was measured of one implementation.

    Attributes:
        error: relative error against float32, null when not looked at.
        seconds: time per call, null when not timed.
    """

    error: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The implementation to use.

    Attributes:
        name: its name, null when none is accurate enough.
        rejected: each of the others with the number that decided.
    """

    name: str | None
    rejected: dict[str, str]


def choose(candidates: Sequence[str], measurements: Mapping[str, Trial], tolerance: float) -> Selection:
    """The fastest of `candidates` whose error is at most `tolerance`.

    Candidates come in the adapter's order, which decides among those that were not timed; those that were go first.
    """
    trials = {name: measurements.get(name, Trial()) for name in candidates}
    rejected = {
        name: f"relative error {trial.error:.1e} is above {tolerance:.1e}"
        for name, trial in trials.items()
        if trial.error is not None and not trial.error <= tolerance
    }
    fit = [name for name in candidates if name not in rejected]
    best = min(fit, key=lambda name: (trials[name].seconds is None, trials[name].seconds or 0), default=None)
    fastest = trials[best].seconds if best else None
    for name in fit:
        seconds = trials[name].seconds
        timed = f"{seconds / fastest:.2f} times the time of {best}" if seconds and fastest else "not timed"
        rejected |= {name: timed} if name != best else {}
    return Selection(name=best, rejected=rejected)

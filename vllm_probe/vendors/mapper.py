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
        reason: why it won.
        rejected: the others, each with the number that decided.
    """

    name: str | None
    reason: str
    rejected: dict[str, str]


def choose(candidates: Sequence[str], measurements: Mapping[str, Trial], tolerance: float) -> Selection:
    """The fastest of `candidates` whose error is at most `tolerance`.

    Candidates come in the adapter's order, which holds among those that were not timed; a timed one goes before an
    untimed one.
    """
    trials = {name: measurements.get(name, Trial()) for name in candidates}
    wrong = {
        name: f"relative error {trial.error:.1e} is above {tolerance:.1e}"
        for name, trial in trials.items()
        if trial.error is not None and not trial.error <= tolerance
    }
    fit = sorted((name for name in candidates if name not in wrong), key=lambda name: _seconds(trials[name]))
    if not fit:
        return Selection(name=None, reason="no implementation is accurate enough", rejected=wrong)
    best, *others = fit
    seconds = trials[best].seconds
    reason = f"fastest measured, {seconds:.3g} s" if seconds is not None else "first in the adapter's order"
    slower = {name: _slower(trials[name], seconds) for name in others}
    return Selection(name=best, reason=reason, rejected=wrong | slower)


def _seconds(trial: Trial) -> float:
    return float("inf") if trial.seconds is None else trial.seconds


def _slower(trial: Trial, best: float | None) -> str:
    if trial.seconds is None or not best:
        return "not timed, and later in the adapter's order"
    return f"{trial.seconds / best:.2f} times the time of the winner"

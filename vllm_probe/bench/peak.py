"""Tells a plausible value from a slow and from an impossible one."""

from dataclasses import dataclass
from typing import NamedTuple

from vllm_probe.core.capability import Judgement
from vllm_probe.core.units import format_rounded

_TOLERANCE = 1.05
_LOW = 0.5
_SHORT = 0.95
"""Share of the lowest published value below which a device is slow, SuperBench's rule for a defect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a device should give in one measurement, in the unit of its value.

    Attributes:
        slowest: peak of the slowest such device, null when unknown.
        fastest: peak of the fastest such device, null when unknown.
        at_mhz: clock at which both hold; null for what does not depend on the clock of the compute units.
        is_own_clock: whether `at_mhz` is the clock of this device, not a bound for all.
        usual: least and most that was published for such devices.
        most: more than any device reaches, which tells nothing of this one; null when not even that is known.
    """

    slowest: float | None = None
    fastest: float | None = None
    at_mhz: float | None = None
    is_own_clock: bool = True
    usual: tuple[float, float] | None = None
    most: float | None = None

    def limits(self, clock_mhz: float | None) -> tuple[float | None, float | None]:
        """Lowest value that is normal, and the most that is possible, at the observed clock or else the known one.

        Unobserved, the clock may have been what others reached with it, which on boosting cards is over the data sheet.
        """
        scale = clock_mhz / self.at_mhz if clock_mhz and self.at_mhz else 1.0
        known = clock_mhz is not None or self.is_own_clock
        low = _SHORT * self.usual[0] if self.usual else None
        if low is None and self.slowest is not None and known:
            low = _LOW * self.slowest * scale
        if self.fastest is None or clock_mhz or not self.usual:
            return low, None if self.fastest is None else self.fastest * scale
        return low, max(self.fastest, self.usual[1])


class Judged(NamedTuple):
    """A verdict, null when nothing is known; what stands against trusting the value fully; the value over the peak."""

    verdict: Judgement | None
    doubt: str | None
    pct_of_peak: float | None


def judge(value: float, expected: Expected | None, clock_mhz: float | None = None) -> Judged:
    """Suspect above 105 % of the peak at the observed clock, low under what such devices give, else normal.

    Low is under 95 % of the least that was published, or under half of the peak of the slowest such device.
    """
    if expected and expected.most is not None and value > expected.most:
        return Judged("suspect", f"over the {format_rounded(expected.most)} that no device reaches", None)
    low, peak = expected.limits(clock_mhz) if expected else (None, None)
    if peak is None and low is None:
        return Judged(None, "no peak is known to check it against", None)
    share = None if peak is None else 100 * value / peak
    if peak is not None and value > _TOLERANCE * peak:
        return Judged("suspect", f"over the {format_rounded(peak)} that is possible", share)
    if low is None:
        return Judged(None, "the clock is not known", None)
    return (
        Judged("low", f"under the {format_rounded(low)} that such a device gives", share)
        if value < low
        else Judged("normal", None, share)
    )

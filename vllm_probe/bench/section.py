"""A section of the capability document: what it times, and how the readings become values."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.peak import Expected, judge
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import CONFIDENCES, STATUSES, Case, Reading, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement

_NAMED = 2
"""Points of a curve that are named as the worst."""


class Section(ABC):
    """Measurements that belong together, named as `--only` takes them; `readings` fills while they run."""

    name: ClassVar[str]

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        self.adapter = adapter
        self.plan = plan
        self.readings: dict[tuple[str, int], Reading] = {}

    @property
    def pending(self) -> Reading:
        """The reading of what has not run, with the reason."""
        return absent("skipped", self.plan.absence(self.name))

    @abstractmethod
    def total(self) -> int:
        """How many cases there will be."""

    @abstractmethod
    def batches(self) -> Iterator[Sequence[Case]]:
        """Cases to take turns with those of other sections; a batch may depend on the readings of those before."""

    @abstractmethod
    def write(self, sheet: Sheet) -> None:
        """Puts every value of the section on `sheet`, or why there is none."""

    @abstractmethod
    def restore(self, partial: Capability) -> None:
        """Takes up the finished readings of an interrupted run of the same device."""


def summary(best: Measurement, points: Mapping[str, Reading], gap: str = "") -> Measurement:
    """What holds for a curve as a whole: the facts of its best point, the sum of samples, and of which points why not.

    Of points in doubt the worst are named, and how many there are.
    """
    found = [reading.measurement for reading in points.values() if reading.value is not None]
    reasons = [f"{name}: {r.measurement.reason}" for name, r in points.items() if r.value is None]
    doubted = {
        n: r.measurement for n, r in points.items() if r.value is not None and r.measurement.status != "measured"
    }
    worst = sorted(doubted, key=lambda name: _badness(doubted[name]), reverse=True)[:_NAMED]
    named = [f"{name}: {', '.join(filter(None, [doubted[name].status, doubted[name].reason]))}" for name in worst]
    more = f"and {len(doubted) - _NAMED} more of {len(points)} points in doubt" if len(doubted) > _NAMED else ""
    return replace(
        best,
        status="noisy" if doubted else "measured",
        reason="; ".join(filter(None, [*reasons, *named, more, gap])) or None,
        method="each point has its own measurement, under its index",
        confidence=max((measurement.confidence or "low" for measurement in found), key=CONFIDENCES.index),
        samples=sum(measurement.samples or 0 for measurement in found),
        spread_pct=max(measurement.spread_pct or 0.0 for measurement in found),
    )


def _badness(about: Measurement) -> tuple[int, float]:
    return STATUSES.index(about.status), about.spread_pct or 0.0


def judged(value: float, about: Measurement, expected: Expected | None) -> Measurement:
    """`about` with the verdict on a value that was worked out from others, doubted where it is impossible."""
    found = judge(value, expected, about.clock_mhz)
    if found.verdict != "suspect":
        return replace(about, verdict=found.verdict, pct_of_peak=found.pct_of_peak)
    reason = "; ".join(filter(None, [found.doubt, about.reason]))
    return replace(about, status="suspect", reason=reason, confidence="low", verdict="suspect")

"""The rounds of one test: what each took, and which of them count."""

from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple, Self

from vllm_probe.bench.doubt import median_error
from vllm_probe.core.primitive import Telemetry

BUSY = 0.9
"""Least share of the processor time that the threads of a CPU test are to have."""


class Round(NamedTuple):
    """Seconds of a call in each batch, and the share of its threads' time that a CPU test had a processor for."""

    samples: list[float]
    share: float
    telemetry: list[Telemetry]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Those of one test, in order."""

    taken: list[Round] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.taken)

    def trusted(self, least: int) -> Self:
        """All, or where they lacked processor time those that did not, if they are at least so many."""
        calm = [each for each in self.taken if each.share >= BUSY]
        return self if self.share >= BUSY or len(calm) < least else type(self)(calm)

    @property
    def share(self) -> float:
        """Mean of their shares of the processor time."""
        return fmean(each.share for each in self.taken)

    @property
    def call_s(self) -> float:
        """Seconds of a call: the median of their medians."""
        return median(self._medians)

    @property
    def spread_pct(self) -> float:
        """How far their medians lie apart."""
        return 100 * (max(self._medians) - min(self._medians)) / self.call_s

    @property
    def error(self) -> float:
        """Relative standard error of the median of all samples."""
        return median_error([each.samples for each in self.taken])

    @property
    def samples(self) -> int:
        """Batches in all."""
        return sum(len(each.samples) for each in self.taken)

    @property
    def _medians(self) -> list[float]:
        return [median(each.samples) for each in self.taken]

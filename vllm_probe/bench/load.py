"""A sustained load, in batches so long that nothing cools between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from vllm_probe.bench.doubt import checked, doubt_of_timer
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import Work
from vllm_probe.bench.watch import Watch
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.primitive import Telemetry

_LONG = 10


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of load.

    Attributes:
        gflops: its rate.
        seconds: time that the device worked.
        readings: what it said of itself.
    """

    gflops: float
    seconds: float
    readings: Sequence[Telemetry]

    @property
    def clock_mhz(self) -> float | None:
        """Mean clock, null where nobody tells."""
        clocks = [reading.clock_mhz for reading in self.readings if reading.clock_mhz]
        return fmean(clocks) if clocks else None


class Load:
    """One operation, repeated in batches; `share` of its threads' time that a CPU test had a processor for.

    `timer` is what contradicts the times, once that was looked at.
    """

    def __init__(
        self, adapter: HardwareAdapter[Any], plan: BenchPlan, work: Work, processor_s: Callable[[], float]
    ) -> None:
        self._adapter, self._work, self._processor_s = adapter, work, processor_s
        self._watch, self._turn = Watch(adapter), 0
        once = self.batch(1)
        self._size = max(1, round(plan.batch_s / once))
        self._long = max(1, round(_LONG * plan.batch_s / once))
        self.worked_s = self.used_s = self.host_s = 0.0
        self.timer: str | None = None

    def batch(self, size: int | None = None) -> float:
        """Seconds of one call, averaged over a batch."""
        calls, size = self._work.calls, size or self._size
        chosen = [calls[(self._turn + i) % len(calls)] for i in range(size)]
        self._turn += size
        return checked(self._adapter.time_batch(chosen), size) / size

    def gflops(self, call_s: float) -> float:
        """Rate of a call that takes `call_s`."""
        return (self._work.amount or 0.0) / call_s / 1e9

    def run(self, seconds: float) -> Slice:
        """At least `seconds` of load, in batches so long that the pauses between them cool nothing."""
        worked_s, batches = 0.0, 0
        with self._watch() as readings:
            before, begin = self._processor_s(), self._adapter.clock()
            while worked_s < seconds:
                worked_s += self.batch(self._long) * self._long
                batches += 1
            self.used_s += self._processor_s() - before
            self.host_s += self._adapter.clock() - begin
        self.worked_s += worked_s
        return Slice(self.gflops(worked_s / (batches * self._long)), worked_s, readings)

    def confirm(self) -> None:
        """Looks at the result again, and whether the timer of the device contradicts the host's.

        Raises:
            ArithmeticError: the result is wrong.
        """
        if self._work.verify:
            self._work.verify()
        self.timer = doubt_of_timer(self._adapter, self._work.calls, self._size, self.worked_s, self.host_s)

    @property
    def share(self) -> float:
        """1 where the device is no CPU."""
        device = self._adapter.device
        threads = device.details.get("threads") if device.kind == "cpu" else None
        return self.used_s / (self.worked_s * threads) if threads and self.worked_s else 1.0

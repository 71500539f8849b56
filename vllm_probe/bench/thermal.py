"""Section of the burst against what the device keeps up: the fastest matrix product, run until its clock is steady.

Method: after a short idle 20 batches, of which the median of the five fastest is the burst; then load until the clock,
or where nobody tells it the rate, has stopped to fall; then a window in eight parts, over which the sustained rate is
taken (https://github.com/stas00/ml-engineering/tree/master/compute/accelerator/benchmarks, mamf-finder).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from vllm_probe.bench.compute import ComputeSection
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.load import Load, Slice
from vllm_probe.bench.peak import judge
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.rounds import BUSY
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import CONFIDENCES, Case, Reading, Work, absent
from vllm_probe.bench.watch import Seen, sum_up
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement, Status
from vllm_probe.core.values import COMPUTE_DTYPES

_IDLE_S = 0.25
_BURST, _FASTEST = 20, 5
_SLICE_S = 0.25
_STEADY_SLICES, _STEADY = 4, 0.01
_PARTS = 8
_SHORTEST_S, _LEAST_S = 1.0, 2.0
"""Of the window, and of what must be left for all of it."""

_SLOPE, _SPREAD_PCT = 0.01, 10.0
_FELL = 0.97
_FIELDS = ("burst_gflops", "sustained_gflops", "ratio", "seconds_to_throttle")


class ThermalSection(Section):
    """`/thermal`, and the sustained rate of the fastest format, from which those of the others follow."""

    name = "thermal"

    def __init__(
        self,
        adapter: HardwareAdapter[Any],
        plan: BenchPlan,
        compute: ComputeSection,
        processor_s: Callable[[], float] = time.process_time,
        idle: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(adapter, plan)
        self._compute = compute
        self._processor_s = processor_s
        self._idle = idle
        self._dtype: str | None = None
        self._begin = adapter.clock()

    def total(self) -> int:
        """One, that takes long."""
        return 1

    def batches(self) -> Iterator[Sequence[Case]]:
        """Last, since it heats the device."""
        yield from ((), (), ())
        yield [Case(key=("load", 0), title="sustained load", unit="GFLOP/s", prepare=self._measure)]

    def write(self, sheet: Sheet) -> None:
        """The four values, and the sustained rates of the formats."""
        failed = self.readings.get(("load", 0), self.pending)
        for name in _FIELDS:
            sheet.put(f"/thermal/{name}", *self.readings.get((name, 0), failed))
        units: dict[str, Any] = sheet.values.get("compute_units", {})
        ran = {dtype: rate for dtype, unit in units.items() if (rate := unit["throughput_gflops"]) is not None}
        if self._dtype:
            self._write_formats(sheet, self._dtype, ran)
        else:
            for dtype in ran:
                sheet.put(f"/compute_units/{dtype}/sustained_gflops", *failed)

    def restore(self, partial: Capability) -> None:
        """All of it."""
        abouts = {word: partial.measurements.get(f"/compute_units/{word}/sustained_gflops") for word in COMPUTE_DTYPES}
        own = [dtype for dtype, about in abouts.items() if about and about.samples]
        found = {name: about for name in _FIELDS if (about := partial.measurements.get(f"/thermal/{name}"))}
        if own and len(found) == len(_FIELDS) and partial.thermal.sustained_gflops is not None:
            self._dtype = own[0]
            self.readings |= {(name, 0): Reading(getattr(partial.thermal, name), a) for name, a in found.items()}
            self.readings["load", 0] = self.readings["sustained_gflops", 0]

    def _write_formats(self, sheet: Sheet, held: str, ran: Mapping[str, float]) -> None:
        """The rate of the format that was held; others in the same ratio to their burst, so that they compare."""
        (rate, about), (ratio, _) = (self.readings[name, 0] for name in ("sustained_gflops", "ratio"))
        for dtype, burst in ran.items():
            if dtype != held and ratio is not None:
                derived = Measurement(
                    source="derived",
                    status=about.status,
                    reason=f"its burst rate times {ratio:.3g}, the ratio that was measured in {held}",
                    confidence="low",
                    unit=about.unit,
                )
                sheet.put(f"/compute_units/{dtype}/sustained_gflops", ratio * burst, derived)
        sheet.put(f"/compute_units/{held}/sustained_gflops", rate, about)

    def _measure(self, divisor: int) -> Reading:
        if self._left_s() < _LEAST_S:
            return absent("skipped", "the time for bench was over")
        fastest = self._compute.fastest()
        if fastest is None:
            return absent("error", "no matrix product ran that could be repeated")
        form, rows = fastest
        work = form.prepare(rows, divisor)
        load = Load(self.adapter, self.plan, work, self._processor_s)
        self._idle(_IDLE_S)
        burst = load.gflops(median(sorted(load.batch() for _ in range(_BURST))[:_FASTEST]))
        load.worked_s = load.used_s = load.host_s = 0.0
        settling = self._settle(load)
        part_s = min(self.plan.sustained_s, max(self._left_s(), _SHORTEST_S)) / _PARTS
        window = [load.run(part_s) for _ in range(_PARTS)]
        load.confirm()
        self._dtype = form.dtype
        self._enter(work, burst, settling, window, load)
        return self.readings["sustained_gflops", 0]

    def _left_s(self) -> float:
        return self.plan.end_s - (self.adapter.clock() - self._begin)

    def _settle(self, load: Load) -> list[Slice]:
        """Load until four slices in a row are alike, or the time for it is over."""
        slices: list[Slice] = []
        most_s = min(self.plan.settle_s, max(self._left_s(), _LEAST_S) / 2)
        while sum(each.seconds for each in slices) < most_s and not _is_steady(slices):
            slices.append(load.run(_SLICE_S))
        return slices

    def _enter(self, work: Work, burst: float, settling: Sequence[Slice], window: Sequence[Slice], load: Load) -> None:
        """Readings from what was timed."""
        seen = sum_up([[*each.readings] for each in (*settling, *window)])
        rate = sum(each.gflops * each.seconds for each in window) / sum(each.seconds for each in window)
        expected = self.plan.expectations.compute(self._dtype or "")
        about = self._about(work, window, rate, seen, load)
        if settling and not _is_steady(settling):
            about = _doubted(about, f"the load had not become steady in {sum(s.seconds for s in settling):.1f} s")
        judged = judge(burst, expected, seen.highest_mhz)
        method = f"median of the {_FASTEST} fastest of {_BURST} batches after {_IDLE_S} s idle; {work.method}"
        first = replace(
            about,
            method=method,
            samples=_BURST,
            spread_pct=None,
            verdict=judged.verdict,
            pct_of_peak=judged.pct_of_peak,
        )
        if judged.verdict == "suspect":
            first = replace(_doubted(first, judged.doubt or ""), status="suspect", confidence="low")
        ratio = replace(about, unit=None, method="sustained over burst", verdict=None, pct_of_peak=None)
        self.readings["burst_gflops", 0] = Reading(burst, first)
        self.readings["sustained_gflops", 0] = Reading(rate, about)
        self.readings["ratio", 0] = Reading(rate / burst, ratio)
        self.readings["seconds_to_throttle", 0] = _time_to_fall([*settling, *window], burst, about, load.share)

    def _about(self, work: Work, window: Sequence[Slice], rate: float, seen: Seen, load: Load) -> Measurement:
        rates, window_s = [each.gflops for each in window], sum(each.seconds for each in window)
        slope, share = 1 - fmean(rates[_PARTS // 2 :]) / fmean(rates[: _PARTS // 2]), load.share
        spread_pct = 100 * (max(rates) - min(rates)) / median(rates)
        judged = judge(rate, self.plan.expectations.compute(self._dtype or ""), seen.highest_mhz)
        found = (
            (slope > _SLOPE, f"it still fell by {100 * slope:.1f} % from one half to the other"),
            (spread_pct > _SPREAD_PCT, f"its parts differ by {spread_pct:.1f} %"),
            (load.timer is not None, load.timer or ""),
            (share < BUSY, f"its threads had {100 * share:.0f} % of the processor time"),
            (seen.held_down is not None, seen.held_down or ""),
            (judged.doubt is not None, judged.doubt or ""),
        )
        doubts = [*work.doubts, *self.plan.timed_doubts, *(text for applies, text in found if applies)]
        status: Status = "noisy" if slope > _SLOPE or spread_pct > _SPREAD_PCT else "measured"
        if share < BUSY or seen.held_down:
            status = "throttled"
        if judged.verdict == "suspect" or load.timer:
            status = "suspect"
        return Measurement(
            source="measured",
            status=status,
            reason="; ".join(doubts) or None,
            confidence=CONFIDENCES[min(len(doubts), 2)] if status == "measured" else "low",
            verdict=judged.verdict,
            pct_of_peak=judged.pct_of_peak,
            unit="GFLOP/s",
            samples=len(window),
            spread_pct=spread_pct,
            method=f"{window_s:.1f} s in {_PARTS} parts once the load is steady; {work.method}",
            implementation=work.implementation,
            clock_mhz=seen.clock_mhz,
            lowest_clock_mhz=seen.lowest_mhz,
        )


def _signal(slices: Sequence[Slice]) -> list[float]:
    """Clocks where all are known, else rates."""
    clocks = [each.clock_mhz for each in slices]
    known = [clock for clock in clocks if clock is not None]
    return known if len(known) == len(clocks) else [each.gflops for each in slices]


def _is_steady(slices: Sequence[Slice]) -> bool:
    last = _signal(slices[-_STEADY_SLICES:])
    return len(last) == _STEADY_SLICES and max(last) - min(last) <= _STEADY * fmean(last)


def _doubted(about: Measurement, doubt: str) -> Measurement:
    """`about` with one more reason not to trust it."""
    less = CONFIDENCES[min(CONFIDENCES.index(about.confidence or "low") + 1, 2)]
    return replace(about, reason="; ".join(filter(None, [about.reason, doubt])), confidence=less)


def _time_to_fall(slices: Sequence[Slice], burst: float, about: Measurement, share: float) -> Reading:
    """Seconds of load until clock or rate fell under 97 % of its highest and stayed there."""
    signal, total_s = _signal(slices), sum(each.seconds for each in slices)
    by_clock = slices[0].clock_mhz is not None and signal != [each.gflops for each in slices]
    what = "clock" if by_clock else "rate"
    if not by_clock and share < BUSY:
        return absent("suspect", "nobody tells the clock, and other work took the processor: heat cannot be told apart")
    highest = max(signal) if by_clock else max(*signal, burst)
    fallen = [value < _FELL * highest for value in signal]
    if not fallen[-1]:
        return absent("skipped", f"the {what} did not stay under {100 * _FELL:.0f} % of its highest in {total_s:.1f} s")
    start = len(fallen) - fallen[::-1].index(False) if False in fallen else 0
    seconds = sum(each.seconds for each in slices[:start])
    method = f"until the {what} fell under {100 * _FELL:.0f} % of its highest for good"
    return Reading(seconds, replace(about, unit="s", method=method, verdict=None, pct_of_peak=None, spread_pct=None))

"""The timing core: warm-up, batches of a minimum duration, interleaved rounds, medians with their spread.

Method: a test gets at least three rounds that alternate with those of other tests, each made of batches that are
queued and synchronised once, over operands that take turns so that they are cold. The value is the median of the
round medians. More rounds follow until the standard error of the median is under 0.5 % or 2 s are spent; it is
noisy when that error stays over 1 % or the rounds differ by more than 5 %, on memory that other virtual machines share
by half of that. The highest rates get another round after everything else, so that slower drift is in their spread.
A CPU test whose threads got less than 90 % of the processor time, by a quota or by other processes, gets up to three
more rounds; it is throttled unless three of all had their time, which then count alone. Throttled is also one during
which heat or a processor quota held the device down.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from vllm_probe.bench.doubt import checked, describe, doubt_of_clock, doubt_of_timer, within_memory
from vllm_probe.bench.facts import software_of
from vllm_probe.bench.peak import Expected, judge
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.rounds import BUSY, Round, Rounds
from vllm_probe.bench.watch import Watch, sum_up
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Confidence, Measurement, Status

CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
STATUSES: tuple[Status, ...] = ("measured", "noisy", "throttled", "suspect")
"""Of a value, from the one to be trusted to the one that tells nothing."""

_WINDOW = 12
_CAP_S = 2.0
_SETTLED = 0.005
_NOISY = 0.01
_QUIET_PCT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operation, ready to be timed.

    Attributes:
        calls: the operation on each set of operands, which take turns.
        amount: floating-point operations or bytes of one call; null when the value is the microseconds of a call.
        method: what runs, with the FLOP or byte convention.
        implementation: name of the adapter's implementation.
        doubts: what lowers confidence.
        threads: threads of a processor that it keeps busy, null for all of the budget.
        timer: seconds of some of `calls`, null for the time that the device spends on them.
        noisy_pct: difference of the rounds from which the value is noisy.
        verify: looks at the result again after the last round, with operands that changed; tells what stays doubtful.
    """

    calls: Sequence[Callable[[], object]]
    amount: float | None
    method: str
    implementation: str | None = None
    doubts: tuple[str, ...] = ()
    threads: int | None = None
    timer: Callable[[Sequence[Callable[[], object]]], float] | None = None
    noisy_pct: float = 5.0
    verify: Callable[[], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One value to measure.

    Attributes:
        key: number format and rows, or the kind of memory access and 0.
        title: name for people.
        unit: unit of the value: 1e9 amounts per second, or microseconds.
        prepare: makes the work with operands divided by 1, 2, 4 or 8, as memory allows; or measures by itself.
        expected: what such a device should give, null when unknown.
        optional: left out when time is short.
        share: part of the usual time of a round, and of the rounds that may follow, that it gets.
        is_late: whether it may still begin when other optional tests may not.
        again: one more round of a test that was timed earlier, which shows what changed meanwhile.
    """

    key: tuple[str, int]
    title: str
    unit: str
    prepare: "Callable[[int], Work | Reading]"
    expected: Expected | None = None
    optional: bool = False
    share: float = 1.0
    is_late: bool = False
    again: bool = False


class Reading(NamedTuple):
    """A value, null when there is none, and how it was obtained."""

    value: float | None
    measurement: Measurement


@dataclass(slots=True)
class _Entry:
    case: Case
    work: Work | None = None
    call_s: float = 0.0
    turn: int = 0
    rounds: Rounds = field(default_factory=Rounds)
    timed_s: float = 0.0
    host_s: float = 0.0
    unsure: str | None = None
    timer: str | None = None


class Stopwatch:
    """Times tests on one adapter within a plan's limits, which count from its creation."""

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        self._adapter = adapter
        self._watch = Watch(adapter)
        self._plan = plan
        self._start = adapter.clock()
        self._waiting = 0.0
        self._live: deque[_Entry] = deque()
        self._running: _Entry | None = None
        self._timed: dict[tuple[str, int], _Entry] = {}
        self._software = ", ".join(f"{name} {version}" for name, version in sorted(software_of(adapter).items()))

    def run(self, cases: Sequence[Case], begin: Callable[[Case], None]) -> Iterator[tuple[Case, Reading]]:
        """Tests with their readings in the order in which they finish; `begin` is told of every round.

        At most twelve tests take turns at a time. A test that fails is a reading with status `error`. One that is to
        run `again` has no reading where it did not run before, or its time is over.
        """
        pending, live = deque(cases), self._live
        while pending or live:
            if pending and pending[0].again:
                yield from self._once_more(pending.popleft(), begin)
                continue
            entry = _Entry(pending.popleft()) if pending and len(live) < _WINDOW else live.popleft()
            self._waiting = math.fsum(case.share for case in pending)
            begin(entry.case)
            self._running = entry
            reading = self._turn(entry)
            if reading is None:
                live.append(entry)
            else:
                if reading.value is not None:
                    self._timed[entry.case.key] = entry
                yield entry.case, reading

    def _once_more(self, case: Case, begin: Callable[[Case], None]) -> Iterator[tuple[Case, Reading]]:
        entry = self._timed.get(case.key)
        if entry is None or entry.work is None or not entry.rounds or self._elapsed_s() > self._plan.late_s:
            return
        begin(case)
        self._running = None  # what it gave before stays
        try:
            self._round(entry, entry.work)
            yield case, self._reading(entry, entry.work)
        except (Exception, SystemExit) as error:  # noqa: BLE001 one failing test never loses another's result
            yield case, absent("error", describe(error))

    def given_up(self, why: str) -> list[tuple[Case, Reading]]:
        """For another thread, when the test that runs does not end: its error, and what the others gave until then."""
        running = [(self._running.case, absent("error", why))] if self._running else []
        return running + [
            (entry.case, self._interrupted(entry, entry.work, why)) for entry in [*self._live] if entry.work
        ]

    def _interrupted(self, entry: _Entry, work: Work, why: str) -> Reading:
        if not entry.rounds:
            return absent("skipped", f"had no round: {why}")
        value, about = self._reading(entry, work)
        reason = "; ".join(filter(None, [f"interrupted after {len(entry.rounds)} rounds: {why}", about.reason]))
        status = "noisy" if about.status == "measured" else about.status
        return Reading(value, replace(about, status=status, confidence="low", reason=reason))

    def _elapsed_s(self) -> float:
        return self._adapter.clock() - self._start

    def _turn(self, entry: _Entry) -> Reading | None:
        plan = self._plan
        try:
            elapsed_s = self._elapsed_s()
            left_s = (plan.late_s if entry.case.is_late else plan.soft_s) - elapsed_s
            if elapsed_s > plan.hard_s or (left_s <= 0 and entry.case.optional and entry.work is None):
                return absent("skipped", "the time for bench was over")
            if entry.work is None:
                prepared = within_memory(entry.case.prepare)
                if isinstance(prepared, Reading):
                    return prepared
                entry.work = prepared
                self._warm_up(entry, entry.work)
                needed_s = plan.rounds * entry.call_s
                most_s = left_s if entry.case.optional else plan.end_s - elapsed_s
                if entry.call_s > plan.round_s and needed_s > most_s:
                    return absent("skipped", f"needs {needed_s:.1f} s of the {most_s:.1f} s left")
            self._round(entry, entry.work)
            return self._confirmed(entry, entry.work) if self._is_enough(entry, left_s) else None
        except (Exception, SystemExit) as error:  # noqa: BLE001 one failing test never loses another's result
            return absent("error", describe(error))

    def _confirmed(self, entry: _Entry, work: Work) -> Reading:
        entry.unsure = work.verify() if work.verify else None
        if not work.timer:
            size = self._batch_size(entry)
            entry.timer = doubt_of_timer(self._adapter, work.calls, size, entry.timed_s, entry.host_s)
        return self._reading(entry, work)

    def _warm_up(self, entry: _Entry, work: Work) -> None:
        entry.call_s = self._batch(entry, work, 1)
        if entry.call_s < 4 * self._plan.round_s:
            for _ in range(2):
                entry.call_s = self._batch(entry, work, self._batch_size(entry))

    def _round(self, entry: _Entry, work: Work) -> None:
        size, round_s = self._batch_size(entry), self._plan.round_s * entry.case.share
        if entry.call_s < round_s:
            self._batch(entry, work, size)  # what ran before left its own data in the caches
        samples: list[float] = []
        with self._watch() as readings:
            before_s, host_s = self._adapter.processor_s(), self._adapter.clock()
            while math.fsum(samples) * size < round_s:
                samples.append(self._batch(entry, work, size))
            processor_s = self._adapter.processor_s() - before_s
            entry.host_s += self._adapter.clock() - host_s
        timed_s = math.fsum(samples) * size
        entry.timed_s += timed_s
        entry.rounds.taken.append(Round(samples, self._share(work, processor_s / timed_s), readings))

    def _batch_size(self, entry: _Entry) -> int:
        return max(1, math.ceil(self._plan.batch_s / entry.call_s))

    def _batch(self, entry: _Entry, work: Work, size: int) -> float:
        """Seconds of one call, averaged over a batch of `size`."""
        calls = [work.calls[(entry.turn + i) % len(work.calls)] for i in range(size)]
        entry.turn += size
        return checked((work.timer or self._adapter.time_batch)(calls), size) / size

    def _is_enough(self, entry: _Entry, left_s: float) -> bool:
        rounds, plan = len(entry.rounds), self._plan
        if rounds < plan.rounds:
            return False
        others_s = 2 * self._waiting * plan.rounds * plan.round_s
        if entry.timed_s >= _CAP_S or left_s < others_s:
            return True
        trusted = entry.rounds.trusted(plan.rounds)
        is_calm = trusted.share >= BUSY
        most = max(plan.most_rounds * entry.case.share, plan.rounds) + (0 if is_calm else plan.rounds)
        return rounds >= most or (is_calm and trusted.error < _SETTLED)

    def _share(self, work: Work, processors: float) -> float:
        """Of its threads, `processors` of which ran on average, in a CPU test; 1 elsewhere."""
        device = self._adapter.device
        budget = device.details.get("threads") if device.kind == "cpu" else None
        threads = budget and (work.threads or budget)
        return processors / threads if threads else 1.0

    def _reading(self, entry: _Entry, work: Work) -> Reading:
        rounds = entry.rounds.trusted(self._plan.rounds)
        left_out = len(entry.rounds) - len(rounds)
        value = rounds.call_s * 1e6 if work.amount is None else work.amount / rounds.call_s / 1e9
        share, spread_pct, error = rounds.share, rounds.spread_pct, rounds.error
        seen = sum_up([each.telemetry for each in rounds.taken])
        judged = judge(value, entry.case.expected, seen.highest_mhz)
        held: Status | None = "throttled" if share < BUSY or seen.held_down else None
        wrong: Status | None = "suspect" if judged.verdict == "suspect" or entry.timer is not None else held
        found = (
            (spread_pct >= _QUIET_PCT, f"rounds differ by {spread_pct:.1f} %"),
            (error >= _SETTLED and not wrong, f"chance alone moves the median by {100 * error:.1f} %"),
            (share < BUSY, f"its threads had {100 * share:.0f} % of the processor time"),
            (left_out > 0, f"{left_out} of {len(entry.rounds)} rounds lacked processor time and are left out"),
            (seen.held_down is not None, seen.held_down or ""),
        )
        told = (judged.doubt, entry.unsure, entry.timer, doubt_of_clock(seen.clock_mhz, entry.case.expected))
        standing = self._plan.doubts if work.timer else self._plan.timed_doubts
        all_doubts = (*work.doubts, *standing, *(text for applies, text in found if applies), *filter(None, told))
        doubts = [*dict.fromkeys(all_doubts)]
        status: Status = wrong or ("noisy" if spread_pct > work.noisy_pct or error >= _NOISY else "measured")
        measurement = Measurement(
            source="measured",
            status=status,
            reason="; ".join(doubts) or None,
            confidence=CONFIDENCES[min(len(doubts), 2)] if status == "measured" else "low",
            verdict=judged.verdict,
            pct_of_peak=judged.pct_of_peak,
            unit=entry.case.unit,
            samples=rounds.samples,
            spread_pct=spread_pct,
            method=f"{work.method}; {self._software}",
            implementation=work.implementation,
            clock_mhz=seen.clock_mhz,
            lowest_clock_mhz=seen.lowest_mhz,
        )
        return Reading(value, measurement)


def absent(status: Status, reason: str) -> Reading:
    """A reading without a value."""
    return Reading(None, Measurement(source="measured", status=status, reason=reason))

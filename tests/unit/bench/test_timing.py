from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from tests.unit.bench.fake import FakeAdapter, cpu, prepared
from vllm_probe.bench.peak import Expected
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.timing import Case, Reading, Stopwatch, Work, absent
from vllm_probe.core.capability import Measurement

PLAN = make_plan(cpu(), quick=False, only=frozenset())
EXPECTED = Expected(slowest=90.0, fastest=100.0)


def case(adapter: FakeAdapter, name: str = "a", gflops: float = 95.0, doubts: tuple[str, ...] = ()) -> Case:
    def call() -> None:
        adapter._work(name, 1e9 / gflops)

    prepared = Work(calls=(call,), amount=1e9, method="1 GFLOP", doubts=doubts)
    return Case(key=(name, 0), title=name, unit="GFLOP/s", prepare=lambda divisor: prepared, expected=EXPECTED)


def run(adapter: FakeAdapter, cases: Sequence[Case], plan: BenchPlan = PLAN, busy: float = 1.0) -> dict[str, Reading]:
    adapter.busy = busy
    return {case.key[0]: reading for case, reading in Stopwatch(adapter, plan).run(cases, lambda case: None)}


def every(period: int, factor: float) -> Callable[[int], float]:
    return lambda batch: factor if batch % period == 0 else 1.0


def test_a_quiet_plausible_rate_is_measured_with_high_confidence() -> None:
    adapter = FakeAdapter()
    value, measurement = run(adapter, [case(adapter)])["a"]
    assert value == pytest.approx(95.0)
    assert (measurement.status, measurement.confidence, measurement.verdict) == ("measured", "high", "normal")
    assert measurement.samples == 3 * 9  # rounds of 90 ms, calls of 10.5 ms
    assert measurement.reason is None


def test_rounds_of_several_tests_alternate() -> None:
    adapter = FakeAdapter()
    run(adapter, [case(adapter, name) for name in "abc"])
    order = [name for i, name in enumerate(adapter.ran) if i == 0 or adapter.ran[i - 1] != name]
    assert order == list("abc" * 3)


def test_short_calls_are_batched_and_operands_take_turns() -> None:
    adapter = FakeAdapter()
    used: list[int] = []

    def call(operand: int) -> None:
        used.append(operand)
        adapter._work("a", 1e6)

    work = Work(calls=[partial(call, operand) for operand in range(3)], amount=95e6, method="")
    run(adapter, [Case(key=("a", 0), title="a", unit="", prepare=lambda divisor: work, expected=EXPECTED)])
    assert adapter.batches < len(used) / 4
    assert used[:7] == [0, 1, 2, 0, 1, 2, 0]


def test_an_impossible_rate_is_suspect_and_never_trusted() -> None:
    adapter = FakeAdapter()
    _, measurement = run(adapter, [case(adapter, gflops=106.0)])["a"]
    assert (measurement.status, measurement.verdict, measurement.confidence) == ("suspect", "suspect", "low")


def test_rounds_that_differ_are_noisy_after_more_rounds_than_usual() -> None:
    adapter = FakeAdapter()
    adapter.slowness = lambda batch: 1.0 + 0.1 * (batch // 10 % 2)
    _, measurement = run(adapter, [case(adapter)])["a"]
    assert (measurement.status, measurement.confidence) == ("noisy", "low")
    assert measurement.spread_pct == pytest.approx(10, abs=1)
    assert "rounds differ" in (measurement.reason or "")


def test_a_single_slow_batch_does_not_move_the_value() -> None:
    adapter = FakeAdapter()
    adapter.slowness = every(7, 30.0)
    value, _ = run(adapter, [case(adapter)])["a"]
    assert value == pytest.approx(95.0)


def test_threads_without_processor_time_mean_throttled() -> None:
    adapter = FakeAdapter()
    _, measurement = run(adapter, [case(adapter)], busy=0.5)["a"]
    assert (measurement.status, measurement.confidence) == ("throttled", "low")
    assert "its threads had 50 % of the processor time" in (measurement.reason or "")


@pytest.mark.parametrize(
    ("gflops", "busy", "status", "is_said"),
    [(95.0, 1.0, "noisy", True), (95.0, 0.5, "throttled", False), (300.0, 1.0, "suspect", False)],
)
def test_how_sure_the_median_is_by_chance_is_said_of_no_value_that_is_wrong_for_another_cause(
    gflops: float, busy: float, status: str, is_said: bool
) -> None:
    adapter = FakeAdapter()
    adapter.slowness = every(2, 1.3)
    _, about = run(adapter, [case(adapter, gflops=gflops)], busy=busy)["a"]
    assert about.status == status
    assert ("chance alone moves the median" in (about.reason or "")) == is_said


def disturbed(most: int) -> tuple[float | None, Measurement]:
    """A reading of which the first `most` rounds run on half of their threads, half as fast."""
    adapter = FakeAdapter()

    def share(_: str) -> None:
        adapter.busy = 0.5 if adapter.batches < 3 + 6 * most else 1.0

    adapter.before = share
    adapter.slowness = lambda batch: 1 / adapter.busy
    return run(adapter, [case(adapter)])["a"]


def test_rounds_without_processor_time_are_left_out_where_three_others_follow() -> None:
    value, about = disturbed(2)
    assert value == pytest.approx(95.0)
    assert (about.status, about.confidence) == ("measured", "medium")
    assert about.reason == "2 of 5 rounds lacked processor time and are left out"


def test_a_load_that_stays_gets_three_more_rounds_and_is_throttled() -> None:
    value, about = disturbed(100)
    assert value == pytest.approx(47.5)
    assert (about.status, about.confidence) == ("throttled", "low")


def test_each_doubt_lowers_confidence() -> None:
    adapter = FakeAdapter()
    found = run(adapter, [case(adapter, "one", doubts=("x",)), case(adapter, "two", doubts=("x", "y"))])
    assert (found["one"].measurement.confidence, found["two"].measurement.confidence) == ("medium", "low")


def test_a_failing_test_is_an_error_and_the_others_go_on() -> None:
    adapter = FakeAdapter()

    def explode(operation: str) -> None:
        if operation == "bad":
            raise ValueError("no kernel\nsecond line")

    adapter.before = explode
    found = run(adapter, [case(adapter, "bad"), case(adapter, "good")])
    assert found["bad"] == absent("error", "ValueError: no kernel")
    assert found["good"].value == pytest.approx(95.0)


def test_a_clock_that_stands_still_is_an_error() -> None:
    adapter = FakeAdapter()
    adapter.slowness = lambda batch: 0.0
    assert run(adapter, [case(adapter)])["a"].measurement.status == "error"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), RuntimeError("OUT_OF_MEMORY")]
)
def test_out_of_memory_halves_the_operands(error: Exception) -> None:
    adapter = FakeAdapter()
    usual = case(adapter)
    asked: list[int] = []

    def prepare(divisor: int) -> Work:
        asked.append(divisor)
        if divisor < 4:
            raise error
        return prepared(usual, divisor)

    assert run(adapter, [replace(usual, prepare=prepare)])["a"].value == pytest.approx(95.0)
    assert asked == [1, 2, 4]


def test_memory_that_never_suffices_is_an_error() -> None:
    adapter = FakeAdapter()

    def prepare(divisor: int) -> Work:
        raise MemoryError(f"divided by {divisor}")

    reading = run(adapter, [replace(case(adapter), prepare=prepare)])["a"]
    assert reading == absent("error", "MemoryError: divided by 8")


def test_a_long_call_that_does_not_fit_is_skipped_with_both_times() -> None:
    adapter = FakeAdapter()
    plan = replace(PLAN, soft_s=5.0)
    long = case(adapter, gflops=0.5)
    assert run(adapter, [long], plan)["a"].value == pytest.approx(0.5)
    reading = run(adapter, [replace(long, optional=True)], plan)["a"]
    assert reading.measurement.status == "skipped"
    assert (reading.measurement.reason or "").startswith("needs 6.0 s of the ")


def test_when_the_time_is_over_no_optional_test_begins() -> None:
    adapter = FakeAdapter()
    cases = [case(adapter, "needed"), replace(case(adapter, "curve"), optional=True)]
    found = run(adapter, cases, replace(PLAN, soft_s=0.0))
    assert found["needed"].value == pytest.approx(95.0)
    assert found["curve"] == absent("skipped", "the time for bench was over")
    assert "curve" not in adapter.ran


def test_after_the_hard_stop_nothing_runs() -> None:
    adapter = FakeAdapter()
    reading = run(adapter, [case(adapter)], replace(PLAN, soft_s=-1.0, hard_s=-1.0))["a"]
    assert reading == absent("skipped", "the time for bench was over")
    assert adapter.batches == 0


def test_a_test_of_which_only_a_rank_is_wanted_gets_its_share_of_the_time() -> None:
    adapter = FakeAdapter()
    found = run(adapter, [case(adapter, "whole"), replace(case(adapter, "third"), share=1 / 3)])
    assert [found[name].measurement.samples for name in ("whole", "third")] == [3 * 9, 3 * 3]


def test_a_late_test_may_begin_after_the_other_optional_ones() -> None:
    adapter = FakeAdapter()
    late = replace(case(adapter, "late"), optional=True, is_late=True)
    plan = replace(PLAN, soft_s=0.0, late_s=60.0)
    found = run(adapter, [replace(case(adapter, "curve"), optional=True), late], plan)
    assert found["curve"] == absent("skipped", "the time for bench was over")
    assert found["late"].value == pytest.approx(95.0)
    assert run(adapter, [late], replace(plan, late_s=0.0))["late"] == absent("skipped", "the time for bench was over")


def test_an_unsettled_median_is_followed_by_more_rounds_only_where_the_value_counts() -> None:
    adapter = FakeAdapter()
    adapter.slowness = lambda batch: 1.0 + 0.1 * (batch % 3)
    samples = {}
    for share in (1.0, 0.5):
        adapter.batches = 0
        samples[share] = run(adapter, [replace(case(adapter), share=share)])["a"].measurement.samples
    assert samples == {1.0: PLAN.most_rounds * 8, 0.5: PLAN.rounds * 4}


@pytest.mark.parametrize(
    ("threads", "work_threads", "status"), [(2, None, "throttled"), (2, 1, "measured"), (None, 1, "measured")]
)
def test_work_on_one_thread_needs_the_time_of_one_and_no_budget_means_no_judgement(
    threads: int | None, work_threads: int | None, status: str
) -> None:
    adapter = FakeAdapter(cpu(threads=threads))
    work = Work(calls=(lambda: adapter._work("a", 1e7),), amount=1e9, method="a", threads=work_threads)
    case = Case(key=("a", 0), title="a", unit="GFLOP/s", prepare=lambda divisor: work)
    adapter.busy = 0.5 if threads else 0.0
    ((_, reading),) = Stopwatch(adapter, PLAN).run([case], lambda case: None)
    assert reading.measurement.status == status


def test_a_timer_of_the_work_replaces_that_of_the_device() -> None:
    adapter = FakeAdapter()

    def timer(calls: Sequence[Callable[[], object]]) -> float:
        adapter._now += 2.0 * len(calls)
        return 2.0 * len(calls)

    work = Work(calls=(lambda: None,), amount=None, method="a", timer=timer)
    case = Case(key=("a", 0), title="a", unit="us", prepare=lambda divisor: work)
    ((_, reading),) = Stopwatch(adapter, PLAN).run([case], lambda case: None)
    assert reading.value == pytest.approx(2e6)


def test_one_more_round_shows_what_changed_meanwhile() -> None:
    adapter = FakeAdapter()
    found = case(adapter)
    stopwatch = Stopwatch(adapter, PLAN)
    ((_, first),) = stopwatch.run([found], lambda case: None)
    adapter.slowness = lambda batch: 1.2
    ((_, second),) = stopwatch.run([replace(found, again=True)], lambda case: None)
    assert (first.measurement.status, second.measurement.status) == ("measured", "noisy")
    assert second.value == first.value
    assert (second.measurement.samples or 0) > (first.measurement.samples or 0)


def test_a_test_that_did_not_run_or_has_no_time_left_does_not_run_again() -> None:
    adapter = FakeAdapter()
    again = replace(case(adapter), again=True)
    begun: list[Case] = []
    assert list(Stopwatch(adapter, PLAN).run([again], begun.append)) == []
    stopwatch = Stopwatch(adapter, replace(PLAN, late_s=0.1))
    assert len(list(stopwatch.run([case(adapter)], lambda case: None))) == 1
    assert list(stopwatch.run([again], begun.append)) == []
    assert begun == []


def test_a_needed_test_that_the_time_for_bench_cannot_hold_is_skipped_with_its_need() -> None:
    adapter = FakeAdapter()
    measurement = run(adapter, [case(adapter, gflops=0.05)])["a"].measurement
    assert measurement.status == "skipped"
    assert "needs 60.0 s" in (measurement.reason or "")

from dataclasses import replace

import pytest

from tests.unit.bench.fake import MIB, FakeAdapter, Values, cpu, prepared
from vllm_probe.bench.bandwidth import CREDITED, memory_cases
from vllm_probe.bench.peak import judge
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.timing import Case, absent
from vllm_probe.core.primitive import Done, Event

PLAN = make_plan(cpu(), quick=True, only=frozenset())


class Streaming(FakeAdapter):
    """Has stores that bypass its caches."""

    streams = True
    kernels = {"read": "sum", "copy": "move", "stream": "movnt"}  # noqa: RUF012 - as an adapter writes it

    def _stream(self, source: Values, target: Values) -> bool:
        self._work(f"stream {source.shape[0]}", 1.0)
        if self.streams:
            target.become(source.tolist, source.at)
        return True


def cases(adapter: FakeAdapter, plan: BenchPlan = PLAN) -> dict[str, Case]:
    return {case.key[0]: case for case in memory_cases(adapter, plan)}


def test_credited_bytes_are_those_of_the_arrays_that_are_read_and_written() -> None:
    works = {kind: prepared(case) for kind, case in cases(Streaming()).items() if kind != "cached_read"}
    assert {kind: (work.amount or 0) / PLAN.array_bytes for kind, work in works.items()} == {
        "read": 1,
        "copy": 2,
        "triad": 3,
        "streaming_copy": 2,
    }
    assert all(work.doubts == () for work in works.values())


def test_arrays_are_drawn_once_and_shared() -> None:
    adapter = Streaming()
    drawn: list[str] = []
    adapter.before = lambda operation: drawn.append(operation) if operation.startswith("random") else None
    for kind, case in cases(adapter).items():
        if kind != "cached_read":
            case.prepare(1)
    assert drawn == [f"random fp32 {PLAN.array_bytes // 4}"] * (3 + 1)  # and one that streaming changes


def test_reads_and_copies_take_turns_so_that_nothing_of_the_last_is_cached() -> None:
    found = cases(Streaming())
    assert {kind: len(prepared(found[kind]).calls) for kind in CREDITED} == {
        "read": 3,
        "copy": 3,
        "triad": 1,
        "streaming_copy": 3,
        "cached_read": 1,
    }


def test_the_kernel_of_each_access_is_named_where_the_adapter_names_it() -> None:
    found = cases(Streaming())
    assert [prepared(found[kind]).implementation for kind in CREDITED] == ["sum", "move", None, "movnt", "sum"]


def test_a_device_without_stores_past_its_caches_says_so() -> None:
    reading = cases(FakeAdapter())["streaming_copy"].prepare(1)
    assert reading == absent("unsupported", "no store that bypasses the caches is known here")


def test_the_cached_array_fits_the_last_level_cache_four_times() -> None:
    work = prepared(cases(FakeAdapter())["cached_read"])
    assert work.amount == 8 * MIB // 4
    assert work.doubts == ()
    unknown = cases(FakeAdapter(), replace(PLAN, cache_known=False))["cached_read"].prepare(1)
    assert unknown == absent("skipped", "no source gives the size of the last-level cache")


@pytest.mark.parametrize("plan", [replace(PLAN, array_bytes=16 * MIB), replace(PLAN, cache_known=False)])
def test_arrays_that_do_not_exceed_the_cache_four_times_over_are_doubted(plan: BenchPlan) -> None:
    assert prepared(cases(FakeAdapter(), plan)["read"]).doubts == ("arrays may be partly cached",)


@pytest.mark.parametrize("kind", CREDITED)
def test_a_virtual_machine_doubts_the_rates_of_the_memory_and_the_cache_that_it_shares(kind: str) -> None:
    shared, alone = (prepared(cases(Streaming(cpu(hypervisor=is_virtual)))[kind]) for is_virtual in (True, False))
    assert any("virtual machines" in doubt for doubt in shared.doubts)
    assert (shared.noisy_pct, alone.noisy_pct, alone.doubts) == (2.5, 5.0, ())


class Forgetful(Streaming):
    """Copies nothing, and adds nothing."""

    streams = False

    def _copy(self, source: Values, target: Values, *, non_blocking: bool, queue: int) -> Event:
        return Done()

    def _triad(self, b: Values, c: Values, scale: float, out: Values) -> None: ...


@pytest.mark.parametrize("kind", ["copy", "triad", "streaming_copy"])
def test_an_access_that_does_not_do_its_work_is_not_timed(kind: str) -> None:
    with pytest.raises(ArithmeticError, match="the timed result"):
        cases(Forgetful())[kind].prepare(1)


def test_a_rate_that_no_processor_loads_at_is_suspect() -> None:
    expected = cases(FakeAdapter())["read"].expected
    assert [judge(value, expected).verdict for value in (1500.0, 660_324.0)] == [None, "suspect"]

from dataclasses import replace

from tests.unit.bench.fake import MIB, FakeAdapter, cpu, prepared
from vllm_probe.bench.bandwidth import memory_cases
from vllm_probe.bench.plan import make_plan

PLAN = make_plan(cpu(), quick=True, only=frozenset())


def test_credited_bytes_are_one_two_and_three_arrays() -> None:
    works = {case.key[0]: prepared(case) for case in memory_cases(FakeAdapter(), PLAN)}
    assert {kind: (work.amount or 0) / PLAN.array_bytes for kind, work in works.items()} == {
        "read": 1,
        "copy": 2,
        "triad": 3,
    }
    assert all(work.doubts == () for work in works.values())


def test_arrays_are_drawn_once_and_shared() -> None:
    adapter = FakeAdapter()
    drawn: list[str] = []
    adapter.before = drawn.append
    for case in memory_cases(adapter, PLAN):
        case.prepare(1)
    assert drawn == [f"random fp32 {PLAN.array_bytes // 4}"] * 3


def test_arrays_that_fit_the_cache_four_times_over_are_doubted() -> None:
    small = replace(PLAN, array_bytes=16 * MIB)
    assert prepared(memory_cases(FakeAdapter(), small)[0]).doubts == ("arrays may be partly cached",)
    assert prepared(memory_cases(FakeAdapter(), replace(PLAN, cache_known=False))[0]).doubts

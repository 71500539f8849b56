from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.bench.fake import STAMP, FakeAdapter
from tests.unit.bench.scripted import play
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.bench.sounding import sounded
from vllm_probe.core.capability import Capability
from vllm_probe.core.progress import silent
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.null.probe import Script

CACHES: dict[str, Any] = {"details": {"caches": {"l2": 1 << 20}}}


def plan_of(adapter: NullAdapter, **changes: Any) -> BenchPlan:
    return replace(make_plan(adapter.device, quick=False, only=frozenset()), **changes)


def slow(gflops: float, gb_s: float) -> NullAdapter:
    curve = ((1, gflops),)
    rates: dict[str, Any] = {"fp32": curve, "int8": curve}
    return play(Script(rates_gflops=rates, bandwidth_gb_s=gb_s, link_gb_s=gb_s, queue_gb_s=gb_s), **CACHES)


def measured(adapter: NullAdapter, *only: str, quick: bool = False) -> Capability:
    plan = make_plan(adapter.device, quick=quick, only=frozenset(only))
    return run_bench(adapter, plan, STAMP, save=lambda document: None, progress=silent)


@pytest.mark.parametrize(("gflops", "divisor"), [(1000.0, 1), (20.0, 1), (15.0, 2), (1.0, 8), (0.01, 16)])
def test_products_shrink_until_one_takes_a_quarter_of_a_second(gflops: float, divisor: int) -> None:
    adapter = slow(gflops, 100.0)
    assert sounded(plan_of(adapter), adapter).shrink("fp32") == divisor


def test_what_it_costs_to_issue_a_product_makes_no_device_slow() -> None:
    adapter = play(Script(launch_us=2000.0), **CACHES)
    assert sounded(plan_of(adapter), adapter).shrink("bf16") == 1


def test_a_format_without_products_shrinks_nothing() -> None:
    adapter = slow(1.0, 100.0)
    assert sounded(plan_of(adapter), adapter).shrink("fp16") == 1


@pytest.mark.parametrize(("gb_s", "array_bytes"), [(100.0, 64 << 20), (0.1, 8 << 20), (0.0001, 1 << 20)])
def test_arrays_shrink_likewise(gb_s: float, array_bytes: int) -> None:
    adapter = slow(100.0, gb_s)
    assert sounded(plan_of(adapter), adapter).array_bytes == array_bytes


@pytest.mark.parametrize("rate", [1.0, 0.1, 0.02])
def test_a_device_a_thousand_times_too_slow_is_measured_in_bounded_time(rate: float) -> None:
    adapter = slow(rate, rate)
    document = measured(adapter)
    assert adapter.clock_s < 60
    assert document.compute_units["fp32"].throughput_gflops == pytest.approx(rate, rel=0.02)
    assert document.memory.read_gb_s == pytest.approx(rate, rel=0.02)


class Half(NullAdapter):
    """Its timer counts one of two seconds."""

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        return super()._time_batch(calls) / 2


class Gated(NullAdapter):
    """Is held while calls are queued, which the host waits for and the timer does not count."""

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.clock_s += 0.02
        return super()._time_batch(calls)


@pytest.mark.parametrize(("kind", "doubts"), [(NullAdapter, 0), (Half, 1), (Gated, 0)])
def test_a_timer_must_tell_what_the_host_waits_beyond_what_a_batch_costs(kind: type[NullAdapter], doubts: int) -> None:
    adapter = play(Script(), kind, **CACHES)
    assert len(sounded(plan_of(adapter), adapter).timer_doubts) == doubts


def test_rates_of_a_timer_that_counts_half_are_not_trusted_fully() -> None:
    document = measured(play(Script(), Half, **CACHES), "gemm", "memory", "copies", "thermal", quick=True)
    pointers = ("/compute_units/bf16/throughput_gflops", "/memory/triad_gb_s", "/thermal/sustained_gflops")
    for about in (document.measurements[pointer] for pointer in pointers):
        assert about.confidence != "high"
        assert "its timer speaks of" in (about.reason or "")
    assert "its timer" not in (document.measurements["/dma/h2d_pinned_gb_s"].reason or "")  # the host's clock


def test_a_device_that_cannot_be_sounded_keeps_its_plan_and_says_why() -> None:
    adapter = FakeAdapter()

    def explode(operation: str) -> None:
        raise RuntimeError("no such kernel")

    adapter.before = explode
    plan = make_plan(adapter.device, quick=True, only=frozenset())
    found = sounded(plan, adapter)
    assert found.array_bytes == plan.array_bytes
    assert "no such kernel" in found.doubts[0]


class Busy(NullAdapter):
    """Gets its processors every tenth time; the other times it waits for them."""

    batches = 0

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.batches += 1
        begin = self.clock_s
        self.clock_s += 0.0 if self.batches % 10 == 0 else 0.004
        super()._time_batch(calls)
        return self.clock_s - begin


def test_a_busy_device_is_not_taken_for_a_slow_one() -> None:
    adapter = play(Script(), Busy, **CACHES)
    plan = plan_of(adapter)
    found = sounded(plan, adapter)
    assert (found.array_bytes, found.shrink("fp32")) == (plan.array_bytes, 1)

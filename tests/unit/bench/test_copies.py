from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.fake import FakeAdapter
from tests.unit.bench.scripted import at, play, run, short, written
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.copies import KINDS, CopySection, fit
from vllm_probe.bench.expectations import Expectations
from vllm_probe.core.primitive import Event
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script


@given(st.floats(0.1, 1e4), st.floats(1e-6, 10))
def test_a_line_is_found_again_from_its_points(intercept: float, slope: float) -> None:
    times = {size: intercept + slope * size for size in (4096, 1 << 18, 1 << 24, 1 << 27)}
    found = fit(times)
    assert found[1] == pytest.approx(slope, rel=1e-6)
    assert found[0] == pytest.approx(intercept, rel=1e-6, abs=1e-6 * slope * 4096)


def test_rate_and_latency_of_each_kind_come_from_the_line_through_its_times() -> None:
    adapter = play(Script(link_gb_s=24.0, queue_gb_s=20.0, pageable_gb_s=8.0, launch_us=6.0))
    sheet = run(CopySection(adapter, short(adapter)))
    rates = {kind: at(sheet, f"/dma/{kind}_gb_s")[0] for kind in KINDS}
    assert rates == pytest.approx({"h2d_pinned": 20, "d2h_pinned": 20, "h2d_pageable": 8, "d2h_pageable": 8}, rel=1e-3)
    assert all(at(sheet, f"/dma/{kind}_latency_us")[0] == pytest.approx(6, rel=0.01) for kind in KINDS)
    assert at(sheet, "/dma/h2d_pinned_gb_s")[1].status == "measured"


def test_quick_takes_two_sizes_of_each_kind() -> None:
    adapter = play(Script())
    section = CopySection(adapter, short(adapter, quick=True))
    assert section.total() == 2 * len(KINDS)
    assert at(run(section), "/dma/d2h_pageable_gb_s")[0] == pytest.approx(10, rel=1e-3)


class Corrupting(NullAdapter):
    """Loses what comes back from the host."""

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        event = super()._copy(source, target, non_blocking=non_blocking, queue=queue)
        if source.host == "pinned":
            target.value = 0
        return event


def test_a_transfer_that_loses_the_pattern_has_no_rate() -> None:
    adapter = play(Script(), Corrupting)
    sheet = run(CopySection(adapter, short(adapter)))
    value, about = at(sheet, "/dma/h2d_pinned_gb_s")
    assert value is None
    assert about.status == "error"
    assert "came back wrong" in (about.reason or "")
    assert at(sheet, "/dma/h2d_pageable_gb_s")[0] == pytest.approx(10, rel=1e-3)


class Short(NullAdapter):
    """Copies nothing that is larger than the pattern."""

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        kept = target.value
        event = super()._copy(source, target, non_blocking=non_blocking, queue=queue)
        if source.nbytes > 64 << 10:
            target.value = kept
        return event


def test_large_transfers_in_which_nothing_arrives_have_no_rate() -> None:
    adapter = play(Script(), Short)
    sheet = run(CopySection(adapter, short(adapter)))
    for kind in KINDS:
        value, about = at(sheet, f"/dma/{kind}_gb_s")
        assert value is None
        assert about.status == "error"
        assert "are not what was copied" in (about.reason or "")


def test_times_that_no_line_describes_are_noisy() -> None:
    adapter = play(Script())
    section = CopySection(adapter, short(adapter))
    run(section)
    slow = section.readings["h2d_pinned", 256 << 10]
    section.readings["h2d_pinned", 256 << 10] = slow._replace(value=100 * (slow.value or 0.0))
    about = at(written(section), "/dma/h2d_pinned_gb_s")[1]
    assert (about.status, about.confidence) == ("noisy", "low")
    assert "misses a point" in (about.reason or "")


def test_a_rate_far_over_what_others_measured_is_not_the_same_as_a_slow_one() -> None:
    adapter = play(Script(queue_gb_s=5.0))
    published = Expectations(device=adapter.device, published={"/dma/h2d_pinned_gb_s": (24.0, 27.0)})
    sheet = run(CopySection(adapter, replace(short(adapter), expectations=published)))
    assert at(sheet, "/dma/h2d_pinned_gb_s")[1].verdict == "low"


def test_a_device_in_host_memory_transfers_nothing() -> None:
    adapter = FakeAdapter()
    section = CopySection(adapter, short(play(Script())))
    assert section.total() == 0
    value, about = at(run(section), "/dma/h2d_pinned_gb_s")
    assert value is None
    assert (about.status, about.reason) == ("unsupported", "host memory is device memory, nothing is transferred")


def test_finished_lines_are_taken_up_again_and_not_measured_again() -> None:
    adapter = play(Script())
    section = CopySection(adapter, short(adapter))
    run(section)
    again = CopySection(adapter, section.plan)
    again.restore(read_back(document(section)))
    assert list(again.batches()) == [[]]
    assert at(written(again), "/dma/d2h_pinned_gb_s")[0] == pytest.approx(25, rel=1e-3)


class Engines(NullAdapter):
    copy_engines = 3


def test_the_engines_that_an_adapter_knows_of_are_counted() -> None:
    adapter = play(Script(), Engines)
    assert at(run(CopySection(adapter, short(adapter, quick=True))), "/dma/engine_count")[0] == 3

import pytest

from tests.unit.bench.fake import FakeAdapter
from tests.unit.bench.scripted import at, play, run, short, written
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.overlap import OverlapSection
from vllm_probe.core.primitive import Event
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script


def section(script: Script, kind: type[NullAdapter] = NullAdapter) -> OverlapSection:
    adapter = play(script, kind)
    return OverlapSection(adapter, short(adapter))


def test_as_many_transfers_are_worth_it_as_fill_the_link() -> None:
    sheet = run(section(Script(link_gb_s=24.0, queue_gb_s=10.0)))
    curve = dict(at(sheet, "/dma/concurrency_curve")[0])
    assert curve == pytest.approx({1: 10, 2: 20, 3: 24, 4: 24, 8: 24}, rel=0.02)
    assert at(sheet, "/dma/max_concurrent_transfers")[0] == 3
    assert at(sheet, "/dma/max_concurrent_small_transfers")[0] == 3


def test_one_transfer_is_enough_where_one_queue_fills_the_link() -> None:
    sheet = run(section(Script(link_gb_s=24.0, queue_gb_s=24.0)))
    assert at(sheet, "/dma/max_concurrent_transfers")[0] == 1


def test_both_ways_gain_over_the_faster_one() -> None:
    assert at(run(section(Script())), "/dma/duplex_gain")[0] == pytest.approx(2, rel=0.01)


def test_no_more_queues_are_tried_than_the_device_has() -> None:
    sheet = run(section(Script(copy_queues=2)))
    assert [queues for queues, _ in at(sheet, "/dma/concurrency_curve")[0]] == [1, 2]


def test_one_queue_cannot_go_both_ways() -> None:
    about = at(run(section(Script(copy_queues=1))), "/dma/duplex_gain")[1]
    assert about.status == "unsupported"


def test_the_host_is_free_while_a_transfer_is_under_way() -> None:
    assert at(run(section(Script())), "/dma/cpu_bypass")[0] is True


class Blocking(NullAdapter):
    """Returns from a transfer when it has arrived, whatever was asked."""

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        return super()._copy(source, target, non_blocking=False, queue=queue)


def test_a_device_that_waits_in_every_call_bypasses_nothing() -> None:
    sheet = run(section(Script(queue_gb_s=10.0), Blocking))
    assert at(sheet, "/dma/cpu_bypass")[0] is False
    assert at(sheet, "/dma/max_concurrent_transfers")[0] == 1


def test_a_device_in_host_memory_and_a_run_without_the_group_say_so() -> None:
    on_host = OverlapSection(FakeAdapter(), short(play(Script())))
    assert at(run(on_host), "/dma/cpu_bypass")[1].status == "unsupported"
    adapter = play(Script())
    left_out = OverlapSection(adapter, short(adapter, quick=True))
    assert at(written(left_out), "/dma/concurrency_curve")[1].reason == "--quick leaves overlap out"


def test_points_of_the_curves_are_taken_up_again() -> None:
    before = section(Script())
    run(before)
    after = OverlapSection(before.adapter, before.plan)
    after.restore(read_back(document(before)))
    assert [case for batch in after.batches() for case in batch] == []
    assert at(written(after), "/dma/duplex_gain")[0] == pytest.approx(2, rel=0.01)
    assert at(written(after), "/dma/cpu_bypass")[0] is True
    assert [queues for queues, _ in at(written(after), "/dma/concurrency_curve")[0]] == [1, 2, 3, 4, 8]


def test_products_beside_a_copy_take_no_longer_where_they_share_nothing() -> None:
    ratio, about = at(run(section(Script())), "/dma/copy_compute_slowdown")
    assert ratio == pytest.approx(1, rel=0.05)
    assert (about.status, about.confidence) == ("measured", "medium")


def test_products_that_wait_for_a_copy_take_twice_as_long() -> None:
    assert at(run(section(Script(), Blocking)), "/dma/copy_compute_slowdown")[0] == pytest.approx(2, rel=0.05)


def test_an_adapter_without_products_has_nothing_to_run_beside_a_copy() -> None:
    about = at(run(section(Script(rates_gflops={}))), "/dma/copy_compute_slowdown")[1]
    assert about.status == "unsupported"

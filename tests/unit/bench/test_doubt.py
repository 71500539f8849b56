import math
from collections.abc import Callable, Sequence

import pytest

from tests.unit.bench.fake import FakeAdapter
from tests.unit.bench.scripted import play
from vllm_probe.bench.doubt import checked, doubt_of_clock, doubt_of_data, doubt_of_operands, doubt_of_timer
from vllm_probe.bench.peak import Expected
from vllm_probe.vendors.null.probe import Script


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_no_work_takes_no_time_or_all_of_it(seconds: float) -> None:
    with pytest.raises(ArithmeticError, match="3 calls took"):
        checked(seconds, 3)


def test_a_time_stays_what_it_is() -> None:
    assert checked(0.5, 3) == 0.5


def test_numbers_that_are_all_the_same_are_no_data() -> None:
    assert doubt_of_data(play(Script()))
    assert doubt_of_data(FakeAdapter()) is None


class Timed(FakeAdapter):
    """Each batch costs `overhead_s` that its timer leaves out, with a share of the time; calls take 1 ms."""

    overhead_s = 0.0
    share = 1.0

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.batches += 1
        self._now += 1e-3 * len(calls) + self.overhead_s
        return self.share * 1e-3 * len(calls)


@pytest.mark.parametrize(
    ("share", "overhead_s", "batches"), [(1.0, 0.0, 0), (0.98, 0.0, 0), (1.02, 0.0, 0), (1.0, 0.02, 2), (0.98, 0.02, 2)]
)
def test_a_timer_may_leave_out_what_a_batch_costs(share: float, overhead_s: float, batches: int) -> None:
    adapter = Timed()
    adapter.share, adapter.overhead_s = share, overhead_s
    assert doubt_of_timer(adapter, [list], 5, share * 0.005, 0.005 + overhead_s) is None
    assert adapter.batches == batches


@pytest.mark.parametrize(("share", "overhead_s"), [(0.96, 0.0), (0.78, 0.0), (0.5, 0.02), (1.04, 0.0)])
def test_a_timer_may_not_leave_out_work_or_invent_it(share: float, overhead_s: float) -> None:
    adapter = Timed()
    adapter.share, adapter.overhead_s = share, overhead_s
    said = doubt_of_timer(adapter, [list], 5, share * 0.005, 0.005 + overhead_s)
    assert "its timer speaks of" in (said or "")
    assert adapter.batches <= 6


def test_operands_are_looked_at_from_head_to_tail() -> None:
    adapter = FakeAdapter()
    values = [float(i) for i in range(90)]
    for begin in (0, 37, 74):
        alike = [*values[:begin], *[1.0] * 16, *values[begin + 16 :]]
        assert doubt_of_operands(adapter, adapter.from_host(values, "fp32"), adapter.from_host(alike, "fp32"))
    rows = [[float(i + 64 * row) for i in range(64)] for row in range(9)]
    for place in (0, 4, 8):
        assert doubt_of_operands(adapter, adapter.from_host([*rows[:place], [0.0] * 64, *rows[place + 1 :]], "bf16"))
    assert doubt_of_operands(adapter, adapter.from_host(values, "fp32"), adapter.from_host(rows, "bf16")) is None
    assert doubt_of_operands(adapter, adapter.from_host([1.0, 2.0], "fp32")) is None


def test_a_clock_far_below_the_one_that_the_peak_is_stated_for_is_doubted() -> None:
    known = Expected(fastest=1.0, at_mhz=2000.0)
    assert "1400 of 2000 MHz" in (doubt_of_clock(1400.0, known) or "")
    assert doubt_of_clock(1600.0, known) is None
    assert doubt_of_clock(None, known) is None
    assert doubt_of_clock(1400.0, None) is None
    assert doubt_of_clock(1400.0, Expected(fastest=1.0, at_mhz=2000.0, is_own_clock=False)) is None

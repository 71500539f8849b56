import math

import pytest

from tests.unit.bench.fake import FakeAdapter
from tests.unit.bench.scripted import play
from vllm_probe.bench.doubt import checked, doubt_of_clock, doubt_of_data, doubt_of_timer
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


@pytest.mark.parametrize(("device_s", "doubted"), [(1.0, False), (0.5, False), (0.3, True), (1.02, False), (1.1, True)])
def test_a_timer_may_leave_out_queueing_but_not_most_of_the_time(device_s: float, doubted: bool) -> None:
    assert bool(doubt_of_timer(device_s, 1.0, call_s=1e-3)) == doubted


def test_queueing_may_take_most_of_the_time_of_short_calls() -> None:
    assert doubt_of_timer(0.1, 1.0, call_s=2e-6) is None
    assert doubt_of_timer(1.1, 1.0, call_s=2e-6)


def test_a_clock_far_below_the_one_that_the_peak_is_stated_for_is_doubted() -> None:
    known = Expected(fastest=1.0, at_mhz=2000.0)
    assert "1400 of 2000 MHz" in (doubt_of_clock(1400.0, known) or "")
    assert doubt_of_clock(1600.0, known) is None
    assert doubt_of_clock(None, known) is None
    assert doubt_of_clock(1400.0, None) is None
    assert doubt_of_clock(1400.0, Expected(fastest=1.0, at_mhz=2000.0, is_own_clock=False)) is None

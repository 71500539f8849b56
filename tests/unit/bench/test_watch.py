"""Telemetry while tests run, and what it says of their values."""

from collections.abc import Callable
from threading import Event, current_thread, main_thread
from threading import enumerate as enumerate_threads

import pytest

from tests.unit.bench.fake import FakeAdapter, cpu
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.timing import Case, Reading, Stopwatch, Work
from vllm_probe.bench.watch import Watch, sum_up
from vllm_probe.core.primitive import Telemetry

PLAN = make_plan(cpu(), quick=False, only=frozenset())


class Sensed(FakeAdapter):
    """Telemetry by how often the thread that measures asked."""

    def __init__(self, tell: Callable[[int], Telemetry]) -> None:
        super().__init__()
        self.tell = tell
        self.asked = 0

    def _telemetry(self) -> Telemetry:
        if current_thread() is not main_thread():
            return Telemetry()  # a round that took longer than it should
        self.asked += 1
        return self.tell(self.asked)


class Counted(FakeAdapter):
    """Its clock is the number of readings; `fourth` is set by the fourth."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.threads: set[str] = set()
        self.fourth = Event()

    def _telemetry(self) -> Telemetry:
        self.asked += 1
        self.threads.add(current_thread().name)
        if self.asked == 4:
            self.fourth.set()
        return Telemetry(clock_mhz=float(self.asked))


def measured(tell: Callable[[int], Telemetry]) -> Reading:
    adapter = Sensed(tell)
    work = Work(calls=(lambda: adapter._work("a", 1e7),), amount=1e9, method="1 GFLOP")
    case = Case(key=("a", 0), title="a", unit="GFLOP/s", prepare=lambda divisor: work)
    ((_, reading),) = Stopwatch(adapter, PLAN).run([case], lambda case: None)
    return reading


def test_a_value_stands_with_the_mean_and_the_lowest_clock_of_its_rounds() -> None:
    value, measurement = measured(lambda asked: Telemetry(clock_mhz=4000.0 if asked % 2 else 3000.0))
    assert value == pytest.approx(100)
    assert (measurement.clock_mhz, measurement.lowest_clock_mhz) == (3500.0, 3000.0)
    assert measurement.status == "measured"


def test_a_silent_device_has_no_clock() -> None:
    _, measurement = measured(lambda asked: Telemetry())
    assert (measurement.clock_mhz, measurement.lowest_clock_mhz) == (None, None)


def test_heat_while_a_test_runs_makes_it_throttled_and_says_so() -> None:
    _, measurement = measured(lambda asked: Telemetry(held_down=("thermal",) if asked == 4 else ()))
    assert (measurement.status, measurement.confidence) == ("throttled", "low")
    assert "held down by thermal" in (measurement.reason or "")


def test_a_quota_that_runs_out_during_a_round_makes_it_throttled() -> None:
    _, measurement = measured(lambda asked: Telemetry(quota_periods=10 + asked))
    assert measurement.status == "throttled"
    assert "a processor quota that ran out in 3 periods" in (measurement.reason or "")


def test_a_quota_that_ran_out_between_the_rounds_does_not() -> None:
    _, measurement = measured(lambda asked: Telemetry(quota_periods=(asked - 1) // 2))
    assert measurement.status == "measured"


def test_its_own_power_limit_is_how_a_device_works() -> None:
    _, measurement = measured(lambda asked: Telemetry(held_down=("power",)))
    assert measurement.status == "measured"


def test_a_broken_sensor_costs_no_measurement() -> None:
    def tell(asked: int) -> Telemetry:
        raise OSError("no such sensor")

    value, measurement = measured(tell)
    assert value == pytest.approx(100)
    assert measurement.status == "measured"


def test_a_long_test_is_read_from_another_thread_while_it_runs() -> None:
    adapter = Counted()
    with Watch(adapter, interval_s=0.001)() as readings:
        assert adapter.fourth.wait(60)
    assert adapter.threads == {main_thread().name, "telemetry"}
    assert [reading.clock_mhz for reading in readings] == [float(n) for n in range(1, adapter.asked + 1)]
    assert "telemetry" not in {thread.name for thread in enumerate_threads()}


def test_readings_of_all_rounds_are_summed_up() -> None:
    rounds = [[Telemetry(clock_mhz=1000.0, held_down=("thermal", "power"))], [Telemetry(), Telemetry(clock_mhz=3000.0)]]
    assert sum_up(rounds) == (2000.0, 1000.0, 3000.0, "held down by thermal")
    assert sum_up([]) == (None, None, None, None)

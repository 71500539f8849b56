import platform
import time

import pytest

from vllm_probe.host import clock


def test_the_loop_jumps_back_to_its_first_multiplication() -> None:
    back = int.from_bytes(clock._CODE[-2:-1], "little", signed=True)
    end = len(clock._CODE) - 1
    assert clock._CODE[end + back :].startswith(b"\x0f\xaf\xc0")
    assert end + back == len(b"\x89\xf8")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the loop is x86-64 code")
def test_a_core_of_today_runs_between_half_and_seven_ghz() -> None:
    readings = [clock.measure_clock_mhz() for _ in range(100)]
    known = [mhz for mhz in readings if mhz is not None]
    assert not known or 500 < max(known) < 7000


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the loop is x86-64 code")
def test_the_shortest_of_three_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 0.002, 1.0, 1.0001, 2.0, 2.0005])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert clock.measure_clock_mhz() == pytest.approx(3 * 32 * 4000 / 0.0001 / 1e6)


def test_where_code_cannot_be_mapped_the_clock_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "mapped", lambda *arguments: None)
    assert clock.measure_clock_mhz() is None

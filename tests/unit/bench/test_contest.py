import pytest

from vllm_probe.bench.contest import Decided, decide
from vllm_probe.bench.timing import Reading, absent
from vllm_probe.core.capability import Measurement, Status
from vllm_probe.vendors.mapper import Choice

BUSY = "its threads had 55 % of the processor time"


def took(us: float, status: Status = "measured", spread_pct: float = 1.0, reason: str | None = None) -> list[Reading]:
    about = Measurement(source="measured", status=status, reason=reason, samples=9, spread_pct=spread_pct)
    return [Reading(us, about)]


def decided(**readings: list[Reading]) -> Decided:
    found = decide([*readings], readings, "how")
    assert found
    return found


def test_a_clear_lead_of_quiet_readings_is_trusted() -> None:
    choice, about = decided(plain=took(200.0), packed=took(100.0, spread_pct=2.0))
    assert choice == Choice(implementation="packed", second="plain", ratio=2.0)
    assert (about.status, about.confidence, about.reason) == ("measured", "high", None)
    assert (about.samples, about.spread_pct, about.method) == (18, 2.0, "how")


def test_readings_without_their_processor_time_choose_nothing() -> None:
    choice, about = decided(bmm=took(278.0), sdpa=took(100.0, "throttled", 40.0, BUSY))
    assert choice == Choice(implementation="bmm")
    assert (about.status, about.confidence) == ("throttled", "low")
    assert about.spread_pct == 40.0
    assert "sdpa took 0.36 times as long as bmm, in throttled readings: the adapter's order is kept" in str(
        about.reason
    )
    assert BUSY in str(about.reason)


def test_a_lead_within_the_spread_chooses_nothing() -> None:
    choice, about = decided(plain=took(104.0, spread_pct=4.9), packed=took(100.0))
    assert choice == Choice(implementation="plain")
    assert (about.status, about.confidence) == ("noisy", "low")
    assert "within the spread of 4.9 %" in str(about.reason)


def test_a_lead_far_over_the_noise_is_one_of_noisy_readings() -> None:
    choice, about = decided(plain=took(800.0, "noisy", 9.0, "rounds differ by 9.0 %"), packed=took(100.0))
    assert choice == Choice(implementation="packed", second="plain", ratio=8.0)
    assert (about.status, about.confidence) == ("noisy", "medium")
    assert about.reason == "plain: noisy, rounds differ by 9.0 %"


def test_what_had_no_time_is_not_refused_and_loses_to_none_that_it_is_preferred_to() -> None:
    late = [absent("skipped", "the time for bench was over")]
    choice, about = decided(sdpa=late, bmm=took(100.0))
    assert choice == Choice(implementation="sdpa")
    assert (about.status, about.confidence) == ("noisy", "low")
    assert "sdpa: the time for bench was over" in str(about.reason)
    choice, about = decided(plain=took(100.0), naive=took(300.0), inductor=late)
    assert (choice.implementation, choice.second) == ("plain", "naive")
    assert choice.ratio == pytest.approx(3.0)
    assert (about.status, about.confidence) == ("measured", "medium")


def test_what_failed_is_refused_and_the_only_one_left_needs_no_contest() -> None:
    choice, about = decided(sdpa=[absent("error", "off by 2")], bmm=took(100.0, "throttled"))
    assert choice == Choice(implementation="bmm", refused={"sdpa": "off by 2"})
    assert about.status == "measured"


@pytest.mark.parametrize("status", ["skipped", "error"])
def test_nothing_is_decided_where_nothing_was_timed(status: Status) -> None:
    assert decide(["a", "b"], {name: [absent(status, "gone")] for name in "ab"}, "") is None

"""Which rounds of a test count."""

import pytest

from vllm_probe.bench.rounds import Round, Rounds


def rounds(*shares: float) -> Rounds:
    return Rounds([Round([share], share, []) for share in shares])


def test_rounds_that_had_the_processor_count_alone_where_they_are_enough() -> None:
    disturbed = rounds(1.0, 0.5, 1.0, 0.95)
    assert disturbed.trusted(3).taken == [*disturbed.taken[:1], *disturbed.taken[2:]]
    assert disturbed.trusted(4) is disturbed


def test_one_disturbed_round_among_many_counts_too() -> None:
    mostly = rounds(1.0, 0.89, 1.0)
    assert mostly.trusted(1) is mostly


def test_values_are_of_the_medians_of_rounds_and_the_error_is_of_all_samples() -> None:
    found = Rounds([Round([1.0, 2.0, 9.0], 1.0, []), Round([3.0, 3.0], 1.0, []), Round([4.0], 1.0, [])])
    assert (found.call_s, found.samples, len(found)) == (3.0, 6, 3)
    assert found.spread_pct == pytest.approx(100 * (4.0 - 2.0) / 3.0)
    assert found.error == pytest.approx(1.2533 * 1.4826 * 1.0 / 6**0.5 / 3.0)

import math

import pytest

from vllm_probe.vendors.mapper import Choice, choose


def test_the_fastest_wins_with_its_lead_over_the_second() -> None:
    choice = choose(("plain", "packed", "tiled"), {"plain": 4.0, "packed": 1.0, "tiled": 2.0}, {})
    assert choice == Choice(implementation="packed", second="tiled", ratio=2.0)


def test_numerics_come_before_speed() -> None:
    choice = choose(("plain", "packed"), {"plain": 4.0, "packed": 1.0}, {"packed": "off by 2"})
    assert choice == Choice(implementation="plain", refused={"packed": "off by 2"})


def test_without_measurements_the_order_of_the_adapter_holds() -> None:
    assert choose(("packed", "plain"), {}, {}) == Choice(implementation="packed")
    assert choose(("packed", "plain"), {}, {"packed": "raised"}).implementation == "plain"


def test_nothing_wins_over_a_preferred_one_that_was_not_measured() -> None:
    assert choose(("packed", "plain"), {"plain": 4.0}, {}) == Choice(implementation="packed")
    found = choose(("plain", "naive", "packed"), {"plain": 1.0, "naive": 4.0}, {})
    assert found == Choice(implementation="plain", second="naive", ratio=4.0)


def test_a_difference_that_tells_nothing_leaves_the_order_of_the_adapter_and_no_lead() -> None:
    times = {"packed": 1.04, "plain": 1.0, "naive": 8.0}
    assert choose(("packed", "plain", "naive"), times, {}, 0.05) == Choice(
        implementation="packed", second=None, ratio=None
    )
    assert choose(("packed", "plain", "naive"), times, {}, 0.03).implementation == "plain"
    assert choose(("naive", "plain"), times, {}, 0.05) == Choice(implementation="plain", second="naive", ratio=8.0)
    assert choose(("naive", "plain"), times, {}, math.inf) == Choice(implementation="naive")


def test_of_two_that_are_equally_fast_the_preferred_one_wins() -> None:
    assert choose(("packed", "plain"), {"plain": 1.0, "packed": 1.0}, {}).implementation == "packed"


def test_measurements_and_refusals_of_others_are_left_out() -> None:
    assert choose(("plain",), {"old": 0.1}, {"old": "gone"}) == Choice(implementation="plain")


def test_nothing_is_chosen_where_everything_is_wrong() -> None:
    with pytest.raises(ArithmeticError, match="plain: off by 2; packed: raised OSError"):
        choose(("plain", "packed"), {"plain": 1.0}, {"plain": "off by 2", "packed": "raised OSError"})
    with pytest.raises(ArithmeticError, match="no implementation"):
        choose((), {}, {})

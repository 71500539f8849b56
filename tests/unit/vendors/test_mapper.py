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


def test_what_was_not_measured_does_not_win_over_what_was() -> None:
    assert choose(("packed", "plain"), {"plain": 4.0}, {}) == Choice(implementation="plain")


def test_of_two_that_are_equally_fast_the_preferred_one_wins() -> None:
    assert choose(("packed", "plain"), {"plain": 1.0, "packed": 1.0}, {}).implementation == "packed"


def test_measurements_and_refusals_of_others_are_left_out() -> None:
    assert choose(("plain",), {"old": 0.1}, {"old": "gone"}) == Choice(implementation="plain")


def test_nothing_is_chosen_where_everything_is_wrong() -> None:
    with pytest.raises(ArithmeticError, match="plain: off by 2; packed: raised OSError"):
        choose(("plain", "packed"), {"plain": 1.0}, {"plain": "off by 2", "packed": "raised OSError"})
    with pytest.raises(ArithmeticError, match="no implementation"):
        choose((), {}, {})

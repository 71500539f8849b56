"""Numbers in ACL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.device import Device, Verdict
from vllm_probe.vendors.ascend.masks import logical_ids, node_number, visible
from vllm_probe.vendors.ascend.places import Unit

LOGIC = {"a": 0, "b": 1, "c": 2, "d": 3}


def unit(id_: str, code: str = "unknown", **record: object) -> Unit:
    device = Device(id=id_, vendor="ascend", kind="npu", verdict=Verdict(code=code, reason=""))  # type: ignore[arg-type]
    return Unit((device, {}), dcmi=record, listed=True)


@pytest.mark.parametrize(
    ("mask", "numbers"),
    [
        (None, {"a": 0, "b": 1, "c": 2, "d": 3}),
        ("1", {"b": 0}),
        ("1,2,3", {"b": 0, "c": 1, "d": 2}),
        ("3,2,1", {"d": 0, "c": 1, "b": 2}),
        ("1,2,-1,3", {"b": 0, "c": 1}),
        ("1, 2,3", {"b": 0}),
        ("1,3,8", {"b": 0, "d": 1}),
        ("1,1,2", {"b": 0}),
        ("", {}),
        ("-1", {}),
    ],
)
def test_the_variable_counts_as_huaweis_examples_say(mask: str | None, numbers: dict[str, int]) -> None:
    assert visible(LOGIC, mask) == numbers


def test_the_drivers_logical_ids_come_first() -> None:
    found, source = logical_ids([unit("x", logic=1, phy=0), unit("y", logic=0, phy=1)])
    assert (found, source) == ({"x": 1, "y": 0}, "logical ids of the driver")


def test_nodes_count_in_the_order_of_their_numbers_where_there_is_no_logical_id() -> None:
    found, source = logical_ids([unit("x", phy=6), unit("y", phy=2)])
    assert (found, source) == ({"y": 0, "x": 1}, "order of /dev/davinci numbers")


def test_the_same_number_twice_is_no_number() -> None:
    assert logical_ids([unit("x", logic=0), unit("y", logic=0)]) == ({"x": 0, "y": 1}, None)


def test_without_either_the_cards_count_in_the_drivers_order_and_not_in_that_of_the_bus() -> None:
    units = [unit("0000:01:00.0", id="0000:01:00.0", card=4, chip=0), unit("0000:c1:00.0", id="", card=0, chip=0)]
    found, source = logical_ids(units)
    assert (found, source) == ({"0000:c1:00.0": 0, "0000:01:00.0": 1}, "order of the driver's card and chip numbers")


def test_a_card_that_was_placed_by_guess_has_no_certain_number() -> None:
    assert logical_ids([unit("x", card=0, chip=0), unit("y", card=1, chip=0)])[1] is None
    assert logical_ids([unit("x")]) == ({"x": 0}, "the only device")


def test_a_device_that_cannot_be_reached_has_no_number() -> None:
    assert logical_ids([unit("x", "unusable", phy=0), unit("y", phy=1)])[0] == {"y": 0}


def test_the_node_of_a_device_that_only_its_node_shows_is_in_its_id() -> None:
    assert node_number(unit("ascend:12")) == 12
    assert node_number(unit("ascend:12", phy=3)) == 3
    assert node_number(unit("0000:01:00.0")) is None


@given(st.text())
def test_any_mask_gives_each_device_one_number_at_most(mask: str) -> None:
    numbers = visible(LOGIC, mask)
    assert sorted(numbers.values()) == list(range(len(numbers)))

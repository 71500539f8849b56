"""Which chip is which device."""

from typing import Any

from tests.unit.vendors.ascend.hosts import CARD, function, host_of
from vllm_probe.vendors.ascend import PLUGIN
from vllm_probe.vendors.ascend.places import Unit, units_of
from vllm_probe.vendors.layer0 import Reading, bus_devices

A, B = "0000:01:00.0", "0000:02:00.0"


def shown(*addresses: str) -> list[Reading]:
    return bus_devices(host_of({path: text for each in addresses for path, text in function(each).items()}), PLUGIN)


def chip(card: int, number: int = 0, **values: Any) -> dict[str, Any]:
    return {"card": card, "chip": number, **values}


def placed(units: list[Unit]) -> dict[str, Any]:
    return {unit.id: (unit.record.get("card"), unit.record.get("chip"), unit.listed) for unit in units}


def test_a_chip_is_found_by_its_address_whatever_its_number() -> None:
    units = units_of(shown(A, B), [chip(7, id=B), chip(9, id=A)], (), told=True)
    assert placed(units) == {A: (9, 0, True), B: (7, 0, True)}


def test_chips_that_share_a_function_are_devices_of_their_own_with_the_card_as_parent() -> None:
    units = units_of(shown(A), [chip(2, 0, id=A), chip(2, 1, id=A)], (), told=True)
    assert placed(units) == {f"{A}/chip-0": (2, 0, True), f"{A}/chip-1": (2, 1, True)}
    assert {unit.reading[0].details["parent"] for unit in units} == {A}


def test_the_word_of_dcmi_goes_before_that_of_npu_smi_and_each_adds_what_it_alone_has() -> None:
    (unit,) = units_of(shown(A), [chip(0, id=A, name="x")], [chip(0, name="y", logic=3)], told=True)
    assert (unit.record["name"], unit.record["logic"], unit.smi["name"]) == ("x", 3, "y")


def test_an_address_that_several_cards_have_is_that_of_none() -> None:
    units = units_of(shown(A, B), [chip(0, id=A), chip(1, id=A)], (), told=True)
    assert placed(units) == {A: (0, 0, True), B: (1, 0, True)}


def test_a_chip_that_tells_no_address_is_the_one_that_is_left() -> None:
    units = units_of(shown(A, B), [chip(0, status=-8012), chip(1, id=A)], (), told=True)
    assert placed(units) == {A: (1, 0, True), B: (0, 0, True)}


def test_what_the_driver_does_not_list_is_said_only_where_no_chip_is_left_over() -> None:
    assert placed(units_of(shown(A, B), [chip(0, id=A)], (), told=True))[B] == (None, None, False)
    assert placed(units_of(shown(A, B), [chip(0)], (), told=True))[B] == (None, None, None)
    assert placed(units_of(shown(A, B), (), (), told=False))[A] == (None, None, None)


def by_node(*numbers: int, **files: str) -> list[Reading]:
    nodes = {f"/dev/davinci{number}": CARD["/dev/davinci0"] for number in numbers}
    return bus_devices(host_of(nodes | files), PLUGIN)


def test_chips_whose_node_is_not_told_are_the_open_nodes_in_the_order_of_their_numbers() -> None:
    chips = [chip(4, id=A), chip(7, id=B)]
    assert placed(units_of(by_node(4, 10), (), chips, told=True)) == {
        "ascend:4": (4, 0, True),
        "ascend:10": (7, 0, True),
    }
    denied = {"/dev/davinci2": "!chr 236:2 0600 0:0", "/proc/self/status": CARD["/proc/self/status"]}
    assert placed(units_of(by_node(4, 10, **denied), (), chips, told=True)) == {
        "ascend:2": (None, None, None),
        "ascend:4": (4, 0, True),
        "ascend:10": (7, 0, True),
    }


def test_a_node_that_is_there_is_not_said_to_be_left_out_where_the_counts_differ() -> None:
    assert placed(units_of(by_node(4, 7), (), [chip(4, id=A)], told=True)) == {
        "ascend:4": (None, None, None),
        "ascend:7": (None, None, None),
    }
    assert placed(units_of(by_node(4), [chip(0, phy=3)], (), told=True)) == {"ascend:4": (None, None, None)}


def test_a_device_that_only_its_node_shows_is_found_by_the_number_of_the_node() -> None:
    nodes = bus_devices(host_of({f"/dev/davinci{number}": CARD["/dev/davinci0"] for number in (3, 5)}), PLUGIN)
    units = units_of(nodes, [chip(0, phy=5), chip(1, phy=3)], (), told=True)
    assert placed(units) == {"ascend:3": (1, 0, True), "ascend:5": (0, 0, True)}


def test_a_chip_that_the_bus_does_not_show_is_no_device() -> None:
    assert list(placed(units_of(shown(A), [chip(0, id=A), chip(1, id=B)], (), told=True))) == [A]

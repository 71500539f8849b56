"""The blocks, the map and the list of npu-smi."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.ascend.hosts import CAPTURES, MIB, capture, needs_captures
from vllm_probe.vendors.ascend.smi_lists import parse_blocks, parse_list, parse_map

USAGES = """
        NPU ID                         : 2
        Chip Count                     : 2

        DDR Capacity(MB)               : 44280
        DDR Usage Rate(%)              : 25
        DDR Hugepages Total(page)      : 7200
        Aicore Usage Rate(%)           : 1
        Chip ID                        : 0

        DDR Capacity(MB)               : 43693
        DDR Usage Rate(%)              : 0
        Aicore Usage Rate(%)           : 0
        Chip ID                        : 1

        Board Temperature(C)           : 33
        Chip Name                      : MCU
"""
BOARD = """
        NPU ID                         : 4
        Product Name                   : IT21HMDC
        Manufacturer                   : Huawei
        Software Version               : 25.5.1
        Firmware Version               : 7.8.0.6.201
        Compatibility                  : OK
        PCIe Bus Info                  : 0000:C1:00.0
        Class ID                       : NA
        PCI Vendor ID                  : 0x19E5
        PCI Device ID                  : 0xD802
        Chip Count                     : 1
"""
OF_A_CHIP = """
        NPU ID                         : 0
        Chip ID                        : 1
        Chip Type                      : Ascend
        Chip Name                      : Ascend910
        NPU Name                       : 9391
        Board ID                       : 0x02
"""
MAP = """\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t4                              0                              0                              Ascend 910B3
\t4                              1                              -                              Mcu
\t6                              0                              1                              Ascend 910B3
"""


def test_the_number_of_a_chip_ends_its_block_and_the_controller_is_left_out() -> None:
    first, second = parse_blocks(USAGES)
    size = 44280 * MIB
    assert first == {"card": 2, "chip": 0, "utilization": 1, "memory": {"total": size, "used": size // 4}}
    assert second == {"card": 2, "chip": 1, "utilization": 0, "memory": {"total": 43693 * MIB}}


def test_a_rate_of_zero_is_no_use_of_zero() -> None:
    assert "used" not in parse_blocks(USAGES)[1]["memory"]


def test_a_board_without_the_number_of_a_chip_is_that_of_chip_0() -> None:
    assert parse_blocks(BOARD) == [
        {
            "card": 4,
            "chip": 0,
            "driver": "25.5.1",
            "firmware": "7.8.0.6.201",
            "compatibility": "OK",
            "id": "0000:c1:00.0",
            "pci_id": "19e5:d802",
        }
    ]


def test_the_number_of_a_chip_begins_its_block_where_only_the_card_stands_before_it() -> None:
    assert parse_blocks(OF_A_CHIP) == [{"card": 0, "chip": 1, "name": "Ascend910", "npu_name": "9391"}]


def test_the_map_gives_logical_ids_and_leaves_out_the_controllers() -> None:
    assert parse_map(MAP) == [
        {"card": 4, "chip": 0, "logic": 0, "name": "Ascend 910B3"},
        {"card": 6, "chip": 0, "logic": 1, "name": "Ascend 910B3"},
    ]


@pytest.mark.parametrize("name", ["N/A", "NA", "-", ""])
def test_a_word_for_unknown_is_no_name(name: str) -> None:
    assert parse_map(f"NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  {name}\n") == [
        {"card": 0, "chip": 0, "logic": 0}
    ]


def test_the_list_gives_cards_and_how_many_chips_they_have() -> None:
    text = "Total Count : 2\n\nNPU ID : 0\nChip Count : 1\n\nNPU ID : 3\nProduct Name : X\nChip Count : 2\n"
    assert parse_list(text) == [(0, 1), (3, 2)]
    assert parse_list("NPU ID : 5\n") == [(5, 1)]


@needs_captures
def test_captures_give_their_values() -> None:
    size = 68719476736
    usage = {"utilization": 0, "memory": {"total": size, "used": size * 5 // 100}}
    assert parse_blocks(capture("npu-smi-t-usages-910b.txt")) == [{"card": 0, "chip": 0, **usage}]
    two = parse_blocks(capture("npu-smi-t-usages-a3-2chip.txt"))
    assert two == [{"chip": 0, "utilization": 1}, {"chip": 1, "utilization": 2}]
    (common,) = parse_blocks(capture("npu-smi-t-common-atlas350.txt"))
    assert (common["ai_cores"], common["aicore_clock_mhz"], common["aicore_clock_max_mhz"]) == (32, 100, 1650)
    assert (common["temperature_c"], common["power_w"]) == (65, 298.6)
    found = parse_map(capture("npu-smi-info-m-a3.txt"))
    assert [(each["chip"], each["logic"], each["phy"]) for each in found] == [(0, 2, 2), (1, 3, 3)]


def test_a_temperature_of_zero_is_no_reading() -> None:
    text = "NPU ID : 2\nTemperature(C) : {}\nChip ID : 0\n"
    assert parse_blocks(text.format(0)) == [{"card": 2, "chip": 0}]
    assert parse_blocks(text.format(65))[0]["temperature_c"] == 65


@pytest.mark.parametrize("text", ["", "dcmi module initialize failed. ret is -8005", "NPU ID : x\nChip ID : y\n"])
def test_an_error_text_gives_no_chip_with_a_value(text: str) -> None:
    assert [each for each in parse_blocks(text) if set(each) - {"card", "chip"}] == []
    assert (parse_map(text), parse_list(text)) == ([], [])


@given(
    st.text() | st.lists(st.sampled_from([*USAGES.splitlines(), *BOARD.splitlines(), *MAP.splitlines()])).map("\n".join)
)
def test_any_text_gives_no_zero_for_what_is_not_known(text: str) -> None:
    for each in parse_blocks(text):
        assert each.get("memory", {"total": 1})["total"]
        assert 0 not in {each.get(key) for key in ("ai_cores", "aicore_clock_mhz", "aicore_clock_max_mhz", "power_w")}
    for each in parse_map(text):
        assert {"card", "chip", "logic"} <= set(each)
    assert all(chips > 0 for _, chips in parse_list(text))


@needs_captures
@given(st.data())
def test_mutated_captures_raise_nothing(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(CAPTURES.glob("*")))).read_text(encoding="utf-8")
    at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    mutated = text[:at] + data.draw(st.text(max_size=6)) + text[at + cut :]
    assert all(each.get("memory", {"total": 1})["total"] for each in parse_blocks(mutated))
    parse_map(mutated)
    parse_list(mutated)


@pytest.mark.parametrize("word", ["[N/A]", "ERR!", "N/A", "-"])
def test_a_word_that_stands_for_nothing_is_no_name_in_the_map(word: str) -> None:
    text = f"NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  {word}\n"
    assert parse_map(text) == [{"card": 0, "chip": 0, "logic": 0}]

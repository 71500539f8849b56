"""The table of npu-smi, in the layouts of all chips and releases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.ascend.hosts import CAPTURES, MIB, TABLE, capture, needs_captures
from vllm_probe.vendors.ascend.smi_table import (
    address_of,
    count_of,
    number_of,
    parse_chip_errors,
    parse_error,
    parse_table,
)

TWO_CHIPS = """
| npu-smi 24.9.2                   Version: 24.9.2                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 4     Ascend910           | OK            | 150.0       31                0    / 0             |
| 0     8                   | 0000:9C:00.0  | 0           0    / 0          3133 / 65536         |
| 4     Ascend910           | Critical      | -           NA                0    / 0             |
| 1     9                   | 0000:9E:00.0  | NA          0    / 0          -    / -             |
"""
APART = """
| NPU    | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
| Chip   |                  | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)         |
| 5      | Ascend950PR      | OK            | 195.6       56                0     / 0             |
|        |                  | 0000:61:00.0  | 7           0    / 0          5239  / 131072        |
"""
PROCESSES = """
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
| No running processes found in NPU 7                                                                           |
| 0       0                 | 4711          | python3            | 812                   | 12                      |
| 0       0                 | 4712          | python3            | 0                     | 13                      |
"""


def test_a_chip_takes_its_values_from_below_the_words_of_the_header() -> None:
    assert parse_table(TABLE) == {
        "devices": [
            {
                "card": 0,
                "chip": 0,
                "name": "910B4",
                "health": "ok",
                "power_w": 88.7,
                "temperature_c": 41.0,
                "id": "0000:c1:00.0",
                "utilization": 3,
                "memory": {"total": 32768 * MIB, "used": 2768 * MIB},
            }
        ]
    }


def test_two_chips_of_a_card_are_two_devices_and_what_is_not_told_is_left_out() -> None:
    first, second = parse_table(TWO_CHIPS)["devices"]
    assert (first["card"], first["chip"], first["phy"], first["id"]) == (4, 0, 8, "0000:9c:00.0")
    assert second == {"card": 4, "chip": 1, "phy": 9, "id": "0000:9e:00.0", "name": "Ascend910", "health": "critical"}


def test_hugepages_are_no_memory_of_the_device() -> None:
    (device,) = parse_table(TABLE.replace("  HBM-Usage(MB)", "").replace("0    / 0          2768", "2768"))["devices"]
    assert device["memory"] == {"total": 32768 * MIB, "used": 2768 * MIB}
    (device,) = parse_table(TABLE.replace("2768 / 32768", "0 / 0"))["devices"]
    assert "memory" not in device


def test_of_two_pairs_the_device_has_its_hbm() -> None:
    (device,) = parse_table(TABLE.replace("0    / 0          2768", "100 / 2000         2768"))["devices"]
    assert device["memory"]["total"] == 32768 * MIB


def test_a_power_or_temperature_of_zero_is_unknown_and_a_use_of_zero_is_known() -> None:
    text = TABLE.replace("88.7        41", "0.0         0 ").replace("| 3           0", "| 0           0")
    (device,) = parse_table(text)["devices"]
    assert not {"power_w", "temperature_c"} & set(device)
    assert device["utilization"] == 0
    assert "temperature_c" not in parse_table(TABLE.replace("        41  ", "        255 "))["devices"][0]


def test_memory_below_the_first_word_counts_where_the_chip_has_no_hbm() -> None:
    (device,) = parse_table(TABLE.replace("0    / 0          2768 / 32768", "1530 / 15609     0 / 0"))["devices"]
    assert device["memory"] == {"total": 15609 * MIB, "used": 1530 * MIB}


def test_a_table_with_the_name_in_a_cell_of_its_own_is_read() -> None:
    (device,) = parse_table(APART)["devices"]
    assert (device["card"], device["chip"], device["name"], device["id"]) == (5, 0, "Ascend950PR", "0000:61:00.0")
    assert device["memory"] == {"total": 131072 * MIB, "used": 5239 * MIB}


def test_processes_are_those_of_their_chip_and_an_empty_list_is_known() -> None:
    assert "processes" not in parse_table(TABLE)["devices"][0]
    assert parse_table(TABLE + PROCESSES)["devices"][0]["processes"] == [
        {"pid": 4711, "bytes": 812 * MIB, "kind": "compute"},
        {"pid": 4712, "bytes": None, "kind": "compute"},
    ]
    first, second = parse_table(TWO_CHIPS + PROCESSES.replace("| 0  ", "| 4  "))["devices"]
    assert (len(first["processes"]), second["processes"]) == (2, [])


def test_a_broken_row_costs_its_own_chip_only() -> None:
    broken = TWO_CHIPS.replace("| 0     8                   | 0000:9C:00.0  |", "| 0   ")
    first, second = parse_table(broken)["devices"]
    assert "id" not in first
    assert (second["id"], second["chip"]) == ("0000:9e:00.0", 1)


def test_a_chip_without_an_address_is_the_one_of_the_card_above() -> None:
    (device,) = parse_table(TABLE.replace("0000:C1:00.0", "NA"))["devices"]
    assert "id" not in device
    assert device["memory"]["total"] == 32768 * MIB


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n", -8005),
        ("dcmi module initialize failed. ret is -8020", -8020),
        (TABLE, None),
        ("ret is 8005", None),
        ("Failed to get temperature of npu 1 chip 0, ret is -8012", None),
        ("Failed to get power of npu 1, ret is -8012\ndcmi: ret is -8005", -8005),
        ("", None),
    ],
)
def test_the_status_of_dcmi_is_found_in_what_npu_smi_says(text: str, status: int | None) -> None:
    assert parse_error(text) == status


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("Failed to get temperature of npu 1 chip 0, ret is -8012", {(1, 0): -8012}),
        ("NPU ID: 7, Chip ID: 1 health failed. ret is -8008\nnpu 2: ret=-8020\n", {(7, 1): -8008, (2, 0): -8020}),
        ("npu-smi 24.1 failed. ret is -8005", {}),
        ("npu 1 is fine\nret is -8005", {}),
        (TABLE, {}),
    ],
)
def test_an_error_that_names_a_chip_is_that_chips(text: str, errors: dict[tuple[int, int], int]) -> None:
    assert parse_chip_errors(text) == errors


@pytest.mark.parametrize("word", ["NA", "-", "", "N/A", None, "0x3", "1e5"])
def test_what_is_no_number_is_unknown(word: str | None) -> None:
    assert number_of(word) is None
    assert count_of(word) is None
    assert address_of(word) is None


@needs_captures
@pytest.mark.parametrize(
    ("name", "places", "sizes", "addresses"),
    [
        ("npu-smi-23.0.0-310b4-nohbm.txt", [(0, 0)], [16367222784], [None]),
        (
            "npu-smi-25.2.0-a3-2npu-4chip.txt",
            [(0, 0), (0, 1), (1, 0), (1, 1)],
            [68719476736] * 4,
            ["0000:9c:00.0", "0000:9e:00.0", "0000:37:00.0", "0000:39:00.0"],
        ),
        ("npu-smi-26.0.rc1-910b4-wide.txt", [(0, 0)], [34359738368], ["0000:c1:00.0"]),
        (
            "npu-smi-24.1.0.1-310p3-2card-4chip.txt",
            [(1, 0), (1, 1), (2, 0), (2, 1)],
            [46430945280, 45815431168] * 2,
            ["0000:01:00.0"] * 2 + ["0000:02:00.0"] * 2,
        ),
        (
            "npu-smi-25.2.0-300iduo-1card-2chip.txt",
            [(2, 0), (2, 1)],
            [46430945280, 45815431168],
            ["0000:01:00.0"] * 2,
        ),
        (
            "npu-smi-25.0.rc1.1-310p3-hbmcol.txt",
            [(0, 0), (1, 0)],
            [46430945280, 45815431168],
            ["0000:81:00.0", "0000:41:00.0"],
        ),
        ("npu-smi-error-8005.txt", [], [], []),
    ],
)
def test_captures_give_their_values(
    name: str, places: list[tuple[int, int]], sizes: list[int], addresses: list[str | None]
) -> None:
    found = parse_table(capture(name))["devices"]
    assert [(each["card"], each["chip"]) for each in found] == places
    assert [each["memory"]["total"] for each in found] == sizes
    assert [each.get("id") for each in found] == addresses
    assert all(0 < each["memory"]["used"] < each["memory"]["total"] for each in found)


@needs_captures
def test_the_capture_of_an_error_gives_its_status() -> None:
    assert parse_error(capture("npu-smi-error-8005.txt")) == -8005


_TEXTS = st.text() | st.lists(st.sampled_from([*TABLE.splitlines(), *APART.splitlines(), *PROCESSES.splitlines()])).map(
    "\n".join
)


@given(_TEXTS, st.integers(0, 4000), st.text(max_size=8))
def test_any_text_gives_devices_without_a_size_of_zero(text: str, at: int, more: str) -> None:
    for each in parse_table(text[:at] + more + text[at:])["devices"]:
        assert {"card", "chip"} <= set(each)
        assert each.get("memory", {}).get("total") != 0
        assert each.get("power_w") != 0
    parse_error(text)
    assert all(status <= -8000 for status in parse_chip_errors(text + str(at)).values())


@needs_captures
@given(st.data())
def test_mutated_captures_give_devices_without_a_size_of_zero(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(CAPTURES.glob("npu-smi-2*")))).read_text(encoding="utf-8")
    at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    mutated = text[:at] + data.draw(st.text(max_size=6)) + text[at + cut :]
    assert all(each.get("memory", {"total": 1})["total"] for each in parse_table(mutated)["devices"])

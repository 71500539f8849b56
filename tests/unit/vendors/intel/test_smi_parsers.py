"""What is read in the outputs of xpu-smi and intel_gpu_top, and in any other text."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import ROOT
from tests.unit.vendors.intel import outputs
from tests.unit.vendors.intel.outputs import MIB
from vllm_probe.vendors.intel.gpu_top import parse_clock
from vllm_probe.vendors.intel.smi_csv import parse_csv
from vllm_probe.vendors.intel.smi_json import (
    parse_address,
    parse_discovery,
    parse_error,
    parse_pci_id,
    parse_stats,
)
from vllm_probe.vendors.intel.smi_text import parse_discovery_text, parse_stats_text, parse_summary

CAPTURES = ROOT.parent / "shared" / "data" / "captures" / "intel"
captured = pytest.mark.skipif(not CAPTURES.exists(), reason="the shared captures are not beside this checkout")
PARSERS: tuple[Callable[[str], Any], ...] = (
    parse_discovery,
    parse_stats,
    parse_error,
    parse_csv,
    parse_discovery_text,
    parse_stats_text,
    parse_summary,
    parse_clock,
)


HOSTILE = ("[" * 20_000, '{"a":' * 4_000, '{"device_list": ' + "9" * 5000, "index, " + "x" * 20_000)


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("before", ["", "Warning: x\n", "[2026-05-01 10:00:00.123] [warning] cannot open /dev/mei0\n"])
def test_the_list_is_found_behind_log_lines(before: str) -> None:
    assert len(parse_discovery(before + outputs.LIST_1)["devices"]) == 2


def test_the_list_of_1_has_no_memory_and_an_id_without_zeros() -> None:
    first, second = parse_discovery(outputs.LIST_1)["devices"]
    assert first == {
        "index": 0,
        "id": "0000:3a:00.0",
        "name": "Intel(R) Data Center GPU Flex 170",
        "pci_id": "8086:56c0",
        "function": "physical",
    }
    assert second == {"index": 1, "id": "0000:3b:00.0", "pci_id": "8086:020a"}


def test_sizes_are_texts_in_1_and_numbers_in_2() -> None:
    (one,) = parse_discovery(outputs.ONE_1)["devices"]
    assert one["memory"] == {"total": 15300820992, "free": 14000000000}
    assert (one["compute_units"], one["tiles"], one["ecc"], one["clock_max_mhz"]) == (512, 1, True, 2050)
    (two,) = parse_discovery(outputs.LIST_2)["devices"]
    assert two["memory"] == {"total": 24480 * MIB}
    assert two["state"] == "normal"


def test_a_list_that_is_null_is_a_list_without_devices() -> None:
    assert parse_discovery(outputs.NONE_2) == {"devices": [], "listed": True}
    assert parse_discovery("nothing") == {"devices": [], "listed": False}


def test_an_error_is_told_whatever_stands_before_it() -> None:
    assert parse_error(f"warning: x\n{outputs.ERROR}") == "Level Zero Initialization Error"
    assert parse_error(outputs.LIST_1) is None


def test_statistics_of_tiles_are_summed_and_a_clock_of_0_rests() -> None:
    assert parse_stats(outputs.STATS_1) == {"memory": {"used": 40 * MIB}, "power_w": 31.5, "temperature_c": 48}
    assert parse_stats(outputs.STATS_2) == {
        "memory": {"used": round(45.5 * MIB)},
        "power_w": 22.25,
        "clock_mhz": 2400,
        "temperature_c": 50,
    }


def test_a_query_has_units_in_its_header_or_none_and_unknown_cells() -> None:
    first, second = parse_csv(outputs.QUERY)["devices"]
    assert first == {
        "index": 0,
        "id": "0000:83:00.0",
        "name": "Intel(R) Arc(TM) Pro B60 Graphics",
        "memory": {"total": 24480 * MIB, "free": int(23469.5 * MIB), "used": int(1010.5 * MIB)},
    }
    assert second == {"index": 1, "id": "0000:84:00.0", "power_w": 41.25, "memory": {"total": 24480 * MIB}}
    rows = outputs.QUERY.partition("\n")[2]
    columns = ("index", "name", "pci.bus_id", "memory.total", "memory.used", "memory.free", "power.draw")
    assert parse_csv(rows, columns)["devices"] == [first, second]


def test_of_a_dump_the_last_row_of_each_device_tells() -> None:
    assert parse_csv(outputs.DUMP)["devices"] == [
        {"index": 0, "power_w": 15.25, "clock_mhz": 2050, "memory": {"used": int(30.5 * MIB)}},
        {"index": 1, "power_w": 15.0, "clock_mhz": 1300, "memory": {"used": 40 * MIB}},
    ]


def test_descriptions_are_read_with_a_box_and_without() -> None:
    first, second = parse_discovery_text(outputs.BOX_1)["devices"]
    assert first == {
        "index": 0,
        "id": "0000:29:00.0",
        "name": "Intel(R) Data Center GPU Max 1550",
        "compute_units": 1024,
        "tiles": 2,
        "ecc": False,
        "clock_max_mhz": 1600,
        "memory": {"total": 131072 * MIB},
    }
    assert second["id"] == "0000:9a:00.0"
    (plain,) = parse_discovery_text(outputs.PLAIN_2)["devices"]
    assert plain == {
        "index": 0,
        "id": "0000:03:00.0",
        "name": "Intel(R) Arc(TM) B580 Graphics",
        "pci_id": "8086:e20b",
        "state": "survivability mode",
        "driver_version": "17099999",
        "memory": {"total": 12216 * MIB, "free": 12000 * MIB},
    }


def test_statistics_in_a_table_are_summed_by_tile() -> None:
    assert parse_stats_text(outputs.STATS_TEXT) == {"memory": {"used": 56 * MIB}, "power_w": 90, "clock_mhz": 1600}


def test_the_summary_of_2_has_names_over_two_rows_or_none() -> None:
    assert parse_summary(outputs.SUMMARY_2)["devices"] == [
        {
            "index": 0,
            "id": "0000:83:00.0",
            "name": "Intel(R) Arc(TM) Pro B60 Graphics",
            "memory": {"total": 24480 * MIB, "used": 1000 * MIB},
            "power_w": 55.0,
            "power_limit_w": 200.0,
        },
        {"index": 1, "id": "0000:84:00.0", "memory": {"total": 24480 * MIB}},
    ]


@pytest.mark.parametrize("start", ["", "[\n"])
def test_the_clock_is_that_of_the_last_sample_that_has_one(start: str) -> None:
    def sample(actual: float) -> str:
        return json.dumps({"period": {"duration": 200}, "frequency": {"requested": 1, "actual": actual, "unit": "MHz"}})

    text = start + ",\n".join([sample(0), sample(1349.6), sample(1400.2), sample(0)])
    assert parse_clock(text) == 1400
    assert parse_clock(text + ',\n{"period": {"duration": 20') == 1400
    assert parse_clock(start + sample(0)) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [("0000:4D:00.0", "0000:4d:00.0"), ("00000000:03:00.0", "0000:03:00.0"), ("03:00.0", "0000:03:00.0"), ("", None)],
)
def test_addresses_are_written_as_sysfs_has_them(text: str, address: str | None) -> None:
    assert parse_address(text) == address


def test_a_pci_id_is_four_digits_of_intel() -> None:
    assert parse_pci_id("0x20a") == "8086:020a"
    assert parse_pci_id("56a0") is parse_pci_id(None) is None


@captured
def test_captures_of_1_give_the_listed_values() -> None:
    (listed,) = parse_discovery(capture("xpu-smi-1.3-discovery-list.json"))["devices"]
    assert (listed["id"], listed["pci_id"]) == ("0000:4d:00.0", "8086:020a")
    assert "memory" not in listed
    (one,) = parse_discovery_text(capture("xpu-smi-1.3-discovery-d.txt"))["devices"]
    assert (one["memory"], one["compute_units"], one["tiles"], one["ecc"]) == ({"total": 34359738368}, 512, 2, True)
    assert parse_stats_text(capture("xpu-smi-1.3-stats-d0.txt")) == {
        "memory": {"used": 24 * MIB},
        "power_w": 15,
        "clock_mhz": 2050,
        "temperature_c": 41,
    }
    assert parse_csv(capture("xpu-smi-1.3-dump.csv"))["devices"] == [{"index": 0, "power_w": 14.61}]
    assert parse_error(capture("xpu-smi-1.3-error-l0.json")) == "Level Zero Initialization Error"


@captured
def test_captures_of_2_give_the_listed_values() -> None:
    (one,) = parse_discovery_text(capture("xpu-smi-2.x-discovery-d0-a770.txt"))["devices"]
    assert (one["name"], one["pci_id"], one["state"]) == ("Intel(R) Arc(TM) A770 Graphics", "8086:56a0", "normal")
    (arc,) = parse_summary(capture("xpu-smi-2.0-summary-a770.txt"))["devices"]
    assert (arc["memory"]["total"], arc["name"]) == (17079205888, "Intel(R) Arc(TM) A770 Graphics")
    (nameless,) = parse_summary(capture("xpu-smi-2.0-summary-b580-noname.txt"))["devices"]
    assert (nameless["memory"]["total"], nameless["id"]) == (12809404416, "0000:09:00.0")
    assert "name" not in nameless


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key != "index":
                yield from numbers(part)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(outputs.ALL))
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        put = draw(st.text(max_size=6) | st.sampled_from(["0", "null", "-1", "[N/A]", "1e999", "NaN", "[" * 200, "\n"]))
        text = text[:start] + put + text[start + length :]
    return text


@given(st.text() | mutated() | st.sampled_from(HOSTILE))
def test_any_text_is_read_without_an_error_and_nothing_unknown_is_0(text: str) -> None:
    for parse in PARSERS:
        assert all(value > 0 for value in numbers(parse(text)))


@pytest.mark.parametrize("word", ["[N/A]", "ERR!", "N/A"])
def test_a_word_that_stands_for_nothing_is_no_name_in_csv(word: str) -> None:
    assert parse_csv(f"index, name\n0, {word}\n")["devices"] == [{"index": 0}]

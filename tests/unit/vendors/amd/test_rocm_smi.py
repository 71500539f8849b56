"""rocm-smi in all its generations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.amd.hosts import CAPTURES, capture, needs_captures
from vllm_probe.vendors.amd.rocm_smi import parse_rocm_smi

OLD = {
    "GPU ID": "0x66af",
    "Card series": "Radeon VII",
    "PCI Bus": "0000:0B:00.0",
    "VRAM Total Memory (B)": "17163091968",
    "VRAM Total Used Memory (B)": "9437184",
    "GPU use (%)": "0",
    "0": "8.0GT/s x16 *",
}
NEW = {
    "Device Name": "AMD Radeon RX 9070 XT",
    "Device ID": "0x7550",
    "Node ID": "2",
    "GFX Version": "gfx1201",
    "Card Series": "AMD Radeon RX 9070 XT",
    "PCI Bus": "0000:0D:00.0",
    "VRAM Total Memory (B)": "17095983104",
    "Average Graphics Package Power (W)": "N/A (Secondary die)",
    "Current Socket Graphics Package Power (W)": "14.0",
    "sclk clock speed:": "(23Mhz)",
}


@pytest.mark.parametrize("before", ["", "\n\n", "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n"])
def test_cards_of_every_release_come_in_order_of_their_numbers(before: str) -> None:
    text = json.dumps({"card10": NEW, "card2": OLD, "system": {"Driver version": "6.12.12", "PID7": "x"}})
    assert parse_rocm_smi(before + text) == [
        {
            "index": 2,
            "id": "0000:0b:00.0",
            "name": "Radeon VII",
            "pci_id": "0x66af",
            "driver": "6.12.12",
            "utilization": 0,
            "vram_total": 17163091968,
            "vram_used": 9437184,
        },
        {
            "index": 10,
            "id": "0000:0d:00.0",
            "name": "AMD Radeon RX 9070 XT",
            "pci_id": "0x7550",
            "arch": "gfx1201",
            "driver": "6.12.12",
            "kfd": 2,
            "power_w": 14.0,
            "core_clock_mhz": 23,
            "vram_total": 17095983104,
        },
    ]


def test_a_name_that_is_an_id_is_no_name() -> None:
    (device,) = parse_rocm_smi(json.dumps({"card0": OLD | {"Card series": "0x1002"}}))
    assert "name" not in device


@pytest.mark.parametrize(
    "text",
    ["", "ERROR:root:Driver not initialized (amdgpu not found in modules)", "No JSON data to report", "{}", "[]"],
)
def test_an_error_text_lists_nothing(text: str) -> None:
    assert parse_rocm_smi(text) == []


@needs_captures
@pytest.mark.parametrize(
    ("name", "count", "total", "address", "driver"),
    [
        ("rocm-smi-old-vega10.json", 1, 17163091968, "0000:04:00.0", "5.9.25"),
        ("rocm-smi-old-mi50.json", 1, 34342961152, "0000:63:00.0", "5.9.17"),
        ("rocm-smi-4.3-rx6700xt.json", 1, 12868124672, "0000:07:00.0", "6.3.6"),
        ("rocm-smi-5.7.1-rx6700xt.json", 1, 12868124672, "0000:07:00.0", "6.3.6"),
        ("rocm-smi-5.7.1-mi100.json", 6, 34342961152, "0000:1e:00.0", "6.2.4"),
        ("rocm-smi-6.0.2-rx6700xt.json", 1, 12868124672, "0000:07:00.0", "6.3.6"),
        ("rocm-smi-6.0.2-mi100.json", 4, 34342961152, "0000:83:00.0", "6.3.6"),
        ("rocm-smi-6.1.2-rx6700xt.json", 1, 12868124672, "0000:07:00.0", "6.3.6"),
    ],
)
def test_a_captured_answer_gives_the_listed_values(
    name: str, count: int, total: int, address: str, driver: str
) -> None:
    found = parse_rocm_smi(capture(name))
    assert len(found) == count
    assert {device["vram_total"] for device in found} == {total}
    assert (found[0]["id"], found[0]["driver"]) == (address, driver)


@needs_captures
def test_bogus_names_are_unknown_and_real_ones_are_kept() -> None:
    assert "name" not in parse_rocm_smi(capture("rocm-smi-4.3-rx6700xt.json"))[0]
    assert "name" not in parse_rocm_smi(capture("rocm-smi-old-vega10.json"))[0]
    (card,) = parse_rocm_smi(capture("rocm-smi-6.1.2-rx6700xt.json"))
    assert (card["name"], card["arch"]) == ("Navi 22 [Radeon RX 6700/6700 XT / 6800M]", "gfx1031")


@needs_captures
def test_captured_tables_list_cards_and_partitions() -> None:
    text = capture("rocm-smi-6.1.1-concise-and-tpx-hw.txt")
    concise, hardware = text.split("End of ROCm SMI Log", 1)
    assert [card["pci_id"] for card in parse_rocm_smi(concise)] == ["0x73bf", "0x73a3"]
    partitions = parse_rocm_smi(hardware)
    assert len(partitions) == 12
    assert len({card["id"] for card in partitions}) == 4
    assert [card["partition"] for card in partitions[:4]] == [0, 1, 2, 0]
    assert {(card["pci_id"], card["arch"]) for card in partitions} == {("0x74a0", "gfx942")}
    warned = parse_rocm_smi(capture("rocm-smi-7.1.1-lowpower-warning.txt"))
    assert [card["pci_id"] for card in warned] == ["0x7550", "0x7551"]


@needs_captures
def test_lines_are_read_and_a_die_without_power_of_its_own_has_none() -> None:
    found = parse_rocm_smi(capture("rocm-smi-6.0-power-secondary-die.txt"))
    assert [card.get("power_w") for card in found] == [None, 5.0, 4.0]


@needs_captures
def test_what_rocminfo_prints_when_it_fails_lists_nothing() -> None:
    assert parse_rocm_smi(capture("rocm-error-texts.txt")) == []


def test_what_rocm_smi_gives_for_unknown_is_no_reading() -> None:
    card = {"GPU use (%)": "65535", "Temperature (Sensor junction) (C)": "-273.0", "GFX Version": "gfx9010"}
    power = {"Average Graphics Package Power (W)": "65535.0", "sclk clock speed:": "(65535Mhz)"}
    assert parse_rocm_smi(json.dumps({"card0": card | power})) == [{"index": 0}]


@given(
    st.text()
    | st.lists(st.sampled_from(["GPU[0]\t\t: ", "VRAM Total Memory (B): 0\n", "0  1  0x73bf,  3 x\n", "{"])).map(
        "".join
    )
)
def test_any_text_gives_cards_without_a_size_of_zero(text: str) -> None:
    for card in parse_rocm_smi(text):
        assert card.get("vram_total") != 0


CAPTURED = sorted(CAPTURES.glob("rocm-smi*")) if CAPTURES.exists() else []


@given(st.data())
def test_any_mutated_answer_is_read(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([json.dumps({"card0": OLD, "card1": NEW}), *(p.read_text() for p in CAPTURED)]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    for card in parse_rocm_smi(text[:start] + data.draw(st.text(max_size=20)) + text[end:]):
        assert card.get("vram_total") != 0

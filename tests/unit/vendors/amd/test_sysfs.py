"""What amdgpu tells in sysfs, and that 0 never stands for unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from tests.unit.vendors.amd.hosts import BUS, capture_files, needs_captures, recorded
from vllm_probe.vendors.amd.sysfs import parse_levels, parse_unique_id, read_card

ADDRESS = "0000:03:00.0"


def card(files: dict[str, str], *, live: bool = True) -> dict[str, object]:
    return read_card(host_of(files=files), ADDRESS, live=live)


def test_a_card_has_sizes_load_clocks_temperatures_and_power() -> None:
    assert card(recorded("amd-workstation")["files"]) == {
        "vram_total": 25753026560,
        "vram_used": 1294336000,
        "gtt_total": 33554432000,
        "gtt_used": 93257728,
        "memory_vendor": "samsung",
        "vbios": "113-3E4710U-O4X",
        "utilization": 3,
        "core_clock_mhz": 41,
        "core_clock_max_mhz": 3220,
        "memory_clock_mhz": 96,
        "memory_clock_max_mhz": 1249,
        "temperature_c": 46.0,
        "junction_c": 52.0,
        "junction_limit_c": 110.0,
        "memory_temperature_c": 64.0,
        "power_w": 31.0,
        "power_limit_w": 339.0,
        "power_default_w": 339.0,
    }


def test_a_reading_that_cannot_be_is_left_out() -> None:
    files = {f"{BUS}/gpu_busy_percent": "65535\n", f"{BUS}/hwmon/hwmon1/temp1_input": "65535000\n"}
    assert card(files | {f"{BUS}/hwmon/hwmon1/power1_average": "65535000000\n"}) == {}


def test_of_a_card_that_sleeps_nothing_is_asked_that_would_wake_it() -> None:
    asleep = card(recorded("amd-workstation")["files"], live=False)
    assert {"utilization", "core_clock_mhz", "temperature_c", "power_w"}.isdisjoint(asleep)
    assert asleep["vram_total"] == 25753026560


@pytest.mark.parametrize("name", ["power1_average", "power1_input"])
def test_power_is_read_under_either_name(name: str) -> None:
    assert card({f"{BUS}/hwmon/hwmon2/{name}": "9000000\n"})["power_w"] == 9.0


def test_sensors_without_a_label_are_edge_junction_and_memory() -> None:
    files = {f"{BUS}/hwmon/hwmon2/temp{number}_input": f"{number}1000\n" for number in (1, 2, 3)}
    assert card(files) == {"temperature_c": 11.0, "junction_c": 21.0, "memory_temperature_c": 31.0}


def test_a_size_a_limit_or_a_temperature_of_zero_is_unknown_and_a_load_of_zero_is_not() -> None:
    files = {
        f"{BUS}/mem_info_vram_total": "0\n",
        f"{BUS}/mem_info_vram_used": "0\n",
        f"{BUS}/gpu_busy_percent": "0\n",
        f"{BUS}/hwmon/hwmon2/temp1_input": "0\n",
        f"{BUS}/hwmon/hwmon2/power1_average": "0\n",
        f"{BUS}/hwmon/hwmon2/power1_cap": "0\n",
    }
    assert card(files) == {"vram_used": 0, "utilization": 0}


@pytest.mark.parametrize(
    ("text", "now", "most"),
    [
        ("0: 167Mhz \n1: 945Mhz *\n", 945, 945),
        ("S: 19Mhz *\n0: 500Mhz \n1: 2500Mhz \n", 19, 2500),
        ("0: 96Mhz \n", None, 96),
        ("0: 0Mhz *\n", 0, None),
        ("", None, None),
    ],
)
def test_the_star_marks_the_present_level(text: str, now: int | None, most: int | None) -> None:
    assert parse_levels(text) == (now, most)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("deadbeef12345678\n", "0xdeadbeef12345678"),
        ("0x0000000000000001\n", "0x0000000000000001"),
        ("0\n", None),
        ("", None),
        ("serial-1\n", None),
    ],
)
def test_a_unique_id_is_written_as_kfd_writes_it(text: str, number: str | None) -> None:
    assert parse_unique_id(text) == number


@needs_captures
def test_a_captured_vega_10_has_its_memory_and_clocks() -> None:
    files = capture_files("sysfs-amdgpu-card0-i915-card1.txt")
    moved = {path.replace("/sys/class/drm/card0/device", BUS): text for path, text in files.items()}
    found = card(moved)
    assert (found["vram_total"], found["vram_used"]) == (8573157376, 1490378752)
    assert (found["memory_clock_mhz"], found["memory_clock_max_mhz"], found["utilization"]) == (167, 945, 4)


@given(st.dictionaries(st.sampled_from(["mem_info_vram_total", "gpu_busy_percent", "unique_id"]), st.text()))
def test_any_text_gives_a_value_or_nothing(texts: dict[str, str]) -> None:
    found = card({f"{BUS}/{name}": text.replace("!", "") for name, text in texts.items()})
    assert found.get("vram_total") != 0


@given(st.text() | st.text(alphabet="0123S: Mhz*\n"))
def test_any_levels_give_clocks_or_nothing(text: str) -> None:
    _, most = parse_levels(text)
    assert most is None or most > 0

"""Values that amd-smi and rocm-smi print."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.amd import printed


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("3.5", 3.5),
        ("(96Mhz)", 96.0),
        ({"value": 40, "unit": "%"}, 40.0),
        ({"value": "N/A", "unit": "W"}, None),
        ("N/A (Secondary die)", None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
        ([1], None),
    ],
)
def test_a_number_is_read_with_its_unit_and_words_are_unknown(value: object, number: float | None) -> None:
    assert printed.number(value) == number


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"value": 65520, "unit": "MB"}, 68702699520),
        ({"value": 128, "unit": "GB"}, 128 << 30),
        ("512 MB", 512 << 20),
        (16, 16 << 20),
        ({"value": 1, "unit": "furlong"}, None),
        (-1, None),
        (17163091968, None),
        ("N/A", None),
    ],
)
def test_a_megabyte_of_these_tools_is_a_mebibyte(value: object, size: int | None) -> None:
    assert printed.size(value) == size


@pytest.mark.parametrize("value", ["0x1002", "N/A", "n/a (x)", "", "  ", "12", None, 3, "a\nb", "\ud800", "x" * 999])
def test_what_stands_for_a_name_is_none(value: object) -> None:
    assert printed.name(value) is None


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("0000:1E:00.0", "0000:1e:00.0"),
        ("00000000:1E:00.0", "0000:1e:00.0"),
        ("1E:00.0", None),
        ("N/A", None),
    ],
)
def test_an_address_is_the_kernels(value: str, address: str | None) -> None:
    assert printed.address(value) == address


@pytest.mark.parametrize(
    ("value", "version"),
    [("6.12.12", "6.12.12"), ("6.3.6-1~22.04", "6.3.6-1~22.04"), ("Linuxversion6.14.0-24(x86)", None), ("N/A", None)],
)
def test_a_kernels_banner_is_no_version(value: str, version: str | None) -> None:
    assert printed.version(value) == version


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (printed.percent, 0, 0),
        (printed.percent, {"value": 100, "unit": "%"}, 100),
        (printed.percent, 65535, None),
        (printed.percent, 101, None),
        (printed.percent, -1, None),
        (printed.watts, "31.5", 31.5),
        (printed.watts, 0, None),
        (printed.watts, 65535.0, None),
        (printed.degrees, "0.0", None),
        (printed.degrees, "-40.0", -40.0),
        (printed.degrees, "-273.0", None),
        (printed.degrees, 65535, None),
        (printed.megahertz, "(96Mhz)", 96),
        (printed.megahertz, 0, 0),
        (printed.megahertz, 65535, None),
        (printed.megahertz, "N/A", None),
    ],
)
def test_a_reading_that_cannot_be_is_unknown(
    read: Callable[[object], float | None], value: object, expected: float | None
) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    ("value", "arch"),
    [
        ("gfx90a", "gfx90a"),
        ("gfx1100", "gfx1100"),
        ("GFX942", "gfx942"),
        ("gfx906", "gfx906"),
        ("gfx1250", "gfx1250"),
        ("gfx9010", None),
        ("gfx11000", None),
        ("gfx110", None),
        ("gfx9402", None),
        ("N/A", None),
    ],
)
def test_an_architecture_is_written_as_the_compiler_does(value: str, arch: str | None) -> None:
    assert printed.arch(value) == arch


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_value_is_a_number_a_size_a_name_or_unknown(value: object) -> None:
    printed.number(value)
    assert (printed.size(value) or 0) >= 0
    name = printed.name(value)
    assert name is None or name.encode()

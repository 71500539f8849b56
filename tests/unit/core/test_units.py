"""Sizes are read strictly and shown in binary units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.errors import BadUsage
from vllm_probe.core.units import format_bytes, format_figure, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 << 30), ("24 gb", 24 * 10**9), ("1.5MiB", 3 << 19), ("512", 512), ("2TiB", 2 << 40), ("7kb", 7000)],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1e9", "24G", "24 GiBs", "nan", "٣GiB", "1" * 30])
def test_anything_else_is_bad_usage(text: str) -> None:
    with pytest.raises(BadUsage):
        parse_size(text)


@given(st.text(max_size=12))
def test_arbitrary_text_gives_a_positive_size_or_bad_usage(text: str) -> None:
    try:
        size = parse_size(text)
    except BadUsage:
        return
    assert size > 0


def test_bytes_are_shown_in_the_largest_unit_that_holds_one() -> None:
    assert [format_bytes(n) for n in (None, 0, 1023, 1024, 3 << 29)] == ["?", "0 B", "1023 B", "1.00 KiB", "1.50 GiB"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (6.66748, "6.67"), (99.94, "99.9"), (137600, "137,600"), (1008, "1,008")]
)
def test_a_figure_has_three_digits_or_thousands_separators(value: float, text: str) -> None:
    assert format_figure(value) == text

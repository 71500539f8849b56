"""Processor lists and memory figures of the kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.host.stats import parse_cpu_list, read_stats


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("3-1", ()), ("0-99999", ()), ("x", ()), ("1,,2", ())],
)
def test_a_processor_list_is_read_or_empty(text: str, expected: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == expected


@given(st.sets(st.integers(0, 300)))
def test_a_processor_list_gives_the_numbers_it_was_written_from(numbers: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, numbers))) == tuple(sorted(numbers))


@given(st.text() | st.text(alphabet="MemTotal: 12kB\n"))
def test_any_text_gives_statistics(text: str) -> None:
    stats = read_stats(lambda _: text)
    assert stats.memory_total_bytes is None or stats.memory_total_bytes >= 0

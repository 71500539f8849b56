"""JSON in what vendors' tools print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.tool_json import json_behind


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('\n{"a": 1}\n', {"a": 1}),
        ('WARNING: AMD GPU device(s) is/are in a low-power state.\n\n[{"gpu": 0}]\nbye', [{"gpu": 0}]),
        ('[warning] look\n{"a": 1}', {"a": 1}),
        ('[2026-05-01 10:00:00.123] [error] cannot open\n{"a": 1}', {"a": 1}),
        ('[0] is busy\n[]\n{"a": 1}', {"a": 1}),
        ("[log] line\n" * 40 + '{"a": 1}', {"a": 1}),
        ("Driver not initialized", None),
        ('say {"a": 1}', None),
        ("{" * 100_000, None),
        ("", None),
    ],
)
def test_json_is_found_behind_other_text(text: str, value: object) -> None:
    assert json_behind(text) == value


def test_no_more_than_64_beginnings_are_tried() -> None:
    assert json_behind("[log] line\n" * 64 + '{"a": 1}') is None


@given(st.text() | st.text(alphabet='{}[]":,0 \n'))
def test_any_text_is_json_or_nothing(text: str) -> None:
    found = json_behind(text)
    assert found is None or isinstance(found, dict | list)

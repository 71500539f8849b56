"""What `input` may be: exactly OpenAI's four forms, in bounded time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.runtime.server.inputs import MAX_INPUTS, parse_input, parse_token_ids

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", [""]),
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([1.0, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a"] * MAX_INPUTS, ["a"] * MAX_INPUTS),
        ([1] * 10_000, [[1] * 10_000]),
    ],
)
def test_each_form_becomes_a_list(value: Any, wanted: Any) -> None:
    assert parse_input(value) == wanted


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "input is empty"),
        (None, "must be a string"),
        ({"a": 1}, "must be a string"),
        (b"a", "must be a string"),
        ([1.5], "item 0 of input is not a token id"),
        ([1.0, True], "item 1 of input is not a token id"),
        ([float("inf")], "item 0 of input is not a token id"),
        ([1, "a"], "item 1 of input is not a token id"),
        ([[1], [2, None]], "item 1 of input 1 is not a token id"),
        (["a", 1], "not a mixture"),
        ([[1], 1], "not a mixture"),
        (["a"] * (MAX_INPUTS + 1), "2049 inputs, the limit is 2048"),
        ([[]] * 100_000, "100000 inputs, the limit is 2048"),
    ],
)
def test_anything_else_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_input(value)


@pytest.mark.parametrize("value", [[], [1, 2], [3.0]])
def test_one_list_of_token_ids_may_be_empty(value: Any) -> None:
    assert parse_token_ids(value) == value


@pytest.mark.parametrize("value", [None, "a", 1, [True], [[1]], ["a"], [None]])
def test_what_is_not_a_list_of_token_ids_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="tokens must be a list of token ids"):
        parse_token_ids(value)


@given(JSON)
def test_what_is_taken_is_of_one_type_and_what_is_refused_a_value_error(value: Any) -> None:
    try:
        found = parse_input(value)
    except ValueError:
        return
    assert found
    assert all(type(item) is str for item in found) or all(type(id_) is int for item in found for id_ in item)

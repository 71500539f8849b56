"""What a checkpoint leaves alone is found by name, glob or expression, in bounded time."""

import warnings
from collections import deque
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.exceptions import matcher

QUERY = ("layers.3.self_attn.q_proj", "layers.3.self_attn.qkv_proj")
GATE = ("layers.13.mlp.gate_proj", "layers.13.mlp.gate_up_proj")
EXPERT = ("layers.3.mlp.experts.0.gate_proj", "layers.3.block_sparse_moe.experts.0.w1")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("model.layers.3.self_attn.q_proj", [QUERY]),
        ("model.language_model.layers.3.self_attn.q_proj", [QUERY]),
        ("language_model.model.layers.3.self_attn", [QUERY]),
        ("layers.3.self_attn.qkv_proj", [QUERY]),
        ("self_attn", [QUERY]),
        ("q_proj", [QUERY]),
        ("model.layers.3", [QUERY, EXPERT]),
        ("model.layers.1", []),
        ("gate_proj", [GATE, EXPERT]),
        ("mlp.gate", []),
        ("gate", []),
        ("lm_head", []),
        ("visual", []),
        ("vision_tower.encoder.layers.3.self_attn", []),
        ("model.layers.*.self_attn", [QUERY]),
        ("model.layers.3*", [QUERY, EXPERT]),
        ("model.layers.1*", [GATE]),
        ("*self_attn*", [QUERY]),
        ("*.mlp.gate.*", []),
        ("*.experts.*", [EXPERT]),
        ("model.language_model.layers.3.self_attn*", [QUERY]),
        ("mtp*", []),
        ("*", [QUERY, GATE, EXPERT]),
        ("re:.*self_attn.*", [QUERY]),
        ("re:.*\\.(?:q|k|v)_proj$", [QUERY]),
        ("re:model\\.layers\\.[0-9]+\\.mlp\\.gate_proj", [GATE]),
        ("re:language_model\\.model\\.layers\\.3\\.", [QUERY, EXPERT]),
        ("re:self_attn", []),
        ("re:.*", [QUERY, GATE, EXPERT]),
        ("re:model\\.layers\\.3\\.*", [QUERY, EXPERT]),
        ("re:.*mlp.gate$", []),
        ("re:^(?!.*layers\\.3\\.).*", [GATE]),
        ("re:.*layers\\.(3|4)\\..*experts.*", [EXPERT]),
        ("re:.*block_sparse_moe.experts.*", [EXPERT]),
        ("re:.*[[x]", [EXPERT]),
    ],
)
def test_a_pattern_means_what_the_engine_takes_it_to_mean(pattern: str, found: list[tuple[str, ...]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        means = matcher([pattern], "config.json")
    assert [names for names in (QUERY, GATE, EXPERT) if means(names)] == found


def test_anything_but_text_and_text_without_end_are_passed_over() -> None:
    assert not matcher([3, None, ["self_attn"], {"a": 1}, "self_attn" * 100], "config.json")(QUERY)
    assert not matcher([], "config.json")(QUERY)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("re:(", "cannot be compared"),
        ("re:(a+)+$", "repeated group"),
        ("re:(.*)*x", "repeated group"),
        ("re:(?:a|aa){1,50}b", "repeated group"),
        ("re:(a)\\1", "repeated group"),
        ("re:a{99999999999}", "cannot be compared"),
        ("re:" + "(" * 390, "cannot be compared"),
    ],
)
def test_an_expression_that_is_none_or_may_take_forever_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidModel, match=reason):
        matcher([pattern], "config.json")


@pytest.mark.parametrize("pattern", [".*a.+" * 12, "(a|a)" * 40 + "b", "a?" * 60, ".*a.*b.*c.*d.*e.*f.*g"])
def test_an_expression_that_takes_too_long_is_given_up(pattern: str) -> None:
    means = matcher([f"re:{pattern}"], "config.json")
    with pytest.raises(InvalidModel, match="too long to compare"):
        deque(map(means, repeat(QUERY, 100)), maxlen=0)


def test_more_patterns_than_a_checkpoint_has_are_refused() -> None:
    with pytest.raises(InvalidModel, match="lists 5000 patterns"):
        matcher([f"*{number}*" for number in range(5000)], "config.json")


@given(st.lists(st.text(max_size=20) | st.text("*.+?()|[]{}\\ab^$", max_size=12).map("re:{}".format), max_size=4))
def test_any_patterns_give_an_answer_or_a_typed_error(patterns: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            means = matcher(patterns, "config.json")
        except InvalidModel:
            return
        assert means(QUERY) in (True, False)

"""Layers are grouped by what they attend to, whichever way a config says it."""

from typing import Any

import pytest

from tests.unit.models.folders import DEEPSEEK_V4, GEMMA3, GEMMA4, GLM, GPT_OSS, LLAMA4, QWEN3, QWEN3_5
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import AttentionGroup, LinearShape, MlaShape, ModelSpec
from vllm_probe.models.config import parse_config


def parse(config: object) -> ModelSpec:
    return parse_config(config, name="m", source="config.json")


def groups(config: object) -> list[tuple[str, int, int | None]]:
    return [(group.kind, group.num_layers, group.window) for group in parse(config).attention_groups]


def test_layers_that_attend_to_everything_need_no_groups() -> None:
    assert groups(QWEN3) == []
    assert groups(QWEN3 | {"layer_types": ["full_attention"] * 2, "sliding_window": 16}) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GPT_OSS, [("sliding", 2, 16), ("full", 2, None)]),
        (GEMMA3, [("sliding", 7, 16), ("full", 1, None)]),
        (LLAMA4, [("chunked", 6, 64), ("full", 2, None)]),
        (QWEN3_5, [("linear", 3, None), ("full", 1, None)]),
    ],
)
def test_layers_of_several_kinds_are_counted_by_kind(
    config: dict[str, Any], expected: list[tuple[str, int, int | None]]
) -> None:
    assert groups(config) == expected


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def test_a_qwen_of_linear_layers_that_lists_none_has_a_full_one_in_four() -> None:
    text = without(QWEN3_5["text_config"], "layer_types")
    assert groups(QWEN3_5 | {"text_config": text}) == groups(QWEN3_5)
    assert groups(QWEN3_5 | {"text_config": text | {"full_attention_interval": 2}}) == [
        ("linear", 2, None),
        ("full", 2, None),
    ]
    flat = text | {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}
    assert groups(flat) == [("linear", 3, None), ("full", 1, None)]


def test_a_pattern_of_an_exaone_may_be_written_in_letters() -> None:
    exaone = QWEN3 | {"model_type": "exaone4", "architectures": None, "num_hidden_layers": 6, "sliding_window": 16}
    for pattern in ({"sliding_window_pattern": "LLLG"}, {"sliding_window_pattern": 4}, {}):
        assert groups(without(exaone, "use_sliding_window") | pattern) == [("sliding", 5, 16), ("full", 1, None)]
    with pytest.raises(InvalidModel, match="neither a number nor of L and G"):
        parse(without(exaone, "use_sliding_window") | {"sliding_window_pattern": "LLX"})


def test_a_window_is_used_where_the_model_type_or_the_config_says_so() -> None:
    assert groups(QWEN3 | {"sliding_window": 16}) == []
    assert groups(QWEN3 | {"sliding_window": 16, "use_sliding_window": True}) == [("sliding", 2, 16)]
    late = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}
    assert groups(QWEN3 | late) == [("full", 1, None), ("sliding", 1, 16)]
    mistral = {key: value for key, value in QWEN3.items() if key != "use_sliding_window"}
    mistral |= {"model_type": "mistral", "architectures": None}
    assert groups(mistral | {"sliding_window": 16}) == [("sliding", 2, 16)]
    assert groups(mistral) == []


def test_full_layers_may_have_heads_of_their_own_whose_values_are_the_keys() -> None:
    sliding, full = parse(GEMMA4).attention_groups
    assert sliding == AttentionGroup(kind="sliding", num_layers=2, window=16)
    assert full == AttentionGroup(kind="full", num_layers=1, num_kv_heads=1, head_dim=32, ties_values=True)


def test_linear_attention_has_its_own_heads() -> None:
    spec = parse(QWEN3_5)
    assert spec.linear == LinearShape(num_key_heads=2, num_value_heads=6, key_dim=8, value_dim=8, conv_width=4)
    assert spec.has_output_gate
    assert not parse(QWEN3).has_output_gate


def test_an_indexer_limits_what_full_layers_see() -> None:
    assert parse(GLM | {"index_topk": 2048}).attention_groups == (
        AttentionGroup(kind="full", num_layers=3, index_top=2048),
    )
    sparse = {"layer_types": ["deepseek_sparse_attention"] * 3, "index_topk": 2048}
    assert parse(GLM | sparse) == parse(GLM | {"index_topk": 2048})


def test_a_compressed_cache_is_indexed_where_it_is_fine() -> None:
    spec = parse(DEEPSEEK_V4)
    assert spec.attention_groups == (
        AttentionGroup(kind="sliding", num_layers=1, window=16),
        AttentionGroup(kind="compressed", num_layers=2, window=16, compression=4, index_top=16),
        AttentionGroup(kind="compressed", num_layers=1, window=16, compression=128),
    )
    assert spec.mla == MlaShape(
        q_rank=24,
        kv_rank=24,
        nope_dim=24,
        rope_dim=8,
        v_dim=32,
        index_heads=4,
        index_dim=8,
        num_indexers=2,
        o_groups=2,
        o_rank=12,
    )
    assert (spec.head_dim, spec.intermediate_size) == (32, 24)


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"layer_types": ["mamba", "full_attention"]}, UnsupportedModel, "mamba"),
        ({"layer_types": ["full_attention"]}, InvalidModel, "1 of 2"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, InvalidModel, "sliding layers without"),
        ({"layer_types": ["linear_attention", "full_attention"]}, InvalidModel, "linear layers without"),
        ({"num_kv_shared_layers": 2}, UnsupportedModel, "share"),
        ({"compress_ratios": [4], "sliding_window": 16}, InvalidModel, "compress_ratios"),
        ({"compress_ratios": [4, "x"], "sliding_window": 16}, InvalidModel, "compress_ratios"),
        ({"compress_ratios": [4, 4]}, InvalidModel, "compress_ratios"),
    ],
)
def test_layers_that_cannot_be_told_are_refused(change: dict[str, Any], error: type[Exception], reason: str) -> None:
    config = {key: value for key, value in QWEN3.items() if key != "use_sliding_window"}
    with pytest.raises(error, match=reason):
        parse(config | change)

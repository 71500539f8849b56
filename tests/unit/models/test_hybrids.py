"""Layers that keep a state are told from those that keep keys and values, and both are sized as vLLM sizes them."""

from typing import Any

import pytest

from tests.unit.models.hybrid_configs import HYBRIDS
from tests.unit.models.more_families import ENCODERS
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import LinearShape, ModelSpec
from vllm_probe.models.config import parse_config
from vllm_probe.models.modules import modules
from vllm_probe.models.safetensors import TensorInfo
from vllm_probe.models.weights import loaded_tensors, stored_bits
from vllm_probe.negotiate.kv import layout
from vllm_probe.negotiate.request import ranks_of
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.stages import stages_of

VECTOR = TensorInfo("F32", (8,), 0, 32)


def parse(config: dict[str, Any]) -> ModelSpec:
    return parse_config(config, name="m", source="config.json")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("granite-4.0-h-small", {"linear": 36, "full": 4}),
        ("granite-4.0-micro", {}),
        ("Bamba-9B", {"linear": 29, "full": 3}),
        ("Jamba-v0.1", {"linear": 28, "full": 4}),
        ("Nemotron-H-8B", {"linear": 24, "full": 4}),
        ("Nemotron-3-Nano-30B-A3B", {"linear": 23, "full": 6}),
        ("mamba-2.8b", {"linear": 64}),
        ("Falcon-H1-7B", {"linear": 44, "full": 44}),
        ("LFM2-8B-A1B", {"linear": 18, "full": 6}),
    ],
)
def test_layers_are_counted_by_what_they_keep(name: str, expected: dict[str, int]) -> None:
    assert {group.kind: group.num_layers for group in parse(HYBRIDS[name]).attention_groups} == expected


@pytest.mark.parametrize(
    ("name", "per_token", "state"),
    [
        ("granite-4.0-h-small", 4 * 2 * 8 * 128 * 2, 36 * (3 * (8192 + 2 * 128) + 128 * 64 * 128) * 2),
        ("Jamba-v0.1", 4 * 2 * 8 * 128 * 2, 28 * (3 * 8192 + 8192 * 16) * 2),
        ("Nemotron-H-8B", 4 * 2 * 8 * 128 * 2, 24 * (3 * (8192 + 2 * 8 * 128) * 2 + 128 * 64 * 128 * 4)),
        ("mamba-2.8b", 0, 64 * (3 * 5120 + 5120 * 16) * 2),
        ("Falcon-H1-7B", 44 * 2 * 2 * 128 * 2, 44 * (3 * (3072 + 2 * 256) + 24 * 128 * 256) * 2),
        ("LFM2-8B-A1B", 6 * 2 * 8 * 64 * 2, 18 * 2 * 2048 * 2),
    ],
)
def test_keys_and_values_take_bytes_a_token_and_states_bytes_a_sequence(name: str, per_token: int, state: int) -> None:
    need = analyse(parse(HYBRIDS[name]))
    assert (need.kv_bytes_per_token(2), need.state_bytes(2)) == (per_token, state)


def test_every_rank_repeats_the_only_group_of_a_mamba_2() -> None:
    spec = parse(HYBRIDS["granite-4.0-h-small"])
    assert 4 in ranks_of(spec)
    assert analyse(spec).state_bytes(2, 4) == 36 * (3 * (8192 // 4 + 2 * 128) + 128 // 4 * 64 * 128) * 2


def test_a_config_with_millions_of_heads_is_looked_at_no_longer_than_another() -> None:
    assert max(ranks_of(parse(HYBRIDS["Mamba-Codestral-7B"] | {"num_heads": 1 << 31}))) <= 4096


def test_the_cache_of_a_model_without_attention_is_a_state_for_each_sequence() -> None:
    spec = parse(HYBRIDS["mamba-2.8b"])
    need, (stage,) = analyse(spec), stages_of(spec.num_layers, 1)
    cache = layout(need, 2, 1, stage, 16, grouped=True, states=2)
    assert (cache.block_bytes, cache.blocks(100, 100), cache.blocks(2000, 100)) == (need.state_bytes(2), 1, 1)
    assert (spec.num_heads, spec.num_kv_heads, spec.intermediate_size, spec.max_model_len) == (0, 0, 0, 2048)
    assert "no limit" in spec.unknown["max_model_len"]
    assert 8 in ranks_of(spec)


def test_a_granite_without_experts_has_the_shared_feed_forward_alone() -> None:
    spec = parse(HYBRIDS["granite-4.0-h-micro"])
    assert (spec.moe, spec.intermediate_size, spec.rope_theta) == (None, 8192, None)
    assert parse(HYBRIDS["granite-4.0-micro"]).rope_theta == 1e4
    assert parse(HYBRIDS["granite-4.0-micro"]).linear is None


def test_experts_of_a_jamba_are_in_every_other_layer_and_those_of_a_nemotron_have_no_gates() -> None:
    jamba, nano = parse(HYBRIDS["Jamba-v0.1"]), parse(HYBRIDS["Nemotron-3-Nano-30B-A3B"])
    assert jamba.moe
    assert (jamba.moe.num_experts, jamba.moe.num_dense_layers) == (16, 16)
    assert nano.moe
    assert (nano.moe.num_shared, nano.moe.num_dense_layers, nano.is_gated) == (2, 0, False)
    assert nano.feed_forward_layers is not None
    assert (len(nano.feed_forward_layers), nano.feed_forward_layers[:3]) == (23, (1, 3, 6))


def test_a_state_space_without_a_rule_for_keys_has_the_rank_of_its_time_steps() -> None:
    expected = LinearShape(
        num_key_heads=0, num_value_heads=5120, key_dim=16, value_dim=1, conv_width=4, kind="mamba1", rank=160,
        state_width=2,
    )  # fmt: skip
    assert parse(HYBRIDS["mamba-2.8b"]).linear == expected


@pytest.mark.parametrize("name", HYBRIDS)
def test_every_linear_has_a_name_that_a_quantized_checkpoint_may_list(name: str) -> None:
    spec = parse(HYBRIDS[name])
    need = analyse(spec)
    pattern = HYBRIDS[name].get("hybrid_override_pattern", "")
    counted = range(sum(group.num_layers for group in spec.attention_groups if group.kind == "linear"))
    linear = [layer for layer, letter in enumerate(pattern) if letter == "M"] or counted
    named = sum(module.weights for module in modules(spec, linear))
    assert named == sum(gemm.weights for gemm in need.gemms if gemm.part not in ("lm_head", "kept"))


def test_linears_of_a_nemotron_are_listed_under_its_backbone() -> None:
    listed = ["backbone.layers.5.mixer.q_proj", "backbone.layers.0.mixer", "lm_head"]
    config = HYBRIDS["Nemotron-3-Nano-30B-A3B"] | {
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": listed}
    }
    spec = parse(config)
    assert (spec.quantization, spec.quantized_parts) == ("fp8", {})
    assert 8 < spec.stored_bits["attention"] < 9


@pytest.mark.parametrize(
    ("name", "place"), [("Falcon-H1-7B", "model.layers.0.mamba"), ("Mamba-Codestral-7B", "backbone.layers.0.mixer")]
)
def test_bits_of_a_state_space_count_to_its_attention(name: str, place: str) -> None:
    spec = parse(HYBRIDS[name])
    count = sum(module.weights for module in modules(spec, range(spec.num_layers)) if module.part == "attention")
    tensors = {f"{place}.in_proj.weight": TensorInfo("U8", (count,), 0, count), f"{place}.A_log": VECTOR}
    assert stored_bits(tensors, spec)["attention"] == 8


@pytest.mark.parametrize(
    ("config", "head"),
    [(ENCODERS["ModernBERT-base"], "decoder.bias"), (ENCODERS["distilbert-base"], "vocab_transform.weight")],
)
def test_heads_for_masked_words_are_not_loaded(config: dict[str, Any], head: str) -> None:
    assert list(loaded_tensors({head: VECTOR, "layers.0.mlp.Wo.weight": VECTOR}, parse(config))) == [
        "layers.0.mlp.Wo.weight"
    ]


@pytest.mark.parametrize(
    ("name", "change", "error", "reason"),
    [
        ("Nemotron-H-8B", {"moe_latent_size": 1024}, UnsupportedModel, "latent"),
        ("Nemotron-H-8B", {"hybrid_override_pattern": "M-*"}, InvalidModel, "pattern describes 3 of 52"),
        ("Nemotron-H-8B", {"hybrid_override_pattern": "MX" * 26}, UnsupportedModel, "'X'"),
        ("granite-4.0-h-small", {"mamba_n_heads": None, "mamba_d_state": 0}, InvalidModel, "mamba_n_heads"),
        ("Bamba-9B", {"num_hidden_layers": 1 << 30}, InvalidModel, "1024"),
        ("mamba-2.8b", {"time_step_rank": -1}, InvalidModel, "time_step_rank"),
    ],
)
def test_a_hybrid_that_cannot_be_sized_is_refused(
    name: str, change: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        parse(HYBRIDS[name] | change)


def test_layers_without_attention_are_for_model_types_that_have_them() -> None:
    llama = {key: value for key, value in HYBRIDS["Bamba-9B"].items() if "mamba" not in key} | {"model_type": "llama"}
    with pytest.raises(UnsupportedModel, match="'mlp'"):
        parse(llama | {"layer_types": ["mlp"] * 32})

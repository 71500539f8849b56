"""A config.json is read as transformers 4 and 5 write it, and whatever else it holds is refused by type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.folders import (
    BERT,
    DEEPSEEK_V4,
    GEMMA3,
    GEMMA4,
    GLM,
    GPT_OSS,
    LLAMA4,
    QWEN3,
    QWEN3_5,
    XLM_R,
)
from tests.unit.models.test_safetensors import json_values
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import MlaShape, ModelSpec, MoeShape
from vllm_probe.models.config import parse_config


def parse(config: object, **options: Any) -> ModelSpec:
    return parse_config(config, name="m", source="config.json", **options)


def test_a_bert_has_positions_token_types_and_biases_and_no_rotation() -> None:
    spec = parse(BERT)
    assert (spec.is_encoder, spec.task, spec.pooling, spec.normalizes) == (True, "embed", "cls", True)
    assert (spec.num_positions, spec.num_token_types, spec.position_offset, spec.max_model_len) == (512, 2, 0, 512)
    assert (spec.num_kv_heads, spec.head_dim, spec.is_gated, spec.has_bias) == (2, 4, False, True)
    assert (spec.activation, spec.norm_eps, spec.rope_theta, spec.dtype) == ("gelu", 1e-12, None, "float32")


def test_positions_of_an_xlm_roberta_begin_after_the_padding_token() -> None:
    spec = parse(XLM_R)
    assert (spec.num_positions, spec.position_offset, spec.max_model_len) == (8194, 2, 8192)
    assert spec.eos_token_ids == ()


def test_a_qwen3_keeps_its_own_head_width_and_norms_its_heads() -> None:
    spec = parse(QWEN3, generation={"eos_token_id": [31, 30]})
    assert (spec.task, spec.pooling, spec.ties_embeddings) == ("generate", None, True)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.hidden_size) == (4, 2, 8, 8)
    assert (spec.has_qk_norm, spec.has_qkv_bias, spec.is_gated) == (True, False, True)
    assert (spec.rope_theta, spec.dtype, spec.eos_token_ids) == (1e6, "bfloat16", (31, 30))


def test_transformers_5_says_the_same_in_other_keys() -> None:
    moved = {key: value for key, value in QWEN3.items() if key not in ("rope_theta", "rope_scaling", "torch_dtype")}
    moved |= {"dtype": "bfloat16", "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}
    assert parse(moved | {"layer_types": ["full_attention"] * 2}) == parse(QWEN3)


def test_the_text_part_of_a_multimodal_config_is_read() -> None:
    nested = {"architectures": ["SomethingForConditionalGeneration"], "text_config": QWEN3, "vision_config": {}}
    spec = parse(nested)
    assert spec.architecture == "SomethingForConditionalGeneration"
    assert (spec.model_type, spec.num_layers) == ("qwen3", 2)


def test_a_decoder_without_a_head_embeds_by_its_last_token() -> None:
    spec = parse(QWEN3 | {"architectures": ["Qwen3Model"], "tie_word_embeddings": False})
    assert (spec.task, spec.pooling, spec.normalizes, spec.ties_embeddings) == ("embed", "last", True, True)


@pytest.mark.parametrize(
    ("base", "architecture", "pooling"),
    [(XLM_R, "XLMRobertaForSequenceClassification", "cls"), (QWEN3, "Qwen3ForSequenceClassification", "last")],
)
def test_a_reranker_pools_and_is_not_normalised(base: dict[str, Any], architecture: str, pooling: str) -> None:
    spec = parse(base | {"architectures": [architecture]})
    assert (spec.architecture, spec.task, spec.pooling, spec.normalizes) == (architecture, "embed", pooling, False)


@pytest.mark.parametrize(
    ("name", "source", "scores"),
    [
        ("Qwen3-Reranker-0.6B", "config.json", True),
        ("0123abcd", "/hub/models--Qwen--Qwen3-Reranker-8B/snapshots/0123abcd/config.json", True),
        ("m", "/models/qwen3-reranker-4b-AWQ/config.json", True),
        ("Qwen3-0.6B", "/models/qwen3-reranker-trials/Qwen3-0.6B/config.json", False),
    ],
)
def test_qwen3_reranker_whose_config_is_a_generators_is_known_by_its_name(name: str, source: str, scores: bool) -> None:
    spec = parse_config(QWEN3 | {"architectures": ["Qwen3ForCausalLM"]}, name=name, source=source)
    assert (spec.task, spec.pooling) == (("embed", "last") if scores else ("generate", None))
    assert spec.architecture == ("Qwen3ForSequenceClassification" if scores else "Qwen3ForCausalLM")
    assert (spec.score_tokens, spec.normalizes) == (("no", "yes") if scores else (), False)


def test_latent_attention_ignores_the_decoy_head_width_and_counts_indexers() -> None:
    spec = parse(GLM)
    assert spec.mla == MlaShape(
        q_rank=24, kv_rank=16, nope_dim=12, rope_dim=4, v_dim=16, index_heads=4, index_dim=8, num_indexers=2
    )
    assert (spec.head_dim, spec.num_kv_heads, spec.rope_theta) == (16, 4, 8e6)
    assert spec.moe == MoeShape(num_experts=8, num_active=2, num_shared=1, expert_intermediate=32, num_dense_layers=1)


def test_every_layer_holds_an_indexer_when_none_is_shared() -> None:
    spec = parse({key: value for key, value in GLM.items() if key != "indexer_types"})
    assert spec.mla is not None
    assert spec.mla.num_indexers == 3


def test_latent_attention_may_lack_query_compression_and_indexers() -> None:
    spec = parse(GLM | {"model_type": "deepseek_v2", "architectures": None, "q_lora_rank": None, "index_n_heads": None})
    assert spec.mla is not None
    assert (spec.mla.q_rank, spec.mla.index_heads, spec.mla.num_indexers) == (None, 0, 0)
    assert spec.architecture == "DeepseekV2ForCausalLM"


@pytest.mark.parametrize("alias", ["n_routed_experts", "num_experts", "num_local_experts"])
def test_the_number_of_experts_has_several_names(alias: str) -> None:
    experts = {alias: 16, "num_experts_per_tok": 4, "moe_intermediate_size": 12, "mlp_only_layers": [0]}
    spec = parse(QWEN3 | experts | {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]})
    assert spec.moe == MoeShape(num_experts=16, num_active=4, num_shared=0, expert_intermediate=12, num_dense_layers=1)


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ({"type": "linear", "factor": 4.0}, 163840),
        ({"rope_type": "dynamic", "factor": 2.0}, 81920),
        ({"rope_type": "yarn", "factor": 4.0}, 40960),
        ({"rope_type": "llama3", "factor": 8.0}, 40960),
    ],
)
def test_only_linear_and_dynamic_scaling_stretch_the_positions(rope: dict[str, Any], length: int) -> None:
    assert parse(QWEN3 | {"rope_scaling": rope}).max_model_len == length


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (BERT | {"model_type": "retnet"}, "'retnet'"),
        (BERT | {"architectures": ["BertForTokenClassification"]}, "BertForTokenClassification"),
        (BERT | {"position_embedding_type": "relative_key"}, "relative"),
        (BERT | {"is_decoder": True}, "causal"),
        (GLM | {"moe_layer_freq": 2}, "alternate"),
        (QWEN3 | {"hidden_size_per_layer_input": 256}, "each layer"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_known_types(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        parse(config)
    assert "qwen3_moe, qwen3_next" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"model_type": None}, "model_type is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": -2}, "num_hidden_layers"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"vocab_size": 10**400}, "vocab_size"),
        ({"num_key_value_heads": 3}, "share 3"),
        ({"head_dim": None, "hidden_size": 9}, "hidden_size 9"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"torch_dtype": "float64"}, "float64"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "position"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "experts"),
        ({"num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 7}, "widths"),
    ],
)
def test_a_value_out_of_range_or_in_contradiction_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidModel, match=reason):
        parse(QWEN3 | change)


def test_a_config_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidModel):
        parse([1])


def test_positions_of_a_gemma_are_written_stretched_and_its_defaults_are_left_out() -> None:
    spec = parse(GEMMA3)
    assert (spec.max_model_len, spec.vocab_size, spec.rope_theta) == (131072, 262208, 1e6)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (8, 4, 256)
    assert (spec.ties_embeddings, spec.has_qk_norm, spec.activation) == (True, True, "gelu_pytorch_tanh")
    assert (spec.is_encoder, spec.pooling) == (False, None)


def test_a_gemma_that_looks_both_ways_embeds_and_rotates() -> None:
    text = GEMMA3["text_config"] | {"architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True}
    spec = parse(text)
    assert (spec.is_encoder, spec.task, spec.is_gated) == (True, "embed", True)
    assert (spec.num_positions, spec.rope_theta, spec.has_bias) == (0, 1e6, False)


def test_a_gpt_oss_has_biases_everywhere() -> None:
    spec = parse(GPT_OSS)
    assert (spec.has_bias, spec.has_qkv_bias, spec.is_encoder) == (True, False, False)


@pytest.mark.parametrize(("config", "num_shared"), [(LLAMA4, 1), (GEMMA4, 3), (QWEN3_5, 1), (DEEPSEEK_V4, 1)])
def test_a_shared_expert_is_counted_in_widths_of_a_routed_one(config: dict[str, Any], num_shared: int) -> None:
    spec = parse(config)
    assert spec.moe is not None
    assert (spec.moe.num_shared, spec.moe.num_dense_layers) == (num_shared, 0)


def test_the_rotation_of_full_layers_is_the_models() -> None:
    assert parse(GEMMA4).rope_theta == 1e6


def test_dense_layers_may_be_listed_by_kind() -> None:
    listed = {key: value for key, value in GLM.items() if key != "first_k_dense_replace"}
    spec = parse(listed | {"mlp_layer_types": ["dense", "sparse", "sparse"]})
    assert spec.moe is not None
    assert spec.moe.num_dense_layers == 1


ALL = [BERT, XLM_R, QWEN3, GLM, GEMMA3, GEMMA4, GPT_OSS, LLAMA4, QWEN3_5, DEEPSEEK_V4]


@given(st.sampled_from(ALL), st.data())
def test_any_value_anywhere_gives_a_model_or_a_typed_error(base: dict[str, Any], data: st.DataObject) -> None:
    text = base.get("text_config", base)
    keys = st.sampled_from([*text, "quantization_config", "rope_parameters", "layer_types", "compress_ratios", "dtype"])
    change = data.draw(st.dictionaries(keys, json_values, min_size=1, max_size=3))
    try:
        spec = parse(text | change, generation=data.draw(json_values))
    except (InvalidModel, UnsupportedModel):
        return
    assert min(spec.num_layers, spec.hidden_size, spec.head_dim, spec.max_model_len, spec.vocab_size) >= 1

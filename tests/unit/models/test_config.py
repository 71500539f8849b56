"""A config.json is read as transformers 4 and 5 write it, and whatever else it holds is refused by type."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.folders import BERT, GLM, QWEN3, XLM_R
from tests.unit.models.test_safetensors import json_values
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import MlaShape, ModelSpec, MoeShape
from vllm_probe.models.config import parse_config

SHARED = Path(__file__).parents[4] / "shared" / "data" / "models"


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


def group(**parts: object) -> dict[str, object]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": parts}}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (None, "none"),
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq_marlin"}, "gptq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (group(weights={"num_bits": 8, "type": "int"}, input_activations={"num_bits": 8}), "w8a8"),
        (group(weights={"num_bits": 8, "type": "int"}, input_activations=None), "w8a16"),
        (group(weights={"num_bits": 8, "type": "float"}), "fp8"),
        (group(weights={"num_bits": 4, "type": "int"}), "w4a16"),
        (group(weights={"num_bits": 4, "type": "float"}), "nvfp4"),
        (group(weights={"num_bits": [], "type": {}}), "compressed-tensors"),
    ],
)
def test_the_quantization_of_a_checkpoint_has_one_word(config: object, word: str) -> None:
    assert parse(QWEN3 | {"quantization_config": config}).quantization == word


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "model type ''"),
        (BERT | {"model_type": "mamba"}, "'mamba'"),
        (BERT | {"architectures": ["BertForSequenceClassification"]}, "BertForSequenceClassification"),
        (BERT | {"position_embedding_type": "relative_key"}, "relative"),
        (BERT | {"is_decoder": True}, "causal"),
        (QWEN3 | {"sliding_window": 4096, "use_sliding_window": True}, "window"),
        (QWEN3 | {"model_type": "mistral", "architectures": None, "sliding_window": 4096}, "window"),
        (QWEN3 | {"layer_types": ["linear_attention", "full_attention"]}, "window"),
        (GLM | {"moe_layer_freq": 2}, "alternate"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_known_types(config: dict[str, Any], reason: str) -> None:
    if "use_sliding_window" in config and config["model_type"] == "mistral":
        del config["use_sliding_window"]
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        parse(config)
    assert "qwen3, qwen3_moe, roberta" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_size": None}, "hidden_size"),
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
    ],
)
def test_a_value_out_of_range_or_in_contradiction_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidModel, match=reason):
        parse(QWEN3 | change)


def test_a_config_that_is_no_object_is_refused() -> None:
    with pytest.raises(UnsupportedModel):
        parse([1])


@given(st.sampled_from([BERT, XLM_R, QWEN3, GLM]), st.data())
def test_any_value_anywhere_gives_a_model_or_a_typed_error(base: dict[str, Any], data: st.DataObject) -> None:
    keys = st.sampled_from([*base, "text_config", "quantization_config", "rope_parameters", "layer_types", "dtype"])
    change = data.draw(st.dictionaries(keys, json_values, min_size=1, max_size=3))
    try:
        spec = parse(base | change, generation=data.draw(json_values))
    except (InvalidModel, UnsupportedModel):
        return
    assert min(spec.num_layers, spec.hidden_size, spec.head_dim, spec.max_model_len, spec.vocab_size) >= 1


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of public configs is not beside the repository")
def test_public_configs_give_their_shape_or_a_typed_refusal() -> None:
    shapes = {}
    for path in sorted(SHARED.glob("*.json")):
        config = json.loads(path.read_text())
        try:
            spec = parse(config)
        except UnsupportedModel:
            continue
        shapes[path.stem] = spec
        text = config.get("text_config", config)
        assert (spec.num_layers, spec.hidden_size) == (text["num_hidden_layers"], text["hidden_size"])
    assert len(shapes) >= 42
    llama, distilled, coder = (
        shapes[name] for name in ("Llama-3.1-8B", "DeepSeek-R1-Distill-Qwen-7B", "Qwen3-Coder-480B-A35B")
    )
    assert (llama.head_dim, llama.num_kv_heads, llama.max_model_len, llama.rope_theta) == (128, 8, 131072, 5e5)
    assert (distilled.has_qkv_bias, distilled.has_qk_norm) == (True, False)
    assert coder.moe is not None
    assert (coder.moe.num_experts, coder.moe.expert_intermediate) == (160, 2560)
    deepseek, glm, lite = (shapes[name].mla for name in ("DeepSeek-V3", "GLM-5.3-FP8", "DeepSeek-V2-Lite"))
    assert deepseek is not None
    assert glm is not None
    assert lite is not None
    assert (deepseek.q_rank, deepseek.kv_rank, deepseek.index_heads, lite.q_rank) == (1536, 512, 0, None)
    assert (glm.nope_dim, glm.v_dim, glm.index_heads, glm.num_indexers) == (192, 256, 32, 21)
    assert {shapes[name].quantization for name in ("DeepSeek-V3", "GLM-5.3-FP8", "Qwen3-32B-FP8")} == {"fp8"}

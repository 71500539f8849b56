"""One word for the whole checkpoint, and one for each part that is stored otherwise."""

from typing import Any

import pytest

from tests.unit.models.folders import DEEPSEEK_V4, GLM, GPT_OSS, QWEN3
from vllm_probe.models.config import parse_config


def read(config: dict[str, Any]) -> tuple[str, dict[str, str]]:
    spec = parse_config(config, name="m", source="config.json")
    return spec.quantization, spec.quantized_parts


def group(**parts: object) -> dict[str, object]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": parts}}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (None, "none"),
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq_marlin"}, "gptq"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (group(weights={"num_bits": 8, "type": "int"}, input_activations={"num_bits": 8}), "w8a8"),
        (group(weights={"num_bits": 8, "type": "int"}, input_activations=None), "w8a16"),
        (group(weights={"num_bits": 8, "type": "float"}), "fp8"),
        (group(weights={"num_bits": 4, "type": "int"}), "w4a16"),
        (group(weights={"num_bits": 4, "type": "float"}), "nvfp4"),
        (group(weights={"num_bits": [], "type": {}}), "compressed-tensors"),
        ({"quant_method": "auto_awq", "bits": 4}, "awq"),
        ({"quant_method": "auto_gptq", "bits": 4}, "gptq"),
        ({"quant_method": "modelopt_fp4", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "fp8"),
    ],
)
def test_the_quantization_of_a_checkpoint_has_one_word(config: object, word: str) -> None:
    assert read(QWEN3 | {"quantization_config": config}) == (word, {})


@pytest.mark.parametrize(
    ("config", "word", "says"),
    [
        ("awq", "awq", "no object but 'awq', read as the method"),
        ("FP8", "fp8", "no object but 'FP8'"),
        ("zip", "zip", "no object but 'zip'"),
        ({"quant_method": None}, "unknown", "names no method"),
        ({"quant_method": "", "bits": 4}, "unknown", "names no method"),
        ({"bits": 4, "group_size": 128}, "unknown", "names no method"),
        (["awq"], "unknown", "names no method"),
        (4, "unknown", "names no method"),
        ({"quant_algo": "NVFP4"}, "nvfp4", None),
        ({"quant_method": "hqq"}, "hqq", None),
        ({}, "none", None),
        ("", "none", None),
        (None, "none", None),
    ],
)
def test_a_config_that_no_engine_reads_is_not_taken_for_none(config: object, word: str, says: str | None) -> None:
    spec = parse_config(QWEN3 | {"quantization_config": config}, name="m", source="config.json")
    assert spec.quantization == word
    assert (says or "") in spec.unknown.get("quantization", "")
    assert ("quantization" in spec.unknown) == (says is not None)


def torchao(kind: str, **data: object) -> dict[str, object]:
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 1, "_data": data}}}


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        (torchao("Int8WeightOnlyConfig"), 8.0),
        (torchao("Float8DynamicActivationFloat8WeightConfig"), 8.0),
        (torchao("Int4WeightOnlyConfig", group_size=64), 4.5),
        (torchao("Float8DynamicActivationInt4WeightConfig"), 4.25),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}}, 4.5),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, 8.0),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 4 + 20 / QWEN3["hidden_size"]),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "nv_fp4", "group_size": 16}, 4.5),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32}, 4.25),
    ],
)
def test_the_bits_of_a_weight_are_those_that_the_config_names(config: object, bits: float) -> None:
    spec = parse_config(QWEN3 | {"quantization_config": config}, name="m", source="config.json")
    assert spec.stored_bits == {"attention": bits, "feed_forward": bits}


def test_a_format_of_torchao_that_is_not_known_has_no_bits() -> None:
    config = torchao("UIntXWeightOnlyConfig")
    spec = parse_config(QWEN3 | {"quantization_config": config}, name="m", source="config.json")
    assert (spec.quantization, spec.stored_bits) == ("torchao", {})


def test_attention_that_every_layer_leaves_alone_is_told() -> None:
    assert read(GPT_OSS) == ("mxfp4", {"attention": "none"})
    listed = [f"model.layers.{index}.self_attn*" for index in range(QWEN3["num_hidden_layers"])]
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert read(QWEN3 | {"quantization_config": config | {"ignore": ["lm_head", *listed]}})[1] == {"attention": "none"}
    some = ["lm_head", *listed[1:], "model.layers.0.self_attn.kv_a_proj", "re:.*self_attn.q_norm", 3]
    assert read(QWEN3 | {"quantization_config": config | {"ignore": some}})[1] == {}


def test_experts_of_four_bits_in_a_checkpoint_of_eight_are_told() -> None:
    assert read(DEEPSEEK_V4) == ("fp8", {"experts": "mxfp4"})


def test_mixed_precision_is_named_after_the_feed_forward() -> None:
    layers = {
        "model.layers.0.linear_attn.out_proj": {"quant_algo": "FP8"},
        "model.layers.1.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4"},
        "visual.merger": {"quant_algo": "INT8"},
    }
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert read(QWEN3 | {"quantization_config": config}) == ("nvfp4", {"attention": "fp8", "lm_head": "nvfp4"})


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}}, ("nvfp4", {"attention": "none"})),
        ({"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}, ("fp8", {"feed_forward": "none"})),
        ({"model.layers.0.mlp.up_proj": 3}, ("none", {})),
    ],
)
def test_what_mixed_precision_does_not_list_is_left_alone(layers: dict[str, Any], expected: tuple[str, Any]) -> None:
    assert read(QWEN3 | {"quantization_config": {"quant_method": "modelopt", "quantized_layers": layers}}) == expected


EIGHT = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FP8_GROUP = group(weights={"num_bits": 8, "type": "float"})


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (FP8_GROUP | {"kv_cache_scheme": EIGHT}, "fp8"),
        (FP8_GROUP | {"kv_cache_scheme": EIGHT | {"type": "int"}}, None),
        (FP8_GROUP | {"kv_cache_scheme": None}, None),
        (FP8_GROUP | {"kv_cache_scheme": [8]}, None),
        (MODELOPT | {"kv_cache_scheme": EIGHT}, "fp8_e4m3"),
        (MODELOPT | {"kv_cache_scheme": EIGHT | {"dynamic": True}}, None),
        (MODELOPT | {"kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        (MODELOPT | {"kv_cache_quant_algo": None}, None),
        (MODELOPT | {"kv_cache_quant_algo": 8}, None),
        (MODELOPT | {"quantization": {"kv_cache_quant_algo": "fp8"}}, "fp8_e4m3"),
        ({"quant_method": "fp8", "kv_cache_scheme": EIGHT}, None),
        (None, None),
    ],
)
def test_the_format_of_the_cache_is_what_the_checkpoint_states(config: object, word: str | None) -> None:
    spec = parse_config(QWEN3 | {"quantization_config": config}, name="m", source="config.json")
    assert (spec.kv_cache_dtype, spec.unknown) == (word, {})


def test_a_cache_of_four_bits_is_told_as_unknown() -> None:
    for stated in ({"kv_cache_quant_algo": "NVFP4"}, {"kv_cache_scheme": EIGHT | {"num_bits": 4}}):
        spec = parse_config(QWEN3 | {"quantization_config": MODELOPT | stated}, name="m", source="config.json")
        assert spec.kv_cache_dtype is None
        assert "states nvfp4" in spec.unknown["kv_cache_dtype"]


def test_latent_attention_takes_no_notice_of_the_scheme_of_llm_compressor() -> None:
    stated: dict[str, Any] = {"quantization_config": FP8_GROUP | {"kv_cache_scheme": EIGHT}}
    assert parse_config(GLM | stated, name="m", source="config.json").kv_cache_dtype is None
    stated = {"quantization_config": MODELOPT | {"kv_cache_quant_algo": "FP8"}}
    assert parse_config(GLM | stated, name="m", source="config.json").kv_cache_dtype == "fp8_e4m3"

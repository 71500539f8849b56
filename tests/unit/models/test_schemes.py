"""Every method says in its own way what it leaves alone, and that decides the bytes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.folders import DEEPSEEK_V4, GLM, GPT_OSS, QWEN3, QWEN3_5
from tests.unit.models.test_safetensors import json_values
from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.files import read_json
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import quantization
from vllm_probe.models.config import parse_config
from vllm_probe.negotiate import laws

ATTENTION, FEED_FORWARD = 768, 576  # weights of a layer of QWEN3
MOE = QWEN3 | {"model_type": "qwen3_moe", "architectures": None, "num_experts": 4, "num_experts_per_tok": 2}
MOE |= {"moe_intermediate_size": 24, "tie_word_embeddings": False}


def parse(quantization: dict[str, Any], base: dict[str, Any] = QWEN3) -> ModelSpec:
    return parse_config(base | {"quantization_config": quantization}, name="m", source="config.json")


def linear(bits: int, kind: str = "int", **weights: object) -> dict[str, Any]:
    return {"weights": {"num_bits": bits, "type": kind, **weights}, "targets": ["Linear"]}


def compressed(*groups: dict[str, Any], **others: object) -> dict[str, Any]:
    named = {f"group_{index}": group for index, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **others}


@pytest.mark.parametrize(
    ("config", "word", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", None),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}, "awq", 4 + 20 / 32),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "gptq", None),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq", 8 + 24 / 128),
        ({"quant_method": "gptq", "bits": 3, "group_size": 64}, "gptq", 3 + 19 / 64),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"}, "auto-round", None),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 64}, "auto-round", 2 + 18 / 64),
        ({"quant_method": "inc", "bits": 4, "group_size": 128}, "inc", None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", None),
        ({"quant_method": "fbgemm_fp8", "weight_block_size": [128, 128]}, "fbgemm_fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", None),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            "bitsandbytes",
            4 + 8 / 64 + 32 / 16384,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 8 + 32 / 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "quark", None),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "quark", 4.25),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4"}}}, "quark", 4.125),
        ({"quant_method": "torchao"}, "torchao", None),
        (compressed(linear(4, group_size=128)), "w4a16", None),
        (compressed(linear(4, group_size=32, symmetric=False)), "w4a16", 4 + 20 / 32),
        (compressed(linear(8, "float")), "fp8", None),
        (compressed(linear(4, "float", group_size=16)), "nvfp4", None),
        (compressed(linear(2, group_size=32)), "compressed-tensors", 2.5),
    ],
)
def test_a_method_has_a_word_and_its_bits_where_the_word_does_not_say_them(
    config: dict[str, Any], word: str, bits: float | None
) -> None:
    spec = parse(config)
    assert (spec.quantization, spec.quantized_parts) == (word, {})
    assert spec.stored_bits == ({"attention": bits, "feed_forward": bits} if bits else {})


def test_whole_numbers_of_four_bits_with_activations_of_eight_have_their_own_word() -> None:
    group = linear(4, group_size=128) | {"input_activations": {"num_bits": 8, "type": "float"}}
    assert parse(compressed(group)).quantization == "w4a8"


def test_the_usual_bits_of_a_word_are_those_that_negotiate_takes_for_it() -> None:
    methods = read_json(Path(laws.__file__).with_name("methods.json"))
    assert {word: methods[word]["bits"] for word in quantization._USUAL} == quantization._USUAL


FIRST = {"attention": (4.15625 + 16) / 2}
LISTS: list[tuple[dict[str, Any], dict[str, str], dict[str, float]]] = [
    ({"quant_method": "awq", "modules_to_not_convert": ["self_attn"]}, {"attention": "none"}, {}),
    ({"quant_method": "awq", "modules_to_not_convert": ["model.layers.0.self_attn"]}, {}, FIRST),
    ({"quant_method": "awq", "modules_to_not_convert": ["visual", "lm_head"]}, {}, {}),
    ({"quant_method": "gptq", "dynamic": {"-:.*self_attn.*": {}}}, {"attention": "none"}, {}),
    ({"quant_method": "gptq", "dynamic": {r"-:.*layers\.0\.self_attn.*": {}}}, {}, FIRST),
    (
        {"quant_method": "gptq", "bits": 4, "dynamic": {r"+:.*\.down_proj.*": {"bits": 8, "group_size": 32}}},
        {},
        {"feed_forward": (2 * 4.15625 + 8 + 24 / 32) / 3},
    ),
    (
        {"quant_method": "gptq", "modules_in_block_to_quantize": [["self_attn.q_proj", "self_attn.k_proj"], ["mlp"]]},
        {},
        {"attention": (4.15625 * (256 + 128) + 16 * (128 + 256)) / 768},
    ),
    ({"quant_method": "gptq", "lm_head": True}, {"lm_head": "gptq"}, {}),
    (
        {"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp"], "weight_block_size": [128, 128]},
        {},
        {"feed_forward": (8 + 32 / 16384 + 16) / 2},
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"]},
        {"attention": "none"},
        {},
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.layers.1.*", "lm_head"]},
        {},
        {"attention": (4.5 + 16) / 2, "feed_forward": (4.5 + 16) / 2},
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["mlp"]},
        {"feed_forward": "none"},
        {},
    ),
    (
        {
            "quant_method": "quark",
            "exclude": ["re:.*self_attn.*", "lm_head"],
            "global_quant_config": {"weight": {"dtype": "fp4"}},
            "layer_quant_config": {"*down_proj": {"weight": {"dtype": "fp8_e4m3"}}},
        },
        {"attention": "none"},
        {"feed_forward": (2 * 4.25 + 8) / 3},
    ),
    (
        {"quant_method": "auto-round", "bits": 4, "extra_config": {"model.layers.0.self_attn": {"bits": 16}}},
        {},
        FIRST,
    ),
    (compressed(linear(4, group_size=128), ignore=["lm_head", "re:.*self_attn.*"]), {"attention": "none"}, {}),
    (
        compressed(linear(4, group_size=128), ignore=["model.layers.1.mlp.down_proj"]),
        {},
        {"feed_forward": (5 * 4.125 + 16) / 6},
    ),
    (
        compressed(
            linear(8, "float") | {"targets": ["re:.*self_attn.*"]},
            linear(4, "float", group_size=16) | {"targets": ["re:.*mlp.*", "lm_head"]},
        ),
        {"attention": "fp8", "lm_head": "nvfp4"},
        {},
    ),
]


@pytest.mark.parametrize(("config", "parts", "bits"), LISTS)
def test_what_a_list_leaves_alone_keeps_its_bits(
    config: dict[str, Any], parts: dict[str, str], bits: dict[str, float]
) -> None:
    spec = parse(config)
    assert spec.quantized_parts == parts
    assert spec.stored_bits == pytest.approx(bits)


def test_an_expression_for_each_layer_of_a_large_model_is_compared() -> None:
    dynamic: dict[str, object] = {rf"-:.*layers\.{layer}\..*self_attn.*": {} for layer in range(47)}
    spec = parse({"quant_method": "gptq", "dynamic": dynamic}, MOE | {"num_hidden_layers": 94})
    assert spec.stored_bits == {"attention": pytest.approx((4.15625 + 16) / 2)}


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "gptq", "dynamic": {f"-:.*layers.{number}.*": {} for number in range(300)}},
        {"quant_method": "quark", "layer_quant_config": {f"layers.{number}.*": {} for number in range(300)}},
        {"quant_method": "compressed-tensors", "config_groups": {str(number): {} for number in range(300)}},
        {"quantized_layers": {f"a.{number}": {"quant_algo": f"W{number}"} for number in range(300)}},
    ],
)
def test_more_settings_than_a_checkpoint_has_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidModel, match="300"):
        parse(config)


def test_experts_alone_may_be_quantized() -> None:
    spec = parse({"quant_method": "mxfp4"}, MOE)
    assert (spec.quantization, spec.quantized_parts) == ("mxfp4", {"attention": "none"})
    config = compressed(linear(4, group_size=32), ignore=["re:.*self_attn.*", "re:.*shared_experts.*", "lm_head"])
    spec = parse_config(GLM | {"quantization_config": config}, name="m", source="config.json")
    assert (spec.quantization, spec.quantized_parts["attention"]) == ("w4a16", "none")
    assert spec.stored_bits["experts"] == 4.5
    dense, shared = 64 * 96, 2 * 64 * 32
    assert spec.stored_bits["feed_forward"] == pytest.approx((4.5 * dense + 16 * shared) / (dense + shared))


def test_layers_of_a_hybrid_are_told_apart() -> None:
    listed = ["model.language_model.layers.0.linear_attn", "model.language_model.layers.3.self_attn"]
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": listed}
    base = QWEN3_5 | {"text_config": QWEN3_5["text_config"] | {"quantization_config": config}}
    spec = parse_config(base, name="m", source="config.json")
    rest, left = 2 * 64 * (80 + 48 + 48), 64 * (80 + 48 + 48) + 64 * (128 + 32 + 32 + 64)
    assert spec.stored_bits["attention"] == pytest.approx(((8 + 32 / 16384) * rest + 16 * left) / (rest + left))


METHODS = ["awq", "gptq", "fp8", "modelopt", "mxfp4", "quark", "bitsandbytes", "compressed-tensors", "auto-round", "x"]
KEYS = ["bits", "group_size", "weight_block_size", "dynamic", "config_groups", "ignore", "exclude_modules", "exclude"]
KEYS += ["quantized_layers", "quant_algo", "extra_config", "layer_quant_config", "global_quant_config", "lm_head"]


@given(
    st.sampled_from([QWEN3, MOE, GLM, GPT_OSS, DEEPSEEK_V4]),
    st.sampled_from(METHODS),
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4),
)
def test_any_quantization_gives_a_model_or_a_typed_error(
    base: dict[str, Any], method: str, config: dict[str, Any]
) -> None:
    try:
        spec = parse({"quant_method": method, **config}, base)
    except InvalidModel:
        return
    assert all(0 < bits <= 1 << 21 for bits in spec.stored_bits.values())


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": ["awq"], "bits": 4},
        {"quant_method": 4},
        {"quant_method": "awq", "bits": -4},
        {"quant_method": "gptq", "bits": 0},
        {"quant_method": "gptq", "bits": 65},
        {"quant_method": "awq", "w_bit": "4"},
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*up.*": {"bits": 8.5}}},
    ],
)
def test_a_method_or_bits_of_another_type_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidModel, match=r"config\.json: .*(?:quant|bit)"):
        parse(config)

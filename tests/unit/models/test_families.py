"""Model types beyond the catalogue's are read in their own keys."""

from typing import Any

import pytest

from tests.unit.models.families import CONFIGS, OF_OWN_CODE
from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.models.config import parse_config
from vllm_probe.negotiate.requirements import analyse


def parse(config: dict[str, Any]) -> ModelSpec:
    return parse_config(config, name="m", source="config.json")


@pytest.mark.parametrize("name", OF_OWN_CODE)
def test_a_model_has_the_parameters_that_it_is_published_with(name: str) -> None:
    config, published = OF_OWN_CODE[name]
    assert analyse(parse(config)).computed_parameters == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_one_of_them_generates(name: str) -> None:
    spec = parse(CONFIGS[name])
    assert (spec.task, spec.pooling, spec.is_encoder) == ("generate", None, False)
    assert bool(spec.vision_parameters) == ("-vl-" in name)


def test_an_opt_has_learned_positions_behind_two_spare_rows_and_no_gates() -> None:
    spec = parse(CONFIGS["opt-125m"])
    assert (spec.num_positions, spec.position_offset, spec.max_model_len, spec.rope_theta) == (2050, 2, 2048, None)
    assert (spec.is_gated, spec.has_bias, spec.ties_embeddings, spec.activation) == (False, True, True, "relu")


def test_an_opt_whose_embeddings_are_narrower_than_its_layers_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="another width"):
        parse(CONFIGS["opt-125m"] | {"word_embed_proj_dim": 512})


def test_a_falcon_shares_one_key_head_unless_it_is_of_the_newer_kind() -> None:
    heads = [
        (spec.num_heads, spec.num_kv_heads) for spec in (parse(CONFIGS["falcon-7b"]), parse(CONFIGS["falcon-40b"]))
    ]
    assert heads == [(71, 1), (128, 8)]
    assert parse(CONFIGS["falcon-7b"]).intermediate_size == 4 * 4544
    assert parse(CONFIGS["falcon-7b"] | {"multi_query": False}).num_kv_heads == 71
    assert parse(CONFIGS["falcon-7b"] | {"alibi": True, "bias": True}).rope_theta is None


def test_a_chatglm_is_a_generator_in_its_own_keys() -> None:
    spec = parse(OF_OWN_CODE["glm-4-9b-chat"][0])
    assert (spec.task, spec.num_kv_heads, spec.head_dim, spec.max_model_len) == ("generate", 2, 128, 131072)
    assert (spec.has_qkv_bias, spec.norm_eps) == (True, 1.5625e-07)


def test_only_the_smaller_baichuan_rotates_its_positions() -> None:
    large = OF_OWN_CODE["Baichuan2-13B-Chat"][0]
    assert (parse(large).rope_theta, parse(large).max_model_len, parse(large).num_positions) == (None, 4096, 0)
    assert parse(large | {"hidden_size": 4096, "num_attention_heads": 32}).rope_theta == 1e4
    assert parse(large | {"architectures": ["BaiChuanForCausalLM"]}).task == "generate"


def test_the_length_that_a_command_r_states_apart_goes_before_its_positions() -> None:
    assert parse(CONFIGS["c4ai-command-r-v01"]).max_model_len == 131072


def test_a_command_r7b_sees_everything_in_one_layer_of_four() -> None:
    groups = {group.kind: group.num_layers for group in parse(CONFIGS["c4ai-command-r7b"]).attention_groups}
    assert groups == {"sliding": 24, "full": 8}

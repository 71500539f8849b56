"""Model types beyond the catalogue's are read in their own keys."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.aliases import MIMO, MULTIMODAL, ROUNDED
from tests.unit.models.families import CONFIGS, OF_OWN_CODE, decoder
from tests.unit.models.hybrid_configs import HYBRIDS
from tests.unit.models.more_families import DECODERS, ENCODERS, GTE_BASE, REFUSED
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import LayerInputs, ModelSpec
from vllm_probe.models.config import parse_config
from vllm_probe.models.families import ARCHITECTURES
from vllm_probe.negotiate.kv import layout
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.stages import stages_of


def parse(config: dict[str, Any]) -> ModelSpec:
    return parse_config(config, name="m", source="config.json")


@pytest.mark.parametrize("name", OF_OWN_CODE)
def test_a_model_has_the_parameters_that_it_is_published_with(name: str) -> None:
    config, published = OF_OWN_CODE[name]
    assert analyse(parse(config)).computed_parameters == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize("name", ROUNDED)
def test_a_model_of_another_ones_layers_has_the_parameters_that_its_card_says(name: str) -> None:
    config, published = ROUNDED[name]
    decimals = len(published.partition(".")[2])
    assert f"{analyse(parse(config)).computed_parameters / 1e9:.{decimals}f}" == published


@pytest.mark.parametrize("name", MULTIMODAL)
def test_a_model_that_sees_or_hears_has_the_parameters_that_its_card_says(name: str) -> None:
    config, published = MULTIMODAL[name]
    spec = parse(config)
    assert f"{(analyse(spec).computed_parameters + spec.vision_parameters) / 1e9:.2f}" == published
    assert (spec.task, spec.num_layers, spec.unknown) == ("generate", 32 if "Phi" in name else 28, {})


def test_of_a_qwen_that_speaks_only_the_part_that_thinks_is_read() -> None:
    spec = parse(
        {
            "model_type": "qwen3_omni_moe",
            "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
            "thinker_config": {
                "text_config": decoder(
                    *(2048, 48, 32, 4, 768, 152064),
                    model_type="qwen3_omni_moe_text",
                    head_dim=128,
                    moe_intermediate_size=768,
                    num_experts=128,
                    num_experts_per_tok=8,
                ),
                "audio_config": {"model_type": "qwen3_omni_moe_audio_encoder", "output_dim": 2048},
            },
        }
    )
    assert (spec.model_type, spec.has_qk_norm, spec.task) == ("qwen3_omni_moe_text", True, "generate")
    assert spec.vision_parameters == 649_894_784 - 1281 * (3584 - 2048)


def test_a_mimo_has_a_layer_for_further_tokens_that_is_not_counted() -> None:
    spec = parse(MIMO)
    layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 11008 + 2 * 4096 * 4096
    assert f"{(analyse(spec).computed_parameters + layer) / 1e9:.2f}" == "7.83"
    assert (spec.architecture, spec.has_qkv_bias, spec.attention_groups) == ("MiMoForCausalLM", True, ())


def test_a_camembert_is_a_roberta() -> None:
    config = {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 32005, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1,
    }  # fmt: skip
    spec = parse({"model_type": "camembert", "architectures": ["CamembertModel"], **config})
    roberta = parse({"model_type": "roberta", "architectures": ["RobertaModel"], **config})
    assert spec == replace(roberta, model_type="camembert", architecture="CamembertModel")
    assert (spec.max_model_len, spec.num_positions) == (512, 514)


def test_the_first_qwen_halves_its_feed_forward_and_takes_the_shorter_length() -> None:
    spec = parse(ROUNDED["Qwen-7B"][0])
    assert (spec.intermediate_size, spec.max_model_len, spec.has_qkv_bias) == (11008, 8192, True)


def test_encoders_may_rotate_positions_and_keep_their_biases() -> None:
    jina = parse(ROUNDED["jina-embeddings-v3, its adapters merged"][0])
    assert (jina.rope_theta, jina.num_positions, jina.max_model_len) == (20000, 0, 8194)
    assert (jina.has_bias, jina.is_gated, jina.task) == (True, False, "embed")
    nomic = parse(ROUNDED["nomic-embed-text-v2-moe"][0])
    assert nomic.moe
    assert (nomic.moe.num_active, nomic.moe.num_dense_layers, nomic.has_bias, nomic.is_gated) == (2, 6, True, False)


def test_a_llama_that_looks_both_ways_pools_as_its_config_says() -> None:
    spec = parse(ROUNDED["llama-nemotron-embed-1b"][0])
    assert (spec.task, spec.is_encoder, spec.pooling, spec.normalizes) == ("embed", True, "mean", True)
    with pytest.raises(InvalidModel, match="pooling '' is none of avg, cls, last"):
        parse(ROUNDED["llama-nemotron-embed-1b"][0] | {"pooling": None})


GENERATORS = CONFIGS | DECODERS | HYBRIDS


@pytest.mark.parametrize("name", GENERATORS)
def test_every_one_of_them_generates(name: str) -> None:
    spec = parse(GENERATORS[name])
    assert (spec.task, spec.pooling, spec.is_encoder) == ("generate", None, False)
    assert bool(spec.vision_parameters) == ("vision_config" in GENERATORS[name])


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


def test_a_bloom_has_no_positions_and_no_longest_input_unless_it_states_one() -> None:
    spec = parse(DECODERS["bloom-560m"])
    assert (spec.rope_theta, spec.num_positions, spec.max_model_len, spec.intermediate_size) == (None, 0, 2048, 4096)
    assert "no limit" in spec.unknown["max_model_len"]
    stated = parse(DECODERS["bloom-560m"] | {"seq_length": 4096})
    assert (stated.max_model_len, stated.unknown) == (4096, {})


def test_a_gpt_2_has_learned_positions_and_a_gpt_bigcode_one_key_head() -> None:
    gpt2, starcoder = parse(DECODERS["gpt2"]), parse(DECODERS["starcoder"])
    assert (gpt2.num_positions, gpt2.position_offset, gpt2.num_kv_heads, gpt2.is_gated) == (1024, 0, 12, False)
    assert (starcoder.num_kv_heads, starcoder.intermediate_size, starcoder.ties_embeddings) == (1, 24576, True)
    assert parse(DECODERS["starcoder"] | {"multi_query": False}).num_kv_heads == 48


def test_experts_of_an_ernie_are_in_the_layers_between_two() -> None:
    config = DECODERS["ERNIE-4.5-21B-A3B"]

    def dense(**change: int) -> int | None:
        moe = parse(config | change).moe
        return moe.num_dense_layers if moe else None

    assert (dense(), dense(moe_layer_start_index=3), dense(moe_layer_end_index=-1)) == (1, 3, 1)
    assert (dense(moe_layer_end_index=20), dense(moe_layer_interval=2)) == (8, 14)


def test_a_maverick_has_experts_in_every_other_layer_and_wider_feed_forwards_in_the_rest() -> None:
    spec = parse(DECODERS["Llama-4-Maverick"])
    assert spec.moe
    assert (spec.intermediate_size, spec.moe.expert_intermediate) == (16384, 8192)
    assert (spec.moe.num_dense_layers, spec.moe.num_shared) == (4, 1)


def test_the_last_layers_of_a_small_gemma_4_reuse_the_keys_of_others_and_are_wider() -> None:
    spec = parse(DECODERS["gemma-4-E2B"])
    groups = [(group.kind, group.reuses_cache, group.num_layers) for group in spec.attention_groups]
    assert groups == [("sliding", False, 12), ("full", False, 3), ("sliding", True, 16), ("full", True, 4)]
    assert (spec.num_wide_layers, spec.layer_inputs) == (20, LayerInputs(vocab_size=262144, width=256))
    need, (stage,) = analyse(spec), stages_of(35, 1)
    assert need.kv_bytes_per_token(2) == (12 * 256 + 3 * 512) * 2 * 2
    assert need.kv_read_bytes(100, 2) == 100 * (28 * 256 + 7 * 512) * 2 * 2
    cache = layout(need, 2, 1, stage, 16, grouped=True)
    assert [group.kind for group in cache.groups] == ["sliding"] * 4 + ["full"]


def test_layers_of_a_small_gemma_4_that_share_keys_leave_some_that_have_them() -> None:
    with pytest.raises(UnsupportedModel, match="share"):
        parse(DECODERS["gemma-4-E2B"] | {"num_kv_shared_layers": 35})


def test_layers_of_a_hunyuan_are_all_alike_or_refused() -> None:
    moe = parse(DECODERS["Hunyuan-A13B"]).moe
    assert moe
    assert (moe.num_active, moe.num_shared, moe.expert_intermediate) == (8, 1, 3072)
    with pytest.raises(InvalidModel, match="differ in moe_intermediate_size"):
        parse(DECODERS["Hunyuan-A13B"] | {"moe_intermediate_size": [3072, 3072, 3072, 1024]})


@pytest.mark.parametrize("name", ENCODERS)
def test_further_encoders_embed(name: str) -> None:
    spec = parse(ENCODERS[name])
    assert (spec.task, spec.is_encoder, spec.num_token_types) == ("embed", True, 0)
    assert spec.is_gated == (name == "ModernBERT-base")
    assert (spec.rope_theta is None) == (spec.num_positions > 0) == (name == "distilbert-base")


def test_a_gte_of_own_code_rotates_and_gates() -> None:
    spec = parse(GTE_BASE)
    assert (spec.task, spec.rope_theta, spec.is_gated, spec.has_qkv_bias) == ("embed", 5e5, True, True)
    assert analyse(spec).computed_parameters == pytest.approx(136_776_192, rel=3e-4)
    with pytest.raises(UnsupportedModel, match="relative positions"):
        parse(GTE_BASE | {"position_embedding_type": "absolute"})


@pytest.mark.parametrize(("kind", "reason"), REFUSED.items())
def test_a_model_type_that_cannot_be_read_is_refused_with_what_it_has(kind: str, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        parse({"model_type": kind})


def test_the_reference_page_lists_every_model_type_that_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "models.md").read_text()
    table = page.partition("## A GGUF file")[0]
    assert not [kind for kind in ARCHITECTURES if f"`{kind}`" not in table]


def llava(text: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "text_config": text}


def test_a_text_part_has_the_sizes_of_its_model_type_where_it_states_none() -> None:
    spec = parse(llava({"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}))
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads) == (32, 4096, 32, 32)
    assert (spec.intermediate_size, spec.vocab_size, spec.max_model_len) == (11008, 32064, 4096)
    assert parse(llava({"model_type": "llama", "num_attention_heads": 64})).num_kv_heads == 64
    assert parse(llava({"model_type": "mistral"})).num_kv_heads == 8


def test_a_text_part_whose_sizes_are_not_known_is_to_be_written_whole() -> None:
    with pytest.raises(UnsupportedModel, match="leaves hidden_size, num_hidden_layers") as caught:
        parse(llava({"model_type": "olmo2", "vocab_size": 100352, "num_attention_heads": 32}))
    assert "use_diff=False" in str(caught.value.hint)
    with pytest.raises(InvalidModel, match="num_hidden_layers"):
        parse({"model_type": "llama", "vocab_size": 32064})

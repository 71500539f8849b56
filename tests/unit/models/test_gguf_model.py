"""A GGUF file asks a device for the same as the Hugging Face folder of the same shape."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.folders import (
    QWEN3,
    XLM_R,
)
from tests.unit.models.gguf_architectures import HEAD, NORMED, PAIRS, common, read
from tests.unit.models.gguf_files import NUMBERS, size_of
from tests.unit.models.gguf_more import MORE
from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.config import parse_config
from vllm_probe.models.gguf_keys import MODEL_TYPES
from vllm_probe.negotiate.requirements import analyse


@pytest.mark.parametrize("name", PAIRS | MORE)
def test_a_gguf_file_asks_for_what_the_folder_of_its_shape_asks_for(tmp_path: Path, name: str) -> None:
    config, architecture, values, tensors = (PAIRS | MORE)[name]
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


def test_the_numbers_of_the_types_are_those_of_the_words() -> None:
    assert (NUMBERS["F32"], NUMBERS["Q8_0"], NUMBERS["BF16"], NUMBERS["MXFP4"]) == (0, 8, 30, 39)


@pytest.mark.parametrize("change", [{"attention.head_count_kv": [0, 2]}, {"feed_forward_length": [0, 96]}])
def test_layers_of_a_hybrid_are_all_described(tmp_path: Path, change: dict[str, object]) -> None:
    _, architecture, values, tensors = MORE["nemotron_h"]
    with pytest.raises(InvalidModel, match=f"{next(iter(change))} lists 2 of 4 layers"):
        read(tmp_path, architecture, values | change, tensors)


def test_the_reference_page_lists_every_architecture_that_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "models.md").read_text()
    table = page.partition("## A GGUF file")[2].partition("## An ONNX file")[0]
    assert not [architecture for architecture in MODEL_TYPES if f"`{architecture}`" not in table]

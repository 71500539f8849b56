"""A graph and the config beside it become one model; what neither tells is said."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from tests.unit.models.onnx.graphs import IDS, MS, Builder, decoder
from vllm_probe.core.errors import InvalidJson, UnsupportedModel
from vllm_probe.core.model import AttentionGroup, ModelSpec
from vllm_probe.models.config import parse_config
from vllm_probe.models.onnx.reader import read_onnx
from vllm_probe.negotiate.layers import linears
from vllm_probe.negotiate.requirements import analyse

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 500,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "eos_token_id": 7,
    "dtype": "float32",
}
TABLE, LAYER = 500 * 64, 64 * (128 + 64 + 64) + 128 * 64 + 3 * 64 * 192


def write(folder: Path, graph: Builder, config: dict[str, Any] | None = None, *, end: str = "logits") -> ModelSpec:
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(graph.model(end, IDS).SerializeToString())
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return read_onnx(folder / "model.onnx")


def multiset(spec: ModelSpec) -> Counter[tuple[int, int]]:
    """How many linears of each shape a token passes through."""
    sizes: Counter[tuple[int, int]] = Counter()
    for gemm in linears(spec):
        sizes[gemm.k, gemm.n] += gemm.active
    return sizes


@pytest.mark.parametrize("tied", [True, False])
def test_the_linears_are_those_of_the_config(tmp_path: Path, *, tied: bool) -> None:
    config = QWEN3 | {"tie_word_embeddings": tied}
    shape = parse_config(config, name="m", source="config.json")
    for spec in (write(tmp_path / "with", decoder(tied=tied), config), write(tmp_path / "without", decoder(tied=tied))):
        assert multiset(spec) == multiset(shape)
        assert analyse(spec).kv_bytes_per_token(2) == analyse(shape).kv_bytes_per_token(2) == 2 * 2 * 2 * 32 * 2
        assert spec.weight_bytes == 4 * (2 * LAYER + TABLE * (1 if tied else 2))
        assert (spec.ties_embeddings, spec.task, spec.is_encoder) == (tied, "generate", False)


def test_the_config_gives_what_a_graph_does_not_tell(tmp_path: Path) -> None:
    spec = write(tmp_path / "tiny-decoder", decoder(), QWEN3 | {"_name_or_path": "Qwen/Qwen3-Tiny"})
    assert (spec.name, spec.architecture, spec.max_model_len) == ("tiny-decoder", "Qwen3ForCausalLM", 40960)
    assert (spec.eos_token_ids, spec.unknown) == ((7,), {})
    assert (spec.repository, spec.needs) == ("Qwen/Qwen3-Tiny", "the Hugging Face checkpoint Qwen/Qwen3-Tiny")
    assert spec.weights_path is None


def test_a_config_in_the_folder_above_counts_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    (tmp_path / "model.safetensors").write_bytes(b"never looked at")
    spec = write(tmp_path / "onnx", decoder())
    assert (spec.name, spec.max_model_len) == (tmp_path.name, 40960)
    assert spec.needs == f"the Hugging Face checkpoint in {tmp_path}"


@pytest.mark.parametrize(
    "other", [{"num_hidden_layers": 3}, {"hidden_size": 128}, {"vocab_size": 501}, {"model_type": "whisper"}]
)
def test_the_config_of_another_model_is_not_used(tmp_path: Path, other: dict[str, Any]) -> None:
    spec = write(tmp_path, decoder(), QWEN3 | other)
    assert (spec.num_layers, spec.hidden_size, spec.vocab_size) == (2, 64, 500)
    assert "config.json" in spec.unknown["architecture"]


def test_a_damaged_config_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidJson):
        write(tmp_path, decoder())


def test_a_second_copy_of_the_token_embedding_counts_once_where_the_config_ties_them(tmp_path: Path) -> None:
    spec = write(tmp_path, decoder(tied=False), QWEN3)
    assert spec.weight_bytes == 4 * (2 * LAYER + TABLE)
    assert "copy of the token embedding" in spec.source
    assert {linear.name: linear.stored for linear in spec.linears}["lm_head"] == 0


def test_what_a_graph_alone_does_not_tell_is_said(tmp_path: Path) -> None:
    spec = write(tmp_path, decoder())
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.intermediate_size) == (4, 2, 32, 192)
    assert (spec.max_model_len, set(spec.unknown)) == (4096, {"architecture", "max_model_len"})
    assert spec.needs == "the Hugging Face checkpoint that model.onnx was exported from"


def test_a_graph_without_an_output_projection_embeds(tmp_path: Path) -> None:
    graph = decoder()
    end = graph.nodes[-1].input[0]
    graph.nodes.pop()
    spec = write(tmp_path, graph, QWEN3, end=end)
    assert (spec.task, spec.pooling, spec.ties_embeddings) == ("embed", "last", True)
    assert "lm_head" not in {linear.name for linear in spec.linears}


def test_layers_that_differ_stand_in_groups(tmp_path: Path) -> None:
    graph = decoder()
    first = next(node for node in graph.nodes if node.op_type == "GroupQueryAttention")
    first.attribute.add(name="local_window_size", i=128, type=2)
    spec = write(tmp_path, graph)
    sliding = AttentionGroup(kind="sliding", num_layers=1, window=128, num_kv_heads=2, head_dim=32)
    full = AttentionGroup(kind="full", num_layers=1, num_kv_heads=2, head_dim=32)
    assert spec.attention_groups == (sliding, full)


@pytest.mark.parametrize(("given", "is_encoder"), [("past_key_values.0.key", False), ("pixel_values", True)])
def test_a_graph_that_takes_earlier_keys_is_a_decoder(tmp_path: Path, given: str, *, is_encoder: bool) -> None:
    graph, end = encoder()
    model = graph.model(end, {**IDS, given: ["batch", 4, "past", 16]})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert read_onnx(tmp_path / "model.onnx").is_encoder is is_encoder


def encoder() -> tuple[Builder, str]:
    """One layer with learned positions, token types and a pooler."""
    graph = Builder()
    rows = [graph.op("Gather", graph.weight(500, 64), "ids")]
    rows += [graph.op("Gather", graph.weight(count, 64), graph.op("Expand", "where", "ids")) for count in (512, 2)]
    state = graph.op("Add", graph.op("Add", *rows[:2]), rows[2])
    state = graph.op("LayerNormalization", state, graph.weight(64), graph.weight(64))
    sources = [graph.linear(state, 64, 64) for _ in range(3)]
    mixed = graph.op("MultiHeadAttention", *sources, domain=MS, num_heads=4)
    state = graph.linear(mixed, 64, 64)
    state = graph.linear(graph.op("Gelu", graph.linear(state, 64, 256)), 256, 64)
    first = graph.op("Gather", state, graph.integers(0), axis=1)
    return graph, graph.op("Tanh", graph.op("Gemm", first, graph.weight(64, 64), graph.weight(64)))


def test_an_encoder_is_told_by_its_positions_and_its_pooler_is_not_counted(tmp_path: Path) -> None:
    graph, end = encoder()
    spec = write(tmp_path, graph, end=end)
    assert (spec.is_encoder, spec.task, spec.pooling, spec.max_model_len) == (True, "embed", "cls", 512)
    assert (spec.num_positions, spec.num_token_types, spec.intermediate_size, spec.is_gated) == (512, 2, 256, False)
    assert multiset(spec) == {(64, 64): 4, (64, 256): 1, (256, 64): 1}
    assert spec.weight_bytes == 4 * (64 * (500 + 512 + 2) + 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64)
    assert analyse(spec).kv_bytes_per_token(2) == 0


def test_quantized_weights_give_their_method_parts_and_bits(tmp_path: Path) -> None:
    graph = decoder(1, tied=False)
    for node in graph.nodes[:-1]:
        if node.op_type == "MatMul":
            (weight,) = (each for each in graph.initializers if each.name == node.input[1])
            k, n = weight.dims
            packed = graph.weight(n, k // 32, 16, kind=TensorProto.UINT8)
            scales = graph.weight(n * k // 32, kind=TensorProto.FLOAT16)
            node.op_type, node.domain = "MatMulNBits", MS
            node.input[:] = [node.input[0], packed, scales]
            stated = {"K": k, "N": n, "bits": 4, "block_size": 32}
            node.attribute.extend(helper.make_attribute(name, value) for name, value in stated.items())
            graph.initializers.remove(weight)
    spec = write(tmp_path, graph)
    assert (spec.quantization, spec.quantized_parts, spec.num_parameters) == ("int4", {"lm_head": "none"}, None)
    assert spec.stored_bits == {"attention": 4.5, "feed_forward": 4.5}
    assert spec.weight_bytes == LAYER * 4.5 / 8 + 2 * TABLE * 4


def test_a_graph_without_attention_is_refused_with_what_it_has(tmp_path: Path) -> None:
    graph = Builder()
    end = graph.linear(graph.op("Gather", graph.weight(500, 64), "ids"), 64, 32)
    with pytest.raises(UnsupportedModel, match=r"1 linears with 133\.00 KiB of weights, but no attention"):
        write(tmp_path, graph, end=end)


def test_a_graph_that_takes_vectors_has_no_vocabulary(tmp_path: Path) -> None:
    graph = Builder()
    sources = [graph.linear("x", 64, 64) for _ in range(3)]
    end = graph.linear(graph.op("MultiHeadAttention", *sources, domain=MS, num_heads=4), 64, 64)
    path = tmp_path / "block.onnx"
    path.write_bytes(graph.model(end).SerializeToString())
    spec = read_onnx(path)
    assert (spec.name, spec.vocab_size, spec.weight_bytes) == ("block", 0, 4 * 4 * 64 * 64)
    assert "vectors" in spec.unknown["vocab_size"]
    assert "KV cache" in spec.unknown["is_encoder"]

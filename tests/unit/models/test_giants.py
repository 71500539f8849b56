"""A model of a hundred gigabytes is read by its headers alone, in little memory."""

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.folders import QWEN3, host, write
from tests.unit.models.gguf_files import NUMBERS, entry, header, key, kind_of, payload
from vllm_probe.core.errors import InvalidModel, UnreadableFile
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import weights
from vllm_probe.models.hf import read_folder
from vllm_probe.models.resolve import resolve_model
from vllm_probe.models.weights import INDEX
from vllm_probe.negotiate.requirements import analyse

HIDDEN, INNER, VOCABULARY, LAYERS = 8192, 29568, 152064, 55
CONFIG: dict[str, Any] = QWEN3 | {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": LAYERS,
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
}
IO = Path("/proc/self/io")


def shards() -> Iterator[dict[str, tuple[int, ...]]]:
    """Tensors of each file, by name."""
    yield {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        yield {
            f"{place}.self_attn.q_proj.weight": (8192, HIDDEN),
            f"{place}.self_attn.k_proj.weight": (1024, HIDDEN),
            f"{place}.self_attn.v_proj.weight": (1024, HIDDEN),
            f"{place}.self_attn.o_proj.weight": (HIDDEN, 8192),
            f"{place}.self_attn.q_norm.weight": (128,),
            f"{place}.self_attn.k_norm.weight": (128,),
            f"{place}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{place}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{place}.mlp.down_proj.weight": (HIDDEN, INNER),
            f"{place}.input_layernorm.weight": (HIDDEN,),
            f"{place}.post_attention_layernorm.weight": (HIDDEN,),
        }
    yield {"lm_head.weight": (VOCABULARY, HIDDEN)}


def sparse(path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file of zeros that takes no room on the disk."""
    entries, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)


def read_so_far() -> int:
    """Bytes that this process has read."""
    return int(IO.read_text().split("rchar: ")[1].split()[0]) if IO.exists() else 0


def measured(folder: Path) -> tuple[ModelSpec, int, int]:
    """The model, the bytes read for it and the peak of memory in bytes."""
    tracemalloc.start()
    before = read_so_far()
    spec = resolve_model(str(folder), host())
    taken = read_so_far() - before
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return spec, taken, peak


def test_a_hundred_gigabytes_in_shards_are_read_by_their_headers(tmp_path: Path) -> None:
    parts = list(shards())
    names = [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    index = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    write(tmp_path, {"config.json": CONFIG, INDEX: {"weight_map": index}})
    for name, part in zip(names, parts, strict=True):
        sparse(tmp_path / name, part)
    spec, taken, peak = measured(tmp_path)
    assert spec.weight_bytes == 2 * analyse(spec).computed_parameters
    assert spec.weight_bytes > 100e9
    assert (taken < 2 << 20, peak < 64 << 20) == (True, True), (taken, peak)
    (tmp_path / names[7]).unlink()
    with pytest.raises(UnreadableFile, match=names[7]):
        read_folder(tmp_path)


def test_a_hundred_gigabytes_in_one_file_are_read_by_its_header(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": CONFIG})
    sparse(tmp_path / "model.safetensors", {name: shape for part in shards() for name, shape in part.items()})
    spec, taken, peak = measured(tmp_path)
    assert spec.weight_bytes == 2 * analyse(spec).computed_parameters
    assert (taken < 1 << 20, peak < 64 << 20) == (True, True), (taken, peak)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    for theirs, ours in GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def test_a_hundred_gigabytes_of_gguf_are_read_by_the_header(tmp_path: Path) -> None:
    metadata = {
        "general.architecture": "qwen3",
        "qwen3.block_count": LAYERS,
        "qwen3.context_length": 40960,
        "qwen3.embedding_length": HIDDEN,
        "qwen3.feed_forward_length": INNER,
        "qwen3.attention.head_count": 64,
        "qwen3.attention.head_count_kv": 8,
        "qwen3.attention.key_length": 128,
        "qwen3.attention.value_length": 128,
        "tokenizer.ggml.tokens": ["token"] * VOCABULARY,
    }
    tensors = {gguf_name(name): shape for part in shards() for name, shape in part.items()}
    content = header(len(tensors), len(metadata))
    content += b"".join(key(name, kind_of(value), payload(kind_of(value), value)) for name, value in metadata.items())
    end = 0
    for name, shape in tensors.items():
        content += entry(name, NUMBERS["BF16"], shape, end)
        end += -(-2 * shape[0] * (shape[1] if len(shape) > 1 else 1) // 32) * 32
    (tmp_path / "m.gguf").write_bytes(content)
    os.truncate(tmp_path / "m.gguf", -(-len(content) // 32) * 32 + end)
    spec, taken, peak = measured(tmp_path)
    assert spec.weight_bytes == 2 * analyse(spec).computed_parameters
    assert spec.weight_bytes > 100e9
    assert (taken < 4 << 20, peak < 64 << 20) == (True, True), (taken, peak)


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": CONFIG})
    (tmp_path / INDEX).symlink_to(INDEX)
    with pytest.raises(UnreadableFile):
        read_folder(tmp_path)
    (tmp_path / INDEX).unlink()
    write(tmp_path, {INDEX: {"weight_map": {"a": "a.safetensors"}}})
    (tmp_path / "a.safetensors").symlink_to("a.safetensors")
    with pytest.raises(UnreadableFile):
        read_folder(tmp_path)


def test_more_tensors_than_any_model_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_MAX_TENSORS", 3)
    for number in (1, 2):
        sparse(tmp_path / f"{number}.safetensors", {f"{number}.{letter}": (1,) for letter in "ab"})
    index = {f"{number}.a": f"{number}.safetensors" for number in (1, 2)}
    write(tmp_path, {"config.json": CONFIG, INDEX: {"weight_map": index}})
    with pytest.raises(InvalidModel, match="more than 3 tensors"):
        read_folder(tmp_path)

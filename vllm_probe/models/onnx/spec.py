"""The findings of a graph as a `ModelSpec`, with the config.json beside it or without."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import AttentionGroup, ModelSpec, StatedLinear
from vllm_probe.core.units import format_bytes
from vllm_probe.models.files import mode_of, read_value
from vllm_probe.models.hf import read_folder
from vllm_probe.models.onnx.attention import hides_later_tokens
from vllm_probe.models.onnx.findings import Findings, most_common
from vllm_probe.models.onnx.tensors import FP8

ASSUMED_LEN = 4096
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_GENERIC = re.compile(r"(?:model|decoder|encoder)(?:[_.-].*)?|onnx")
_CACHE = re.compile(r"past|cache", re.IGNORECASE)  # as exporters call keys and values of earlier tokens
_WIDE = 16  # bits; narrower weights are quantized


def describe(found: Findings, path: Path) -> ModelSpec:
    """The model of the graph: as the config.json beside it or above says, else as the graph alone tells it.

    Raises:
        InvalidModel, InvalidJson, UnreadableFile: that config.json, or a file beside it, is damaged.
        UnsupportedModel: no config.json describes the graph, and its layers and heads cannot be recognised.
    """
    reason = "no config.json is beside the graph, which does not name it"
    for folder in (path.parent, path.parent.parent):
        if mode_of(folder / "config.json"):
            try:
                spec = read_folder(folder, with_weights=False)
                doubt = contradiction(spec, found)
            except UnsupportedModel as error:
                doubt = str(error)
            if doubt is None:
                return _completed(spec, found, path, folder)
            reason = f"{folder / 'config.json'} is left aside: {doubt}"
    return from_graph(found, path, reason)


def contradiction(spec: ModelSpec, found: Findings) -> str | None:
    """What tells that a config describes another model than the graph, or null."""
    attending = sum(group.num_layers for group in spec.attention_groups if group.kind != "linear") or spec.num_layers
    pairs = {
        "layers": (attending, len(found.attention) or None),
        "hidden_size": (spec.hidden_size, found.hidden_size),
        "vocabulary": (spec.vocab_size, found.tokens.rows if found.tokens else None),
    }
    for what, (stated, seen) in pairs.items():
        if seen is not None and seen != stated:
            return f"it says {stated} {what}, the graph has {seen}"
    return None


def _completed(spec: ModelSpec, found: Findings, path: Path, folder: Path) -> ModelSpec:
    """`spec` with the linears and the exact bytes of the graph."""
    if spec.is_encoder:
        found = found.without(found.pooler())
    if found.head and spec.task == "embed":
        found = found.without([found.head])
    if found.head is None and spec.task == "generate":
        spec = replace(spec, task="embed", ties_embeddings=True, pooling="last", normalizes=True)
    stated = read_value(folder / "config.json", dict) or {}
    origin = stated.get("_name_or_path")
    known = isinstance(origin, str) and _REPOSITORY.fullmatch(origin) and not mode_of(Path(origin))
    repository = str(origin) if known else None
    needs = f"the Hugging Face checkpoint {repository}" if repository else _checkpoint(path, folder)
    source = f"{path} (ONNX graph), {spec.source}"
    return _weighed(replace(spec, name=_name(path), repository=repository, needs=needs, source=source), found)


def from_graph(found: Findings, path: Path, reason: str) -> ModelSpec:
    """The model as the graph alone tells it; `reason` is why no config names its architecture.

    Raises:
        UnsupportedModel: its layers and heads cannot be recognised.
    """
    heads = most_common(each.num_heads for each in found.attention)
    head_dim = most_common(each.head_dim for each in found.attention)
    hidden = found.hidden_size
    if heads is None or head_dim is None or hidden is None:
        seen = f"{len(found.products)} linears with {format_bytes(_nbytes(found))} of weights, but no attention"
        hint = "put the model's config.json beside it, or give the model's Hugging Face folder"
        raise UnsupportedModel(f"{path}: the graph has {seen} from which layers and heads could be told", hint=hint)
    unknown = {"architecture": reason}
    kv_heads = most_common(each.num_kv_heads for each in found.attention)
    if kv_heads is None:
        unknown["num_kv_heads"] = f"the graph does not tell keys apart; {heads} as for queries"
    is_encoder = _is_encoder(found, unknown)
    if is_encoder:
        found = found.without(found.pooler() + ([found.head] if found.head else []))
    length = found.num_positions or found.num_angles
    if not length:
        unknown["max_model_len"] = f"the graph has no limit; {ASSUMED_LEN} tokens, unless --max-model-len says more"
    if found.tokens is None:
        unknown["vocab_size"] = "the graph takes vectors, not tokens"
    inner, is_gated = found.feed_forward
    embeds = found.head is None
    spec = ModelSpec(
        name=_name(path),
        architecture="",
        model_type="",
        is_encoder=is_encoder,
        task="embed" if embeds else "generate",
        num_layers=len(found.attention),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads or heads,
        head_dim=head_dim,
        intermediate_size=inner,
        is_gated=is_gated,
        vocab_size=found.tokens.rows if found.tokens else 0,
        num_positions=found.num_positions,
        num_token_types=found.num_token_types,
        max_model_len=length or ASSUMED_LEN,
        dtype=found.dtype,
        ties_embeddings=found.ties,
        attention_groups=() if is_encoder else _groups(found, kv_heads or heads, head_dim),
        pooling=("cls" if is_encoder else "last") if embeds else None,
        normalizes=embeds,
        needs=_checkpoint(path, None),
        unknown=unknown,
        source=f"{path} (ONNX graph)",
    )
    return _weighed(spec, found)


def _weighed(spec: ModelSpec, found: Findings) -> ModelSpec:
    """`spec` with the linears and bytes of `found`."""
    is_tied, source = found.ties, spec.source
    if not is_tied and spec.ties_embeddings and found.head:
        copy = found.head.stored
        found = replace(found, parameters=found.parameters.difference(copy))
        is_tied, source = True, f"{source}; its copy of the token embedding for the output projection is not counted"
    linears = found.stated(spec.moe, is_tied=is_tied)
    method, parts, bits = _quantization(linears, found)
    count = sum(tensor.num_elements for tensor in found.parameters)
    return replace(
        spec,
        dtype=found.dtype,
        ties_embeddings=is_tied,
        linears=linears,
        quantization=method,
        quantized_parts=parts,
        stored_bits=bits,
        weight_bytes=_nbytes(found),
        num_parameters=count if count and method == "none" else None,
        source=source,
    )


def _nbytes(found: Findings) -> int:
    return sum(tensor.nbytes for tensor in found.parameters)


def _quantization(linears: tuple[StatedLinear, ...], found: Findings) -> tuple[str, dict[str, str], dict[str, float]]:
    """The format of most weights, that of each part that differs, and the bits of a weight of each with its scales."""
    is_fp8 = any(product.root.kind in FP8 for product in found.products)
    sizes: Counter[tuple[str, int]] = Counter()
    for linear in linears:
        sizes[linear.part, linear.bits] += linear.k * linear.n * max(linear.stored, linear.active)
    main = max(sizes, key=lambda key: sum(size for each, size in sizes.items() if each[1] == key[1]), default=("", 32))
    word = _word(main[1], is_fp8=is_fp8)
    parts: dict[str, str] = {}
    stored_bits: dict[str, float] = {}
    for part in dict.fromkeys(part for part, _ in sizes):
        most = max((size, bits) for (each, bits), size in sizes.items() if each == part)[1]
        own = _word(most, is_fp8=is_fp8)
        if own != word or (part == "lm_head" and word != "none"):
            parts[part] = own
        weights = sum(each.k * each.n * each.stored for each in linears if each.part == part)
        if own != "none" and weights:
            stored_bits[part] = sum(8 * each.nbytes for each in linears if each.part == part) / weights
    return word, parts, stored_bits


def _word(bits: int, *, is_fp8: bool) -> str:
    return "none" if bits >= _WIDE else "fp8" if is_fp8 else f"int{bits}"


def _groups(found: Findings, kv_heads: int, head_dim: int) -> tuple[AttentionGroup, ...]:
    """The layers by window and heads; none when all are alike and see everything."""
    kinds = Counter((each.window, each.num_kv_heads or kv_heads, each.head_dim or head_dim) for each in found.attention)
    if list(kinds) == [(None, kv_heads, head_dim)]:
        return ()
    return tuple(
        AttentionGroup(
            kind="sliding" if window else "full", num_layers=count, window=window, num_kv_heads=heads, head_dim=size
        )
        for (window, heads, size), count in kinds.items()
    )


def _is_encoder(found: Findings, unknown: dict[str, str]) -> bool:
    """Whether every token sees every other: not with a cache, a causal operator or a causal mask."""
    graph = found.graph
    if (
        any(_CACHE.search(name) for name in graph.inputs)
        or any(each.is_causal for each in found.attention)
        or hides_later_tokens(graph)
    ):
        return False
    if found.num_positions:
        return True
    unknown["is_encoder"] = "the graph shows no causal mask; a KV cache is counted all the same"
    return False


def _name(path: Path) -> str:
    """The file's name, or that of its folder where the file is only called `model`."""
    parts = [path.resolve().stem, *reversed(path.resolve().parent.parts)]
    return next((part for part in parts if not _GENERIC.fullmatch(part)), path.stem)


def _checkpoint(path: Path, folder: Path | None) -> str:
    weights: list[Any] = sorted(folder.glob("*.safetensors")) if folder else []
    if weights:
        return f"the Hugging Face checkpoint in {folder}"
    return f"the Hugging Face checkpoint that {path.name} was exported from"

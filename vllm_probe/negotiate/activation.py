"""The peak of temporary tensors, the processes and the graphs of one rank: sums of products that the laws list."""

import math
from collections.abc import Mapping

from vllm_probe.core.model import MlaShape
from vllm_probe.core.units import GIB
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.chunking import computes_whole
from vllm_probe.negotiate.gemm import WeightFormat
from vllm_probe.negotiate.shape import Shape
from vllm_probe.negotiate.stages import Stage

_ALL_GRAPHS = 51  # sizes captured by default for 256 sequences or more, vLLM 0.19 logs


def activation_bytes(case: Case, sizes: Mapping[str, float], stage: Stage) -> int:
    """The largest moment of a step on `stage`, and what stays allocated through all of them."""
    samples = case.spec.task == "generate" and stage.is_last
    moments = [
        terms_bytes(moment["terms"], sizes)
        for moment in case.law["activation"].values()
        if (samples or not moment.get("generates")) and sizes.get(moment.get("only_with", "tokens"))
    ]
    return max(moments) + terms_bytes(case.law.get("throughout", {}), sizes)


def sizes_of(case: Case, candidate: Candidate, shape: Shape, stage: Stage) -> dict[str, float]:
    """The words that the terms of a law are products of."""
    spec, moe, ranks = case.spec, case.spec.moe, case.ranks
    latent = spec.mla if spec.mla and not spec.mla.index_heads else None
    queries, hidden = spec.num_heads * spec.head_dim, spec.hidden_size
    expert = moe.expert_intermediate if moe else 0
    inner, packed = expert / ranks, has_packed_experts(candidate.weights, spec.quantized_parts)
    longest = max(shape.max_model_len, 8192)
    largest = case.engine.get("largest_graph", {"*": 512})
    most = int(largest.get(spec.architecture, largest["*"]))
    largest_graph = min(2 * shape.seqs, shape.tokens, most)
    graphs = sum(size <= largest_graph for size in (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)))
    has_tower, is_split = spec.vision_parameters > 0, ranks > 1
    return {
        "tokens": shape.tokens,
        "seqs": shape.seqs,
        "seqs_if_whole": shape.seqs if computes_whole(case, shape.max_model_len) else 0,
        "seqs_if_split": shape.seqs if is_split else 0,
        "vocab": spec.vocab_size,
        "vocab_if_whole": 0 if is_split else spec.vocab_size,
        "hidden": hidden,
        "intermediate": expert if moe and not moe.num_dense_layers else spec.intermediate_size,
        "q_width": queries,
        "qkv_width": queries + 2 * spec.num_kv_heads * spec.head_dim,
        "width": candidate.weights.width,
        "layers": stage.layers,
        "layer_bytes": case.need.layer_bytes(candidate.weights),
        "gib": GIB,
        "experts_gib": GIB if moe else 0,
        "expert_tokens": shape.tokens if moe and not packed else 0,
        "packed_expert_tokens": shape.tokens if moe and packed else 0,
        "expert_width": moe.num_active * (max(inner, hidden) + max(2 * inner, hidden)) if moe else 0,
        "packed_expert_width": 3 * hidden * moe.num_active if moe else 0,
        "latent_tokens": min(max(8 * longest, 64 * shape.seqs), 65536) if latent else 0,
        "latent_width": spec.num_heads / ranks * _unfolded(latent) if latent else 0,
        "tower_gib": GIB if has_tower else 0,
        "tower_tokens": shape.tokens if has_tower else 0,
        "graph_share": graphs / _ALL_GRAPHS,
    }


def _unfolded(latent: MlaShape) -> int:
    """Width of a head's keys and values unfolded from a latent, and of the keys joined with their rotated part."""
    return latent.nope_dim + latent.v_dim + latent.nope_dim + latent.rope_dim


def has_packed_experts(weights: WeightFormat, parts: Mapping[str, str]) -> bool:
    """Whether the experts are MXFP4, whose kernels have tiles and workspaces of their own (vllm mxfp4.py)."""
    return parts.get("experts", weights.method) == "mxfp4"


def terms_bytes(terms: Mapping[str, float], sizes: Mapping[str, float]) -> int:
    """Bytes of a sum of products: each key names sizes and plain numbers joined by `*`."""
    total = 0.0
    for product, factor in terms.items():
        total += factor * math.prod(float(word) if word.isdigit() else sizes[word] for word in product.split("*"))
    return math.ceil(total)

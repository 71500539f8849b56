"""The memory of one rank, byte by byte, from the law of the engine's version."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_probe.core.config import BudgetVerdict, MemoryBudget
from vllm_probe.core.units import GIB
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.laws import by_device

_ALL_GRAPHS = 51  # sizes captured by default for 256 sequences or more, vLLM 0.19 logs
_POOLING_SLACK = 1.02  # room for block rounding when pooling keeps one step of keys and values


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes that a budget depends on.

    Attributes:
        max_model_len: longest sequence.
        seqs: sequences in one step.
        tokens: tokens in one step.
        block_size: tokens of a KV block.
        kv_dtype: format of the KV cache.
        has_graphs: graphs are captured.
    """

    max_model_len: int
    seqs: int
    tokens: int
    block_size: int
    kv_dtype: str
    has_graphs: bool


def account(case: Case, candidate: Candidate, shape: Shape) -> MemoryBudget:
    """Every byte of one rank. What cannot boot is accounted with the KV cache it would need."""
    sizes, ranks = _sizes(case, candidate, shape), "one_rank" if case.ranks == 1 else "ranks"
    moments = [
        _terms(moment["terms"], sizes)
        for moment in case.law["activation"].values()
        if case.spec.task == "generate" or not moment.get("generates")
    ]
    processes = by_device(case.engine["non_torch_by_device"], case.device_type)
    fixed = {
        "weights_bytes": case.need.rank_bytes(candidate.weights, case.ranks, case.stages),
        "activation_bytes": max(moments),
        "non_torch_bytes": _gib(processes.get("gib", case.law["non_torch_gib"][ranks])),
        "graph_bytes": _terms(case.law["graph"], sizes) if shape.has_graphs else 0,
    }
    limit, invalid = limit_bytes(case, fixed["graph_bytes"]), case.workload.reason is not None
    if limit is None:
        return MemoryBudget(**fixed, verdict="invalid" if invalid else "unknown")
    layers = -(-case.spec.num_layers // case.stages) / case.spec.num_layers
    per_token = case.need.kv_bytes_per_token(WIDTHS[shape.kv_dtype], case.ranks) if case.keeps_kv else 0
    block = per_token * shape.block_size * layers
    state = math.ceil(case.need.state_bytes(WIDTHS[candidate.dtype], case.ranks) * layers)
    kv_bytes, verdict = _kv_cache(case, shape, math.ceil(block), state, limit - sum(fixed.values()))
    beside = max(kv_bytes - shape.seqs * state, min(kv_bytes - state, _longest(shape) * math.ceil(block)))
    blocks = beside // math.ceil(block) if block else 0
    return MemoryBudget(
        **fixed,
        device_total_bytes=case.total_bytes,
        requested_bytes=sum(fixed.values()) + kv_bytes,
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=blocks * shape.block_size,
        num_kv_blocks=blocks,
        verdict="invalid" if invalid else verdict,
    )


def limit_bytes(case: Case, graph_bytes: int = 0) -> int | None:
    """Most that one rank may hold: a pinned share, else what is usable less the residual of the law.

    `graph_bytes` come on top of a pinned share where the engine's version does not count graphs in it.
    """
    if case.total_bytes is None or case.usable_bytes is None:
        return None
    pinned = case.request.pins.get("gpu_memory_utilization")
    if pinned is not None:
        beside = 0 if case.law["graphs_in_utilization"] else graph_bytes
        return min(math.ceil(case.total_bytes * float(pinned)) + beside, case.usable_bytes)
    residual = residual_bytes(case)
    if not fills_memory(case):
        return case.usable_bytes - residual
    spare = max(case.total_bytes * float(case.engine["spare_share"]), residual)
    percent = max(0, math.floor(100 * (case.usable_bytes - spare) / case.total_bytes))
    return math.ceil(case.total_bytes * percent / 100)


def residual_bytes(case: Case) -> int:
    """What the law leaves free on one rank for what it does not count."""
    return _gib(case.engine["residual_gib"]["one_rank" if case.ranks == 1 else "ranks"])


def fills_memory(case: Case) -> bool:
    """Whether the KV cache takes all that is left: a generator on memory that is its own."""
    shares = case.device["shares_memory"] or case.capability.memory.kind in ("shared", "unified")
    wants = case.spec.task == "generate" and case.request.objective != "memory"
    return bool(case.engine["fills_memory"] and wants and not shares)


def _longest(shape: Shape) -> int:
    """Blocks for one longest sequence, and the one that the engine holds back."""
    return -(-shape.max_model_len // shape.block_size) + 1


def _kv_cache(case: Case, shape: Shape, block: int, state: int, room: int) -> tuple[int, BudgetVerdict]:
    """Bytes of the KV cache: at least one longest sequence, the `state` of its linear attention beside its blocks."""
    if not block:
        return 0, "boots" if room >= 0 else "oom"
    least = state + _longest(shape) * block
    pinned = case.request.pins.get("kv_cache_memory_bytes")
    wanted = room if fills_memory(case) else max(least, shape.seqs * state + _blocks(case, shape) * block)
    given = min(wanted, room) if pinned is None else pinned
    if least <= given <= room:
        return given, "boots"
    return max(least, pinned or 0), "oom" if room < state + block or given > room else "kv_too_small"


def _blocks(case: Case, shape: Shape) -> int:
    """KV blocks for the workload: pooling keeps one step, a generator every request to its end."""
    if case.spec.task == "embed":
        return math.ceil(max(shape.tokens, shape.max_model_len) * _POOLING_SLACK / shape.block_size)
    return 1 + shape.seqs * -(-case.workload.length // shape.block_size)


def _sizes(case: Case, candidate: Candidate, shape: Shape) -> dict[str, float]:
    """The words that the terms of a law are products of."""
    spec, moe, mla = case.spec, case.spec.moe, case.spec.mla
    queries, hidden = spec.num_heads * spec.head_dim, spec.hidden_size
    expert = moe.expert_intermediate if moe else 0
    longest = max(shape.max_model_len, 8192)
    largest_graph = min(2 * shape.seqs, shape.tokens, 512)
    graphs = sum(size <= largest_graph for size in (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)))
    return {
        "tokens": shape.tokens,
        "seqs": shape.seqs,
        "vocab": spec.vocab_size,
        "hidden": hidden,
        "intermediate": expert if moe and not moe.num_dense_layers else spec.intermediate_size,
        "q_width": queries,
        "qkv_width": queries + 2 * spec.num_kv_heads * spec.head_dim,
        "width": candidate.weights.width,
        "layers": spec.num_layers,
        "layer_bytes": case.need.layer_bytes(candidate.weights),
        "gib": GIB,
        "experts_gib": GIB if moe else 0,
        "expert_width": moe.num_active * (max(expert, hidden) + max(2 * expert, hidden)) if moe else 0,
        "latent_tokens": min(max(8 * longest, 64 * shape.seqs), 65536) if mla else 0,
        "latent_width": spec.num_heads * (mla.nope_dim + mla.v_dim) if mla else 0,
        "graph_share": graphs / _ALL_GRAPHS,
    }


def _terms(terms: Mapping[str, float], sizes: Mapping[str, float]) -> int:
    """Bytes of a sum of products: each key names sizes and plain numbers joined by `*`."""
    total = 0.0
    for product, factor in terms.items():
        total += factor * math.prod(float(word) if word.isdigit() else sizes[word] for word in product.split("*"))
    return math.ceil(total)


def _gib(number: float) -> int:
    return round(number * GIB)

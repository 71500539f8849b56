"""The memory of one rank, byte by byte, from the law of the engine's version."""

import math

from vllm_probe.core.config import BudgetVerdict, MemoryBudget
from vllm_probe.core.units import GIB, format_bytes
from vllm_probe.negotiate.activation import activation_bytes, has_packed_experts, sizes_of, terms_bytes
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.chunking import least_step
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.kv import Layout, layout
from vllm_probe.negotiate.laws import by_device
from vllm_probe.negotiate.shape import Shape
from vllm_probe.negotiate.stages import Stage, stages_of

_CODE_WIDTH = 0.5  # bytes of an MXFP4 code
_POOLING_SLACK = 1.02  # room for block rounding when pooling keeps one step of keys and values


def account(case: Case, candidate: Candidate, shape: Shape) -> MemoryBudget:
    """Every byte of the rank with the least room. What cannot boot is accounted with the KV cache it would need."""
    stages = stages_of(case.spec.num_layers, case.stages)
    budgets = [_stage(case, candidate, shape, stage) for stage in dict.fromkeys((stages[0], *stages[1:2], stages[-1]))]
    return min(budgets, key=_room)


def _room(budget: MemoryBudget) -> tuple[bool, float]:
    """What orders ranks: one that does not boot, then the fewest blocks, then the most bytes beside them."""
    refused = budget.verdict not in ("boots", "unknown")
    if refused or not budget.num_kv_blocks:
        return not refused, -float(budget.weights_bytes + budget.activation_bytes)
    return True, float(budget.num_kv_blocks)


def _stage(case: Case, candidate: Candidate, shape: Shape, stage: Stage) -> MemoryBudget:
    sizes = sizes_of(case, candidate, shape, stage)
    fixed = {
        "weights_bytes": _weights(case, candidate, stage),
        "activation_bytes": activation_bytes(case, sizes, stage),
        "non_torch_bytes": _non_torch(case),
        "graph_bytes": terms_bytes(case.law["graph"], sizes) if shape.has_graphs else 0,
    }
    limit, length = limit_bytes(case, fixed["graph_bytes"]), shape.max_model_len
    invalid = bool(candidate.unsupported or case.workload.reason)
    invalid = invalid or shape.tokens < least_step(case, length)
    if limit is None:
        return MemoryBudget(**fixed, verdict="invalid" if invalid else "unknown")
    cache = layout_of(case, shape, stage)
    kv_bytes, verdict = _kv_cache(case, shape, cache, limit - sum(fixed.values()))
    unprofiled = terms_bytes(case.law.get("unprofiled", {}), sizes)
    if verdict == "boots" and sum(fixed.values()) + kv_bytes + unprofiled > (case.usable_bytes or 0):
        verdict = "oom"
    blocks = kv_bytes // cache.block_bytes if cache.block_bytes else 0
    counting = case.law.get("tokens_logged", "blocks")
    return MemoryBudget(
        **fixed,
        device_total_bytes=case.total_bytes,
        requested_bytes=sum(fixed.values()) + kv_bytes,
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=cache.held_tokens(blocks, shape.max_model_len, shape.tokens, counting),
        num_kv_blocks=blocks,
        verdict="invalid" if invalid else verdict,
    )


def _weights(case: Case, candidate: Candidate, stage: Stage) -> int:
    """Weights of a rank: the checkpoint's, what its kernels add to them, and the table of rotary positions."""
    weights, total = candidate.weights, case.need.rank_bytes(candidate.weights, case.ranks, stage)
    if case.engine.get("keeps_rotary_table"):
        total += case.need.rotary_bytes(weights.width)
    tiles = case.law.get("packed_expert_tiles")
    if tiles and has_packed_experts(weights, case.spec.quantized_parts):
        total += round(case.need.padding_bytes(_CODE_WIDTH, case.ranks, (tiles[0], tiles[1])) * stage.share)
    return total


def _non_torch(case: Case) -> int:
    """Context, libraries and communication buffers, and what a start-up log showed beyond the law."""
    processes, rules = by_device(case.engine["non_torch_by_device"], case.device_type), case.law["non_torch_gib"]
    arch, linked = case.capability.device.arch, case.engine.get("linked_archs", ())
    ranks = "linked_ranks" if (arch is None or arch in linked) and "linked_ranks" in rules else "ranks"
    law = _gib(processes.get("gib", rules["one_rank" if case.ranks == 1 else ranks]))
    residual = case.request.residual
    return max(0, law + residual.residual_bytes) if residual and residual.ranks == case.ranks else law


def layout_of(case: Case, shape: Shape, stage: Stage) -> Layout:
    """The KV cache of a rank of `stage`."""
    grouped, states = bool(case.law.get("groups_layers")), int(case.law.get("linear_states", 1))
    if not case.keeps_kv:
        return Layout(0, ())
    return layout(
        case.need, WIDTHS[shape.kv_dtype], case.ranks, stage, shape.block_size, grouped=grouped, states=states
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
    spare = kept_free(case)[0]
    if not fills_memory(case):
        return case.usable_bytes - spare
    percent = max(0, 100 * (case.usable_bytes - spare) // case.total_bytes)
    return -(-case.total_bytes * percent // 100)


def kept_free(case: Case) -> tuple[int, str]:
    """Bytes that one rank leaves free at least, and why: whole numbers, so that more memory never gives less."""
    engine, total, residual = case.engine, case.total_bytes or 0, residual_bytes(case)
    assumed = case.capability.memory.usable_bytes is None and case.request.device_memory_bytes is None
    percent, rule = 0, ""
    if not _shares_memory(case):
        percent, rule = engine["spare_percent"], f"{engine['spare_percent']} % of the card"
    elif assumed:
        percent, rule = engine["system_percent"], f"{engine['system_percent']} % for the system that shares the memory"
    share = total * percent // 100
    if share > residual:
        return share, rule
    return residual, "what the law does not count"


def kept_words(case: Case, limit: int | None) -> str:
    """What stays free of the memory that one process may allocate, and by which rule."""
    if limit is None or case.usable_bytes is None:
        return "unknown, as the capacity is"
    rule = kept_free(case)[1]
    if "gpu_memory_utilization" in case.request.pins:
        rule = "what the pinned share leaves"
    elif fills_memory(case):
        rule += " at least, the share being a whole percent"
    return f"{format_bytes(case.usable_bytes - limit)}: {rule}"


def residual_bytes(case: Case) -> int:
    """What the law leaves free on one rank for what it does not count."""
    rule = case.law.get("residual_gib") or case.engine["residual_gib"]
    return _gib(rule["one_rank" if case.ranks == 1 else "ranks"])


def fills_memory(case: Case) -> bool:
    """Whether the KV cache takes all that is left: of a share that is pinned, or a generator's on memory of its own."""
    pins = case.request.pins
    if "gpu_memory_utilization" in pins and "kv_cache_memory_bytes" not in pins:
        return bool(case.engine["fills_memory"])
    wants = case.spec.task == "generate" and case.request.objective != "memory"
    return bool(case.engine["fills_memory"] and wants and not _shares_memory(case))


def _shares_memory(case: Case) -> bool:
    """Whether the device has its memory from the host, whose system and programs need some of it."""
    return bool(case.device["shares_memory"] or case.capability.memory.kind in ("shared", "unified"))


def _kv_cache(case: Case, shape: Shape, cache: Layout, room: int) -> tuple[int, BudgetVerdict]:
    """Bytes of the KV cache: at least one longest sequence, and the block that the engine holds back."""
    if not cache.block_bytes:
        return 0, "boots" if room >= 0 else "oom"
    least = _least(shape, cache)
    pinned = case.request.pins.get("kv_cache_memory_bytes")
    wanted = room if fills_memory(case) else max(least, _blocks(case, shape, cache) * cache.block_bytes)
    given = min(wanted, room) if pinned is None else pinned
    if least <= given <= room:
        return given, "boots"
    return max(least, pinned or 0), "oom" if room < cache.block_bytes or given > room else "kv_too_small"


def _least(shape: Shape, cache: Layout) -> int:
    return (cache.blocks(shape.max_model_len, shape.tokens) + 1) * cache.block_bytes


def least_cache_bytes(case: Case, shape: Shape) -> int:
    """KV cache that holds one longest sequence on the rank that needs most for it."""
    stages = stages_of(case.spec.num_layers, case.stages)
    return max(_least(shape, layout_of(case, shape, stage)) for stage in stages)


def _blocks(case: Case, shape: Shape, cache: Layout) -> int:
    """KV blocks for the workload: pooling keeps one step, a generator every request to its end."""
    if case.spec.task == "embed":
        return cache.blocks(math.ceil(max(shape.tokens, shape.max_model_len) * _POOLING_SLACK), shape.tokens)
    return 1 + shape.seqs * cache.blocks(case.workload.length, shape.tokens)


def _gib(number: float) -> int:
    return round(number * GIB)

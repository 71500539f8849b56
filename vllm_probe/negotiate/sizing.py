"""Step 3, the numbers of one candidate: prefill chunk, batch and context that fit."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from vllm_probe.core.config import MemoryBudget
from vllm_probe.core.units import format_figure
from vllm_probe.core.values import JsonValue
from vllm_probe.negotiate.budget import account, layout_of
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.chunking import least_step, whole_up_to
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.predict import NO_SHAPE, Roofline
from vllm_probe.negotiate.shape import Shape
from vllm_probe.negotiate.stages import stages_of
from vllm_probe.negotiate.support import WORDS

_CHUNK_RANGE = (256, 8192)
_DEFAULT_CHUNK = 512
_TRANSFER_TOKENS = 65536  # tokens x GB/s for each transfer in flight, the rule for descriptors without curves
_PLATEAU = {"throughput": 0.98, "latency": 0.95, "memory": 0.95}
"""Objective to the share of the best rate that is enough: a chunk is also what a short prompt waits for."""

SHORT_TEXT = 16  # tokens; an embedding step is filled even by texts this short


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one prompt computed together, the rule that found them, and what it looked at."""

    rows: int
    rule: str
    inputs: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Sized:
    """A candidate with the sizes that fit, and every byte of it."""

    case: Case
    candidate: Candidate
    chunk: Chunk
    shape: Shape
    budget: MemoryBudget

    @property
    def boots(self) -> bool:
        """Whether it can start as far as is known."""
        return self.budget.verdict in ("boots", "unknown")

    def tokens_per_s(self) -> float | None:
        """Speed at the descriptor's rates, to compare candidates; null without a rate."""
        known = self.case.rates.of(self.candidate.compute)
        return Roofline(self.case, self.candidate, self.shape).tokens_per_s() if known else None

    def holds_workload(self) -> bool:
        """Whether the KV cache holds every sequence to its end, beside the block that the engine holds back."""
        stage = stages_of(self.case.spec.num_layers, self.case.stages)[0]
        cache = layout_of(self.case, self.shape, stage)
        blocks = self.shape.seqs * cache.blocks(self.case.workload.length, self.shape.tokens)
        return self.budget.verdict == "boots" and blocks < (self.budget.num_kv_blocks or 0)


def size(case: Case, candidate: Candidate) -> Sized:
    """The longest context and the largest batch that fit; what cannot boot is sized for the workload alone."""
    chunk, wanted, pins = prefill_chunk(case, candidate), case.workload.concurrency, case.request.pins
    top, whole = case.spec.max_model_len, whole_up_to(case)

    def at(length: int, seqs: int = wanted) -> Sized:
        shape = _shape(case, candidate, chunk, length, seqs)
        return Sized(case, candidate, chunk, shape, account(case, candidate, shape))

    def longest(seqs: int) -> int:
        def boots(length: int) -> bool:
            return at(length, seqs).budget.verdict == "boots"

        most = min(top, whole, pins.get("max_num_batched_tokens", top))
        return _largest(top, boots, whole + 1) or _largest(most, boots)

    pinned = pins.get("max_model_len")
    if case.total_bytes is None:
        return at(pinned or top)
    length, seqs = pinned or max(longest(wanted), min(case.workload.length, top)), wanted
    if fewer := case.spec.task == "generate" and "max_num_seqs" not in pins:
        seqs = max(1, _largest(wanted, lambda count: at(length, count).holds_workload()))
    best = at(length, seqs)
    possible = length if best.boots and not pinned else longest(seqs if best.boots or not fewer else 1)
    return replace(best, budget=replace(best.budget, estimated_max_model_len=possible))


def prefill_chunk(case: Case, candidate: Candidate) -> Chunk:
    """Rows from the measured rate curve, or from bandwidth and transfers, or the default."""
    default = f"{_DEFAULT_CHUNK} by default: the descriptor has neither a rate curve nor bandwidth and transfers"
    found = (
        _from_curve(case, candidate)
        or _from_rates(case, candidate)
        or _from_transfers(case)
        or Chunk(_DEFAULT_CHUNK, default, {})
    )
    pinned = case.request.pins.get("max_num_batched_tokens", found.rows)
    cut = f", cut to --max-num-batched-tokens {pinned}" if pinned < found.rows else ""
    return replace(found, rows=min(found.rows, pinned), rule=found.rule + cut)


def _from_curve(case: Case, candidate: Candidate) -> Chunk | None:
    """Smallest row count on the plateau of matrix products, and twice the ridge point F width / (2 BW)."""
    curve, bandwidth = case.rates.curve(candidate.compute), case.rates.bandwidth
    if len(curve) < 2:
        return None
    plateau = max(rate for _, rate in curve)
    enough = _PLATEAU[case.request.objective]
    rows = next(rows for rows, rate in curve if rate >= enough * plateau)
    inputs = {"curve": [list(point) for point in curve], "plateau_gflops": plateau, "bandwidth_gb_s": bandwidth}
    rule = (
        f"fewest tokens that reach {enough:.0%} of the best {candidate.compute} rate, {format_figure(plateau)} GFLOP/s"
    )
    if bandwidth:
        ridge = plateau * candidate.weights.bytes_per_weight / (2 * bandwidth)
        fastest = next(rows for rows, rate in curve if rate == plateau)
        rows = max(rows, min(fastest, 1 << math.ceil(math.log2(max(1, 2 * ridge)))))
        rule += f", at least twice the {ridge:.0f} from which computing takes longer than reading weights"
    return Chunk(rows, rule, inputs)


def _from_rates(case: Case, candidate: Candidate) -> Chunk | None:
    """Smallest power of two at which the law of speed predicts nearly the rate of the largest chunk.

    The rate is that of the activations' format, so that a faster quantized one takes no memory from its own cache.
    """
    wide = replace(candidate, compute=WORDS[candidate.dtype])
    rate, bandwidth = case.rates.of(wide.compute), case.rates.bandwidth
    if rate is None or bandwidth is None or case.capability.schema_version.startswith("1."):
        return None
    roofline, enough = (
        Roofline(case, wide, replace(NO_SHAPE, tokens=_CHUNK_RANGE[1])),
        _PLATEAU[case.request.objective],
    )
    least, sizes = roofline.prompt_s(_CHUNK_RANGE[1]) / enough, (1 << power for power in range(9, 14))
    rows = next(rows for rows in sizes if roofline.prompt_s(rows) <= least)
    rule = f"no rate curve: fewest tokens, from {_DEFAULT_CHUNK}, for which {enough:.0%} of the speed of"
    rule += f" {_CHUNK_RANGE[1]} is predicted: enough to hide the launches of a step and the reading of weights"
    return Chunk(rows, rule, {"rate": f"{wide.compute} {rate}", "bandwidth_gb_s": bandwidth})


def _from_transfers(case: Case) -> Chunk | None:
    transfers, bandwidth = case.capability.dma.max_concurrent_transfers, case.rates.bandwidth
    if not transfers or not bandwidth:
        return None
    exact, (low, high) = _TRANSFER_TOKENS * transfers / bandwidth, _CHUNK_RANGE
    figures = f"{_TRANSFER_TOKENS} x {transfers} transfers / {format_figure(bandwidth)} GB/s = {exact:.4g}"
    return Chunk(
        min(max(1 << round(math.log2(max(exact, 1))), low), high),
        f"no rate curve: {figures}, to a power of two from {low} to {high}",
        {"max_concurrent_transfers": transfers, "bandwidth_gb_s": bandwidth},
    )


def _largest(top: int, holds: Callable[[int], bool], least: int = 1) -> int:
    """Largest number from `least` to `top` that `holds`, 0 if none; what holds must hold for all smaller numbers."""
    if top < least:
        return 0
    if holds(top):
        return top
    if not holds(least):
        return 0
    low, high = least, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _shape(case: Case, candidate: Candidate, chunk: Chunk, length: int, seqs: int) -> Shape:
    pins = case.request.pins
    seqs = pins.get("max_num_seqs", max(seqs, chunk.rows // SHORT_TEXT) if case.spec.task == "embed" else seqs)
    tokens = max(chunk.rows, seqs, least_step(case, length))
    tokens = pins.get("max_num_batched_tokens", tokens)
    own = case.cache.of(candidate.dtype, is_own=candidate.quantization == case.spec.quantization)
    kv_dtype = pins.get("kv_cache_dtype", own)
    block, row = case.blocks.size, case.need.kv_bytes_per_layer(WIDTHS[kv_dtype], case.ranks)
    while block * row % alignment(case):
        block *= 2
    return Shape(
        max_model_len=length,
        seqs=min(seqs, tokens),
        tokens=tokens,
        block_size=pins.get("block_size", block),
        kv_dtype=kv_dtype,
        has_graphs=case.device["has_graphs"] and case.engine["has_compiler"] and not pins.get("enforce_eager"),
    )


def alignment(case: Case) -> int:
    """Alignment of blocks and buffers: the descriptor's, at least what the device type needs."""
    stated = case.capability.memory.alignment_bytes or case.device["alignment_bytes"]
    return max(stated, int(case.device["alignment_minimum"]))

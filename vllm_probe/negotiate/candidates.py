"""Step 2, capability matching: each number format and quantization, accepted or rejected with what decided."""

from dataclasses import dataclass

from vllm_probe.core.config import Rejection
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.units import format_bytes
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.gemm import WIDTHS, WeightFormat
from vllm_probe.negotiate.laws import Row, table
from vllm_probe.negotiate.rates import slower
from vllm_probe.negotiate.support import (
    DTYPES,
    WORDS,
    arch_of,
    cache_reason,
    device_doubt,
    device_reason,
    doubt,
    dtype_rule,
    format_reason,
    is_below,
    kernel_reason,
    own_doubt,
    own_methods,
    own_reason,
    shown,
    support,
    unnamed,
)

_TIE = 1.05  # a difference that bench cannot tell from noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Number format and quantization that the engine may have kernels for on this device.

    Attributes:
        dtype: format of activations, vLLM's word.
        quantization: method, or `none`.
        compute: capability word whose rate counts.
        weights: how linear weights are stored.
        option: engine option that carries the method.
        requires: what must be obtained first.
        doubts: what the tables are not sure of.
        refusal: why it may not be chosen, null if it may.
        unsupported: why the engine certainly cannot run it on this device, whatever its memory; null if it may.
        unmeasured: why its speed is only derived, from narrower weights in a wider product; it is then offered and not
            chosen for its speed. Null where the descriptor has its rate.
    """

    dtype: str
    quantization: str
    compute: str
    weights: WeightFormat
    option: str
    requires: tuple[str, ...]
    doubts: tuple[str, ...]
    refusal: str | None
    unsupported: str | None
    unmeasured: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The checkpoint's own storage, its quantized twins, and what has no kernels or too little speed."""

    own: Candidate
    twins: tuple[Candidate, ...]
    dtypes: tuple[Rejection, ...]
    methods: tuple[Rejection, ...]


def match(case: Case) -> Match:
    """The formats that can run, before fit and speed of the whole are compared.

    Raises:
        BadUsage: a pinned format or method that the engine cannot run on this device.
    """
    dtype, dtypes = _choose_dtype(case)
    checkpoint, rows = case.spec.quantization, support(case, "methods")
    others = {name: row for name, row in rows.items() if name != checkpoint and not row.get("own_only")}
    kernels = {name: kernel_reason(case, row) or _unlike(case, name, dtype) for name, row in others.items()}
    twins = [_candidate(case, dtype, name, rows[name]) for name, reason in kernels.items() if reason is None]
    own = _candidate(case, dtype, checkpoint, rows.get(checkpoint, {}))
    pinned = case.request.pins.get("quantization", checkpoint)
    if pinned not in (checkpoint, *(twin.quantization for twin in twins)):
        reason = kernels.get(pinned) or f"{case.request.engine} has no such method on {case.device_type}"
        can = ", ".join(each.quantization for each in (own, *twins) if not each.unsupported)
        raise BadUsage(
            f"--quantization {pinned} cannot run: {reason}", hint=f"these can: {can}" if can else "none can here"
        )
    return Match(
        own=own,
        twins=tuple(twins),
        dtypes=dtypes,
        methods=tuple(Rejection(value=name, because=reason) for name, reason in kernels.items() if reason),
    )


def _unlike(case: Case, method: str, dtype: str) -> str | None:
    """Why a method cannot stand beside the number format that is taken, or null."""
    reason = None if format_reason(case, dtype, ()) else format_reason(case, dtype, [method])
    return reason and f"{reason}, {dtype} is taken here"


def _cache_doubt(case: Case, dtype: str, *, is_own: bool) -> str | None:
    """Why the engine may refuse an 8-bit KV cache, pinned or its own choice, or null."""
    pinned, own = case.request.pins.get("kv_cache_dtype"), case.cache.of(dtype, is_own=is_own)
    reason = cache_reason(case) if case.keeps_kv and str(pinned or own).startswith("fp8") else None
    what = f"--kv-cache-dtype {pinned}" if pinned else f"the {own} KV cache of {case.spec.name}"
    way = "" if pinned or dtype not in case.cache.takes else f"; --kv-cache-dtype {dtype} keeps 16 bits"
    return reason and f"{what} may be refused at the start: {reason}{way}"


def _choose_dtype(case: Case) -> tuple[str, tuple[Rejection, ...]]:
    """The fastest format that can run, the checkpoint's own when bench cannot tell them apart."""
    pinned, own = case.request.pins.get("dtype"), case.spec.dtype
    reasons = {dtype: _dtype_reasons(case, dtype) for dtype in DTYPES}
    possible = [dtype for dtype in DTYPES if not format_reason(case, dtype, _methods(case))]
    usable = [dtype for dtype in sorted(DTYPES, key=own.__ne__) if not reasons[dtype]]
    rated = {dtype: rate.gflops for dtype in usable if (rate := case.rates.of(WORDS[dtype]))}
    widest = case.need.num_parameters * WIDTHS["float32"]
    if len(rated) > 1 and case.usable_bytes and widest > case.usable_bytes and rated.pop("float32", None):
        reasons["float32"].append(f"{format_bytes(widest)} of weights do not fit")
    if case.request.objective == "memory":
        rated = {dtype: rate for dtype, rate in rated.items() if WIDTHS[dtype] == min(map(WIDTHS.__getitem__, rated))}
    best = max(
        rated, key=lambda dtype: rated[dtype] * (_TIE if dtype == own else 1), default=(*usable, *possible, own)[0]
    )
    if pinned:
        if reason := format_reason(case, pinned, _methods(case)):
            hint = f"use one of {', '.join(possible)}" if possible else "no number format runs this model here"
            raise BadUsage(f"--dtype {pinned} cannot run: {reason}", hint=hint)
        best = pinned
    rejected = []
    for dtype in (dtype for dtype in DTYPES if dtype != best):
        rate, best_rate = case.rates.of(WORDS[dtype]), case.rates.of(WORDS[best])
        because = [] if rate else [case.rates.why_missing(WORDS[dtype])]
        if rate and best_rate and rate.gflops * _TIE < best_rate.gflops:
            because = [slower(WORDS[dtype], rate, WORDS[best], best_rate)]
        because += reasons[dtype] or ([] if because else [f"{best} is the checkpoint's own format, or smaller"])
        rejected.append(Rejection(value=dtype, because=f"--dtype {best} is pinned" if pinned else "; ".join(because)))
    return best, tuple(rejected)


def _dtype_reasons(case: Case, dtype: str) -> list[str]:
    """Why a format may not be used, whatever its speed."""
    reasons = [format_reason(case, dtype, _methods(case))]
    needs, execution = case.device["fp16_needs"], case.capability.execution
    if dtype == "float16" and needs and {*execution.matrix_instructions, case.capability.device.arch}.isdisjoint(needs):
        reasons.append(f"this CPU has no fp16 arithmetic (none of {', '.join(needs)} in the descriptor)")
    has_range = case.rates.of("bf16") and not format_reason(case, "bfloat16", _methods(case))
    if dtype == "float16" and case.spec.dtype == "bfloat16" and has_range:
        reasons.append("the checkpoint is bfloat16, whose values can exceed the 65504 that float16 holds")
    return [reason for reason in reasons if reason]


def _methods(case: Case) -> tuple[str, ...]:
    """Methods of the weights that are multiplied: of a pinned twin, else the checkpoint's."""
    pinned = case.request.pins.get("quantization", case.spec.quantization)
    return own_methods(case) if pinned == case.spec.quantization else (pinned,)


def _unrated(case: Case, dtype: str) -> str | None:
    """That a format was taken without a rate, and why not one that has a rate; or null."""
    if "dtype" in case.request.pins or case.rates.of(WORDS[dtype]):
        return None
    rated = {other: _dtype_reasons(case, other) for other in DTYPES if case.rates.of(WORDS[other])}
    refused = "; ".join(f"{other}: {', '.join(reasons)}" for other, reasons in rated.items() if reasons)
    if not refused:
        return None
    why = case.rates.why_missing(WORDS[dtype])
    return f"{dtype} is taken without a rate ({why}), what has one cannot run: {refused}"


def _unsupported(case: Case, name: str) -> str | None:
    """Why the engine certainly cannot run a method that has kernels, or the checkpoint's own, here; or null."""
    is_own = name == case.spec.quantization
    if reason := device_reason(case) or (own_reason(case) if is_own else None):
        return reason
    formats = {dtype: format_reason(case, dtype, own_methods(case) if is_own else (name,)) for dtype in DTYPES}
    if not all(formats.values()):
        return None
    return f"no number format is left: {'; '.join(f'{dtype}: {reason}' for dtype, reason in formats.items())}"


def _unsized(case: Case, method: Row) -> str | None:
    """That neither a method nor a file says how many bits the checkpoint stores, or null."""
    spec = case.spec
    if spec.quantization == "none" or method["bits"] or spec.stored_bits or spec.weight_bytes is not None:
        return None
    return f"no file says how many bits {spec.quantization} stores: weights are counted as if they were not quantized"


def _candidate(case: Case, dtype: str, name: str, row: Row) -> Candidate:
    methods, is_own = table("methods"), name == case.spec.quantization
    method = methods.get(name, methods["none"])
    stored = {part: methods.get(word, methods["none"]) for part, word in case.spec.quantized_parts.items() if is_own}
    parts = {part: (how["bits"], how["row_bytes"]) for part, how in stored.items()}
    read = case.spec.stored_bits if is_own else {}
    parts |= {part: (bits, 0) for part, bits in read.items()}
    most = next((read[part] for part in ("experts", "feed_forward", "attention") if part in read), None)
    word, unmeasured = _compute(case, row, method["format"], dtype)
    found = [device_doubt(case), doubt(case, row), doubt(case, dtype_rule(case, dtype)), _unrated(case, dtype)]
    found += [_cache_doubt(case, dtype, is_own=is_own), *([own_doubt(case), _unsized(case, method)] if is_own else [])]
    doubts = [each for each in found if each]
    needed = row.get("min_arch")
    if needed and arch_of(case) is None:
        doubts.append(f"{name} needs {shown(needed)} or newer; {unnamed(case)}")
    refusal, unsupported = None, _unsupported(case, name)
    if case.spec.quantization != "none":
        refusal = f"the checkpoint is {case.spec.quantization} already"
    elif case.spec.is_encoder:
        refusal = f"{name} checkpoints are made of decoders only"
    return Candidate(
        dtype=dtype,
        quantization=name,
        compute=word,
        weights=WeightFormat(
            method=name,
            width=WIDTHS[dtype],
            bits=method["bits"] or most,
            row_bytes=method["row_bytes"],
            parts=tuple((part, *storage) for part, storage in parts.items()),
        ),
        option=row.get("option", "--quantization"),
        requires=(f"{method['obtain']} of {case.spec.name}",) if method["obtain"] and not is_own else (),
        doubts=() if unsupported else tuple(doubts),
        refusal=None if is_own else refusal,
        unsupported=unsupported,
        unmeasured=None if is_own else unmeasured,
    )


def _compute(case: Case, row: Row, word: str | None, dtype: str) -> tuple[str, str | None]:
    """Capability word whose rate counts for a method that multiplies in `word`, and why its own does not count."""
    if is_below(case, row.get("native_arch")):
        arch, native = case.capability.device.arch, shown(row["native_arch"])
        return WORDS[dtype], f"{arch} unpacks its weights to {WORDS[dtype]}; it is multiplied as it is from {native} on"
    if "unrated" in row:
        return WORDS[dtype], row["unrated"]
    if word and case.rates.of(word):
        return word, None
    return WORDS[dtype], case.rates.why_missing(word) if word else "no rate of its own stands in a descriptor"

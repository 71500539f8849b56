"""Step 3, the choice: which candidate wins with the sizes that fit, and what else would boot."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vllm_probe.core.config import Alternative, Rejection
from vllm_probe.core.units import format_bytes
from vllm_probe.negotiate.budget import least_cache_bytes
from vllm_probe.negotiate.candidates import Candidate, cache_reason, match, own_doubt
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.chunking import refusal_of_step
from vllm_probe.negotiate.request import ranks_of, workload_of
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.sizing import Sized, size

_LEAST_GAIN = 1.3  # quantization costs accuracy and another checkpoint
_TIE = 1.05  # a difference that bench cannot tell from noise
_OTHER_MODELS = 2
_MIB = 1 << 20
_MOST_HOSTS = 8
LEAST_BITS = 4
"""No checkpoint stores its weights in fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What won and by which rule, the checkpoint as it is, its twins, and what was rejected."""

    chosen: Sized
    rule: str
    own: Sized
    twins: tuple[Sized, ...]
    dtypes: tuple[Rejection, ...]
    methods: tuple[Rejection, ...]


def choose(case: Case) -> Selection:
    """The best candidate with its sizes: one that boots, then by the objective the fastest or the smallest.

    Raises:
        BadUsage: a pinned format or method that the engine cannot run on this device.
    """
    found = match(case)
    own, twins = size(case, found.own), tuple(size(case, twin) for twin in found.twins)
    pinned = case.request.pins.get("quantization")
    refusals = [twin.candidate.refusal or _refusal(own, twin) for twin in twins]
    chosen = _best([own, *(twin for twin, refusal in zip(twins, refusals, strict=True) if not refusal)])
    rule = "the checkpoint as it is" if chosen is own else _praise(own, chosen)
    if pinned:
        chosen = next((twin for twin in twins if pinned == twin.candidate.quantization), own)
        rule = f"--quantization {pinned} is pinned"
    rejected = [
        Rejection(
            value=twin.candidate.quantization,
            because=rule if pinned else refusal or f"no better than {chosen.candidate.quantization}",
        )
        for twin, refusal in zip(twins, refusals, strict=True)
        if twin is not chosen
    ]
    if chosen is not own:
        rejected.insert(0, Rejection(value=own.candidate.quantization, because=rule))
    return Selection(
        chosen=chosen,
        rule=rule,
        own=own,
        twins=twins,
        dtypes=found.dtypes,
        methods=(*rejected, *found.methods),
    )


def _best(sized: list[Sized]) -> Sized:
    """Of those that boot with the longest context and the largest batch, the first within noise of the best.

    What serves less than another that may be chosen never wins, so that more memory never costs context or batch.
    """
    booting = [each for each in sized if each.boots] or sized
    most = max(_context(each) for each in booting), max(_batch(each) for each in booting)
    roomy = [each for each in booting if (_context(each), _batch(each)) == most] or booting
    merits = [_merit(each) for each in roomy]
    return next(each for each, merit in zip(roomy, merits, strict=True) if merit * _TIE >= max(merits))


def _context(sized: Sized) -> int:
    return sized.shape.max_model_len


def _batch(sized: Sized) -> int:
    """Sequences of the workload in one step."""
    return min(sized.shape.seqs, sized.case.workload.concurrency)


def _merit(sized: Sized) -> float:
    """What the objective wants more of: few bytes of weights, or tokens a second (of one request for latency)."""
    if sized.case.request.objective == "memory":
        return 1 / max(1, sized.budget.weights_bytes)
    return sized.tokens_per_s() or 0.0


def _refusal(own: Sized, twin: Sized) -> str | None:
    """Why a quantized twin is not worth its checkpoint, or null."""
    if not twin.boots:
        return f"it does not fit{'' if own.boots else ' either'}: {twin.budget.verdict}"
    if twin.candidate.unmeasured:
        return twin.candidate.unmeasured
    if own.case.request.objective == "memory":
        return None
    is_roomier = _context(twin) > _context(own) or _batch(twin) > _batch(own)
    if not own.boots or is_roomier or _gain(own, twin) >= _LEAST_GAIN:
        return None
    return f"{_praise(own, twin)}: under the {_LEAST_GAIN} that another checkpoint must gain"


def _gain(own: Sized, twin: Sized) -> float:
    before, after = own.tokens_per_s(), twin.tokens_per_s()
    return after / before if before and after else 0.0


def _praise(own: Sized, twin: Sized) -> str:
    work, objective = own.case.workload, own.case.request.objective
    if not own.boots:
        return f"{own.candidate.quantization} does not fit: {own.budget.verdict}"
    if objective == "memory":
        sizes = (format_bytes(each.budget.weights_bytes) for each in (twin, own))
        return f"--objective memory: {' of weights instead of '.join(sizes)}"
    if _gain(own, twin) < _LEAST_GAIN and (_context(own), _batch(own)) != (_context(twin), _batch(twin)):
        room = [
            f"{each.candidate.quantization} holds {_context(each)} tokens and {_batch(each)}" for each in (own, twin)
        ]
        return f"{room[0]} of {work.concurrency} sequences, {room[1]}"
    words = own.candidate.compute, twin.candidate.compute
    first, second = (own.case.rates.of(word) for word in words)
    figures = f"{twin.candidate.quantization} computes in {words[1]} at {second}, {words[0]} reaches {first}"
    load = f"{work.concurrency} x ({work.input_len} + {work.output_len}) tokens"
    return f"{figures}: {_gain(own, twin):.2f} times as fast on this workload, --objective {objective} of {load}"


def alternatives(selection: Selection) -> tuple[Alternative, ...]:
    """The checkpoint's own format when another won; what would boot, nearest first, when this does not."""
    chosen, own = selection.chosen, selection.own
    found = []
    if chosen is not own:
        note = f"the checkpoint as it is, nothing to obtain; {format_bytes(own.budget.weights_bytes)} of weights"
        found.append(_alternative(f"--quantization {own.candidate.quantization}", own, note))
    if chosen.budget.verdict == "invalid":
        found += [*_stepped(chosen), *_answerable(chosen), *_other_models(chosen.case, keeps="max_model_len")]
    elif not chosen.boots:
        found += [*_raised(chosen), *_smaller(selection), *_split(selection), *_other_models(chosen.case)]
    return tuple(found)


def _alternative(change: str, sized: Sized, note: str) -> Alternative:
    budget, context = sized.budget, f"; context {sized.shape.max_model_len}"
    return Alternative(
        change=change,
        requested_bytes=budget.requested_bytes,
        verdict=budget.verdict,
        note=note + context,
        budget=budget,
    )


def _answerable(chosen: Sized) -> Iterator[Alternative]:
    """The nearest question that the model can answer: the largest length that boots, or requests that fit in it."""
    case, work, limit = chosen.case, chosen.case.workload, chosen.case.spec.max_model_len
    request, pinned, words = case.request, case.request.pins.get("max_model_len", limit), ""
    unpins = pinned > limit or work.length <= limit
    if unpins:
        request = replace(request, pins={key: pin for key, pin in request.pins.items() if key != "max_model_len"})
    if work.length > (room := limit if unpins else pinned):
        output_len = work.output_len if work.output_len < room else room // 2
        request = replace(request, input_len=room - output_len, output_len=output_len)
        words = f" --input-len {room - output_len}"
        words += f" --output-len {output_len}" if output_len < work.output_len else ""
    asked = replace(case, request=request, workload=workload_of(request, case.spec))
    best = size(asked.pinned(max_model_len=room), chosen.candidate)
    if unpins and not best.boots and (length := best.budget.estimated_max_model_len):
        best = size(asked.pinned(max_model_len=length), chosen.candidate)
    if best.boots:
        change = (f"--max-model-len {best.shape.max_model_len}" if unpins else "") + words
        yield _alternative(change.strip(), best, "shorter requests" if words else "the largest length that boots")


def _stepped(chosen: Sized) -> Iterator[Alternative]:
    """The step that holds the prompts that are asked for, where the pinned one does not."""
    if refusal_of_step(chosen.case):
        length = chosen.case.request.pins.get("max_model_len", chosen.case.workload.length)
        larger = size(chosen.case.pinned(max_num_batched_tokens=length), chosen.candidate)
        if larger.boots:
            yield _alternative(f"--max-num-batched-tokens {length}", larger, "a step that holds the longest prompt")


def _raised(chosen: Sized) -> Iterator[Alternative]:
    """The smallest pinned share, in whole percents, or pinned KV cache, in MiB, with which the same config boots."""
    case, pins = chosen.case, chosen.case.request.pins
    if "gpu_memory_utilization" in pins and case.total_bytes:

        def at(percent: int) -> Sized:
            return size(case.pinned(gpu_memory_utilization=percent / 100), chosen.candidate)

        low = min(math.ceil(100 * pins["gpu_memory_utilization"]), 100)
        percent = bisect.bisect_left(range(low, 101), True, key=lambda value: at(value).boots) + low
        if (larger := at(min(percent, 100))).boots:
            change = f"--gpu-memory-utilization {percent / 100:g}"
            yield _alternative(change, larger, "the smallest share that boots")
    if "kv_cache_memory_bytes" in pins:
        mebibytes = -(-least_cache_bytes(case, chosen.shape) // _MIB)
        larger = size(case.pinned(kv_cache_memory_bytes=mebibytes * _MIB), chosen.candidate)
        if larger.boots:
            yield _alternative(f"--kv-cache-memory-bytes {mebibytes}MiB", larger, "the smallest cache that boots")


def _smaller(selection: Selection) -> Iterator[Alternative]:
    """The same model here, with less context, a smaller KV cache or smaller weights."""
    chosen, case = selection.chosen, selection.chosen.case
    if length := chosen.budget.estimated_max_model_len:
        shorter = size(case.pinned(max_model_len=length), chosen.candidate)
        yield _alternative(f"--max-model-len {length}", shorter, "shorter requests")
    if case.engine["has_fp8_kv"] and case.device["has_fp8_kv"] and case.keeps_kv and not cache_reason(case):
        cached = size(case.pinned(kv_cache_dtype="fp8"), chosen.candidate)
        if cached.boots:
            yield _alternative("--kv-cache-dtype fp8", cached, "keys and values lose precision")
    for twin in selection.twins:
        if twin.boots and twin.candidate.requires:
            yield _alternative(
                f"--quantization {twin.candidate.quantization}", twin, f"needs {twin.candidate.requires[0]}"
            )


def _split(selection: Selection) -> Iterator[Alternative]:
    """The fewest tensor-parallel ranks with which the chosen format boots, and the smallest one; then several hosts."""
    case, chosen = selection.chosen.case, selection.chosen.candidate
    smallest = min((twin.candidate for twin in selection.twins), key=_bits, default=chosen)
    for candidate in dict.fromkeys([chosen, smallest]):
        method = f" --quantization {candidate.quantization}" if candidate.requires else ""
        for ranks in ranks_of(case.spec):
            if case.ranks < ranks <= case.engine["max_ranks"]:
                split = size(case.pinned(tensor_parallel_size=ranks), candidate)
                if split.boots:
                    note = " and ".join([f"needs {ranks} such devices", *candidate.requires])
                    yield _alternative(f"--tensor-parallel-size {ranks}{method}", split, note)
                    break
        yield from _hosts(case, candidate, method)


def _hosts(case: Case, candidate: Candidate, method: str) -> Iterator[Alternative]:
    """The fewest hosts like this one that hold a candidate: ranks within a host, a pipeline stage on each."""
    count = case.request.num_devices
    if count is None or case.engine["max_ranks"] == 1:
        return
    ranks = max(ranks for ranks in ranks_of(case.spec) if ranks <= count)
    for hosts in range(2, min(_MOST_HOSTS, case.spec.num_layers) + 1):
        split = size(case.pinned(tensor_parallel_size=ranks, pipeline_parallel_size=hosts), candidate)
        if split.boots:
            change = f"--tensor-parallel-size {ranks} --pipeline-parallel-size {hosts}{method}"
            needs = f"needs {hosts} hosts with {ranks} such devices each, joined by Ray"
            yield _alternative(change, split, " and ".join([needs, *candidate.requires]))
            return


def _bits(candidate: Candidate) -> float:
    return candidate.weights.bytes_per_weight


def _other_models(case: Case, keeps: str = "") -> Iterator[Alternative]:
    """The largest models of two families whose own checkpoint boots for the same task, workload and pin of `keeps`."""
    from vllm_probe.models import catalogue

    found, labels = set[str](), catalogue.labels()
    pins = {key: pin for key, pin in case.request.pins.items() if key == keeps}
    needs = (analyse(catalogue.load(name)) for name in catalogue.entries())
    for need in sorted(needs, key=lambda need: need.num_parameters, reverse=True):
        spec, known = need.spec, case.engine["architectures"] and case.engine["architectures"][need.spec.task]
        fits, family = need.num_parameters * LEAST_BITS / 8 <= (case.usable_bytes or 0), labels[spec.name].family
        if not fits or spec.task != case.spec.task or spec.name == case.spec.name or family in found:
            continue
        engine = case.request.engine if known is None or spec.architecture in known else "vllm"
        there = open_case(spec, case.capability, replace(case.request, engine=engine, engine_version=None, pins=pins))
        other = size(there, match(there).own)
        if other.boots and not own_doubt(there):
            found.add(family)
            change = f"--model {spec.name}" + (f" --engine {engine}" if engine != case.request.engine else "")
            yield _alternative(change, other, f"{format_bytes(other.budget.weights_bytes)} of weights")
            if len(found) == _OTHER_MODELS:
                return

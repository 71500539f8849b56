"""Step 3, what else would do: configs that boot where the chosen one does not, nearest first."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.capability import Capability
from vllm_probe.core.config import Alternative
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.units import format_bytes, format_rounded
from vllm_probe.negotiate.budget import least_cache_bytes
from vllm_probe.negotiate.candidates import Candidate, match
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.chunking import least_step, refusal_of_step
from vllm_probe.negotiate.predict import predict
from vllm_probe.negotiate.request import Request, ranks_of, workload_of
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.select import LEAST_BITS, Selection
from vllm_probe.negotiate.sizing import Sized, size
from vllm_probe.negotiate.support import cache_reason, own_doubt
from vllm_probe.negotiate.workable import workable

_OTHER_MODELS = 2
_MIB = 1 << 20
_MOST_HOSTS = 8


def alternatives(selection: Selection) -> tuple[Alternative, ...]:
    """The checkpoint's own format when another won; what would boot, nearest first, when this does not."""
    chosen, own = selection.chosen, selection.own
    found = []
    if chosen is not own:
        note = f"the checkpoint as it is, nothing to obtain; {format_bytes(own.budget.weights_bytes)} of weights"
        found.append(_alternative(f"--quantization {own.candidate.quantization}", own, note))
    if chosen.candidate.unsupported:
        found += [*(_alternative(*each) for each in workable(chosen.case)), *_other_models(chosen.case)]
    elif chosen.budget.verdict == "invalid":
        found += [*_stepped(chosen), *_answerable(chosen), *_other_models(chosen.case)]
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
        least_bytes=_least_bytes(sized),
    )


def _least_bytes(sized: Sized) -> int | None:
    """What the rank needs with a KV cache of one longest sequence, or of the size that is pinned."""
    budget = sized.budget
    if budget.requested_bytes is None or budget.kv_cache_bytes is None:
        return None
    cache = budget.kv_cache_bytes
    if cache and "kv_cache_memory_bytes" not in sized.case.request.pins:
        cache = min(cache, least_cache_bytes(sized.case, sized.shape))
    return budget.requested_bytes - budget.kv_cache_bytes + cache


def _answerable(chosen: Sized) -> Iterator[Alternative]:
    """The nearest question that the model can answer: the largest length that boots, or requests that fit in it."""
    case, limit = chosen.case, chosen.case.spec.max_model_len
    pinned = case.request.pins.get("max_model_len", limit)
    unpins = pinned > limit or case.workload.length <= limit
    best, words = _within(chosen, limit if unpins else pinned)
    if unpins and not best.boots and (length := best.budget.estimated_max_model_len):
        best, words = _within(chosen, length)
    if best.boots:
        change = (f"--max-model-len {best.shape.max_model_len}" if unpins else "") + words
        yield _alternative(change.strip(), best, "shorter requests" if words else "the largest length that boots")


def _within(chosen: Sized, length: int) -> tuple[Sized, str]:
    """The same with that context, and the options that cut its requests to it where they are longer."""
    asked, words = chosen.case.pinned(max_model_len=length), ""
    work = workload_of(asked.request, asked.spec)
    if work.length > length:
        output_len = work.output_len if work.output_len < length else length // 2
        words = f" --input-len {length - output_len}"
        words += f" --output-len {output_len}" if output_len < work.output_len else ""
        asked = replace(asked, request=replace(asked.request, input_len=length - output_len, output_len=output_len))
        work = workload_of(asked.request, asked.spec)
    return size(replace(asked, workload=work), chosen.candidate), words


def _stepped(chosen: Sized) -> Iterator[Alternative]:
    """The step that holds the prompts that are asked for, and images, where the pinned one does not."""
    if refusal_of_step(chosen.case):
        length = chosen.case.request.pins.get("max_model_len", chosen.case.workload.length)
        step = least_step(chosen.case, length)
        larger = size(chosen.case.pinned(max_num_batched_tokens=step), chosen.candidate)
        if larger.boots:
            yield _alternative(f"--max-num-batched-tokens {step}", larger, "a step that holds what is computed whole")


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
    """The same model here, with less context, without graphs, with a smaller KV cache or smaller weights."""
    chosen, case = selection.chosen, selection.chosen.case
    if length := chosen.budget.estimated_max_model_len:
        shorter, words = _within(chosen, length)
        if shorter.boots:
            yield _alternative(f"--max-model-len {length}{words}", shorter, "shorter requests")
    if (eager := _eager(chosen)).boots:
        yield _alternative("--enforce-eager", eager, _slower(eager))
    if case.engine["has_fp8_kv"] and case.device["has_fp8_kv"] and case.keeps_kv and not cache_reason(case):
        cached = size(case.pinned(kv_cache_dtype="fp8"), chosen.candidate)
        if cached.boots:
            yield _alternative("--kv-cache-dtype fp8", cached, "keys and values lose precision")
    lighter = _lighter(selection)
    for twin in lighter:
        if twin.boots:
            yield _alternative(f"--quantization {twin.candidate.quantization}", twin, _needs(twin.candidate))
    without = (_eager(twin) for twin in lighter if not twin.boots)
    if found := next((twin for twin in without if twin.boots), None):
        change = f"--quantization {found.candidate.quantization} --enforce-eager"
        yield _alternative(change, found, f"{_needs(found.candidate)}; {_slower(found)}")


def _lighter(selection: Selection) -> list[Sized]:
    """The twins that may be chosen and whose checkpoint is smaller than what was."""
    weights_bytes = selection.chosen.budget.weights_bytes
    return [
        twin
        for twin in selection.twins
        if twin.candidate.requires and not twin.candidate.refusal and twin.budget.weights_bytes < weights_bytes
    ]


def _eager(sized: Sized) -> Sized:
    """The same without recorded graphs, whose memory is then free; itself where it records none."""
    return size(sized.case.pinned(enforce_eager=True), sized.candidate) if sized.shape.has_graphs else sized


def _slower(eager: Sized) -> str:
    """What is lost without graphs; the law of speed is that of engines that record them."""
    speed = predict(eager.case, eager.candidate, eager.shape, eager.budget.verdict).tokens_per_s.value
    return "slower: no CUDA graphs" + (f", under {format_rounded(speed)} tokens/s" if speed else "")


def _needs(candidate: Candidate) -> str:
    return f"needs {candidate.requires[0]}"


def _split(selection: Selection) -> Iterator[Alternative]:
    """The fewest tensor-parallel ranks with which the chosen format boots, and the smallest one; then several hosts."""
    case, chosen = selection.chosen.case, selection.chosen.candidate
    smallest = min((twin.candidate for twin in _lighter(selection)), key=_bits, default=chosen)
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


def _other_models(case: Case) -> Iterator[Alternative]:
    """The largest models of two families that boot for the same task, workload and pins, each as its checkpoint is."""
    from vllm_probe.models import catalogue

    found, labels = set[str](), catalogue.labels()
    needs = (analyse(catalogue.load(name)) for name in catalogue.entries())
    for need in sorted(needs, key=lambda need: need.num_parameters, reverse=True):
        spec, known = need.spec, case.engine["architectures"] and case.engine["architectures"][need.spec.task]
        fits, family = need.num_parameters * LEAST_BITS / 8 <= (case.usable_bytes or 0), labels[spec.name].family
        if not fits or spec.task != case.spec.task or spec.name == case.spec.name or family in found:
            continue
        engine = case.request.engine if known is None or spec.architecture in known else "vllm"
        other = _asked(spec, case.capability, replace(case.request, engine=engine))
        if other and other.boots:
            found.add(family)
            change = f"--model {spec.name}" + (f" --engine {engine}" if engine != case.request.engine else "")
            yield _alternative(change, other, f"{format_bytes(other.budget.weights_bytes)} of weights")
            if len(found) == _OTHER_MODELS:
                return


def _asked(spec: ModelSpec, capability: Capability, request: Request) -> Sized | None:
    """`spec` as its checkpoint is under a request; null where the request means nothing for it or kernels may lack."""
    try:
        case = open_case(spec, capability, request)
        own = match(case).own
    except BadUsage:
        return None
    is_own = case.request.pins.get("quantization", own.quantization) == own.quantization
    return size(case, own) if is_own and not own_doubt(case) else None

"""Step 3, the choice: which candidate wins with the sizes that fit."""

from dataclasses import dataclass

from vllm_probe.core.config import Rejection
from vllm_probe.core.units import format_bytes
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.sizing import Sized, size

_LEAST_GAIN = 1.3  # quantization costs accuracy and another checkpoint
_TIE = 1.05  # a difference that bench cannot tell from noise
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
    if twin.candidate.unsupported:
        return twin.candidate.unsupported
    if not twin.boots:
        return f"it does not fit{'' if own.boots else ' either'}: {twin.budget.verdict}"
    if own.case.request.objective == "memory":
        return None
    if twin.candidate.unmeasured:
        return twin.candidate.unmeasured
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

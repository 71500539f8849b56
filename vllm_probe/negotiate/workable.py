"""What runs a model on a device where the engine certainly cannot run its checkpoint as it is."""

from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.errors import BadUsage
from vllm_probe.negotiate.candidates import Candidate, match
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.sizing import Sized, size
from vllm_probe.negotiate.support import device_reason, release_for, support


def workable(case: Case) -> Iterator[tuple[str, Sized, str]]:
    """What would boot, as options with a note: another checkpoint, sure and fast ones first, or an older release.

    Where the older release cannot run the checkpoint either, it is named with the first that it can.
    """
    found = [sized for method in support(case, "methods") for sized in _as(case, method)]
    for sized in sorted(found, key=lambda sized: (len(sized.candidate.doubts), -(sized.tokens_per_s() or 0.0))):
        yield f"--quantization {sized.candidate.quantization}", sized, f"needs {sized.candidate.requires[0]}"
    if device_reason(case) and (release := release_for(case)):
        asked = replace(case.request, engine_version=release, residual=None)
        note = "the last release that runs on this device"
        for change, sized, needs in _there(case, asked):
            yield f"--engine-version {release}{change}", sized, note + needs


def _as(case: Case, method: str) -> Iterator[Sized]:
    """The model quantized by `method`, where it boots."""
    if case.spec.is_encoder or method == case.spec.quantization or device_reason(case):
        return
    asked = case.pinned(quantization=method)
    try:
        twins = match(asked).twins
    except BadUsage:
        return
    twin = next((twin for twin in twins if twin.quantization == method), None)
    if twin and twin.requires and (sized := _booting(asked, twin)):
        yield sized


def _there(case: Case, request: Request) -> Iterator[tuple[str, Sized, str]]:
    """The checkpoint as it is under another `request`, or the first that boots instead, with what it adds to both."""
    try:
        asked = open_case(case.spec, case.capability, request)
        own = match(asked).own
    except BadUsage:
        return
    if not own.unsupported:
        if sized := _booting(asked, own):
            yield "", sized, ""
        return
    if found := next(workable(asked), None):
        yield f" {found[0]}", found[1], f", {found[2]}"


def _booting(case: Case, candidate: Candidate) -> Sized | None:
    sized = size(case, candidate)
    return sized if sized.boots else None

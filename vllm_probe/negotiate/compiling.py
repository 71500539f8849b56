"""Step 3, compilation: where bench saw a gain, and by which implementation of each primitive."""

from collections.abc import Mapping
from typing import Any

from vllm_probe.core.config import Compile
from vllm_probe.negotiate.predict import Roofline
from vllm_probe.negotiate.sizing import Sized

_LAUNCH_SHARE = 0.2  # of a step; recorded graphs pay off above it


def choices_of(chosen: Sized) -> dict[str, dict[str, Any]]:
    """What bench found of each primitive in the format that is computed in."""
    found = {
        name: entry.get(chosen.candidate.compute, entry)
        for name, entry in sorted(chosen.case.capability.primitives.items())
    }
    return {
        name: choice
        for name, choice in found.items()
        if isinstance(choice, dict) and isinstance(choice.get("implementation"), str)
    }


def undecided(chosen: Sized, choices: Mapping[str, dict[str, Any]]) -> list[str]:
    """Primitives of which bench could not tell which implementation is faster: they are as the adapter prefers."""
    abouts, compute = chosen.case.capability.measurements, chosen.candidate.compute
    found = {name: abouts.get(f"/primitives/{name}/{compute}") for name in choices if not choices[name].get("ratio")}
    return [name for name, about in found.items() if about and about.status != "measured"]


def compile_of(chosen: Sized, choices: Mapping[str, dict[str, Any]]) -> Compile:
    """On where bench saw a gain, for the bundled engine; on by default for one that compiles whole models."""
    case, backend = chosen.case, chosen.case.device["compile_backend"]
    gains = {
        name: choice.get("ratio") for name, choice in choices.items() if backend and choice["implementation"] == backend
    }
    if not backend:
        reason = "no compiler is known for this device type"
    elif case.request.pins.get("enforce_eager"):
        reason = "--enforce-eager is pinned"
    elif case.engine["has_compiler"]:
        return Compile(enabled=True, mode="default", backend=backend, reason="vLLM's default; no bench says otherwise")
    elif not gains:
        reason = "bench saw no gain" if choices else "no bench tried it"
    else:
        shown = ", ".join(f"{name} {ratio:.1f} times as fast" for name, ratio in gains.items() if ratio)
        reason = f"bench saw a gain: {shown or backend}"
        share = Roofline(case, chosen.candidate, chosen.shape).launch_share()
        if case.device["has_graphs"] and share > _LAUNCH_SHARE:
            reason += f"; launches are {share:.0%} of a step, which recorded graphs save"
            return Compile(enabled=True, mode="reduce-overhead", backend=backend, reason=reason)
        return Compile(enabled=True, mode="default", backend=backend, reason=reason)
    return Compile(enabled=False, mode=None, backend=None, reason=reason)

"""What releases compute whole, prompts or images: a step must hold it, and they refuse a smaller one at start."""

import re
import sys

from vllm_probe.core.releases import at_version
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.laws import server_defaults, table
from vllm_probe.negotiate.layers import groups_of

_V0_SEQS = 256
_V0_TOKENS = 2048


def runs_v0(case: Case) -> bool:
    """Whether vLLM's first engine runs this: always to 0.7, then for what the second one could not do yet.

    `_is_v1_supported_oracle` of vllm/engine/arg_utils.py, releases 0.8.5 to 0.10.1.
    """
    rule, pins, arch = case.law.get("v0"), case.request.pins, case.capability.device.arch
    if not rule:
        return False
    if rule.get("all"):
        return True
    number = re.fullmatch(rf"{rule['arch']}(\d+)[a-z]?", arch or "")
    eight_bits = str(pins.get("kv_cache_dtype", "")).startswith("fp8") and arch not in rule["fp8_kv_archs"]
    return (
        (number is not None and int(number[1]) < rule["least_arch"])
        or case.device_type not in rule.get("types", (case.device_type,))
        or case.spec.task not in rule["tasks"]
        or pins.get("dtype") == "float32"
        or eight_bits
    )


def whole_up_to(case: Case) -> int:
    """Largest `max_model_len` with which a step holds whole prompts; 0 where prompts are always cut.

    The first engine cuts prompts of longer models alone, of text generators without windows or latents
    (`_set_default_args_v0` of vllm/engine/arg_utils.py, release 0.8.5; github.com/vllm-project/vllm/pull/6666).
    """
    if case.computes_whole_prompts:
        return sys.maxsize
    if not runs_v0(case):
        return 0
    spec, limit = case.spec, case.law["prompts_whole_to"]
    windows = any(group.window for group in groups_of(spec))
    is_plain = spec.task == "generate" and not (spec.vision_parameters or spec.mla or windows)
    cuts = is_plain and limit is not None and case.device_type in case.engine["cuts_on"]
    return int(limit) if cuts else sys.maxsize


def computes_whole(case: Case, length: int) -> bool:
    """Whether a step must hold a prompt of `max_model_len` `length`."""
    return length <= whole_up_to(case)


def item_tokens(case: Case) -> int:
    """Tokens of the longest image or video of the model, where the engine computes it in one step; else 0."""
    law = table("items")
    whole = law["computed_whole"].get(case.device_type) if case.request.engine == "vllm" else None
    tokens = int(law["tokens"].get(case.spec.architecture, 0))
    return tokens if whole and at_version(whole, case.engine_version) else 0


def least_step(case: Case, length: int) -> int:
    """Tokens that a step must hold at `max_model_len` `length`."""
    return max(1, item_tokens(case), length if computes_whole(case, length) else 0)


def refusal_of_step(case: Case) -> str | None:
    """Why the pinned step is too small for the prompts that are asked for, or for images; null when it is not."""
    step, length = case.request.pins.get("max_num_batched_tokens"), case.workload.length
    length = case.request.pins.get("max_model_len", length)
    if step is None or step >= least_step(case, length):
        return None
    if step < (item := item_tokens(case)):
        words = (
            f"{case.request.engine} {case.engine_version} computes an image or video of {case.spec.name} in one step"
        )
        return f"--max-num-batched-tokens {step} is under {item}: {words}"
    cuts = whole_up_to(case)
    words = "" if cuts == sys.maxsize else f", up to a context of {cuts} tokens"
    words = f"{case.request.engine} {case.engine_version} computes prompts of {case.spec.name} whole{words}"
    return f"--max-num-batched-tokens {step} is under {length}: {words}"


def start_defaults(case: Case, length: int) -> dict[str, int]:
    """Tokens and sequences of a step of a server that came up and where nothing is said of them, as its options.

    They are vLLM's own; with fewer tokens than the longest image or video takes it would not have come up.
    """
    if not runs_v0(case):
        own = server_defaults(case.engine_version, case.total_bytes or 0, case.capability.device.arch)
        return own | {"max_num_batched_tokens": max(own["max_num_batched_tokens"], item_tokens(case))}
    tokens = max(_V0_TOKENS, length) if computes_whole(case, length) else case.law["v0_chunk"]
    return {"max_num_batched_tokens": tokens, "max_num_seqs": _V0_SEQS}

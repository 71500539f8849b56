"""The record of the KV cache: the rules of its format and of its blocks, and who carries them."""

from typing import Any

from vllm_probe.core.config import Rejection
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.sizing import Sized, alignment

_OWN_BLOCKS = "not passed on: vLLM takes this size by itself, and drops kernels that want another once one is given"


def cache_format_rule(chosen: Sized) -> tuple[str, tuple[Rejection, ...], dict[str, Any]]:
    """Rule of the number format of keys and values, what was rejected, and what the rule looked at."""
    case, word, dtype = chosen.case, chosen.shape.kv_dtype, chosen.candidate.dtype
    own = case.cache.of(dtype, is_own=chosen.candidate.quantization == case.spec.quantization)
    inputs: dict[str, Any] = {"bytes_per_token": case.need.kv_bytes_per_token(WIDTHS[word], case.ranks)}
    if own != dtype:
        inputs["engine_format"] = own
        because = f"{own} is what the engine takes by itself"
        because += f"; --kv-cache-dtype {dtype} keeps 16 bits" if dtype in case.cache.takes else ""
        return case.cache.rule, () if word == dtype else (Rejection(value=dtype, because=because),), inputs
    if word.startswith("fp8"):
        return "as the activations", (), inputs
    seqs, wanted = chosen.shape.seqs, case.workload.concurrency
    halved = "an 8-bit cache costs accuracy and gains little: the cache holds what is asked for"
    if seqs < wanted:
        halved = f"an 8-bit cache costs accuracy; --kv-cache-dtype fp8 would hold about twice the {seqs}"
        halved += f" of {wanted} sequences"
    if not (case.engine["has_fp8_kv"] and case.device["has_fp8_kv"]):
        halved = f"{case.request.engine} has no 8-bit cache on {case.capability.device_type}"
    return "as the activations", (Rejection(value="fp8", because=halved),), inputs


def block_size_rule(chosen: Sized) -> tuple[str, str, dict[str, Any]]:
    """Rule of the block size, the option where it is not that of the parameter, and what the rule looked at."""
    case, rule = chosen.case, chosen.case.blocks
    where = f"the engine's on {case.capability.device_type}"
    if rule.attention:
        where += f" {case.capability.device.arch}" if case.capability.device.arch else ""
        where += f" for {rule.attention}"
    text = f"{where}, with blocks a multiple of {alignment(case)} bytes"
    option = _OWN_BLOCKS if case.request.engine == "vllm" and not asks_for_blocks(chosen) else ""
    return text, option, {"source": rule.source, "engine_size": rule.size}


def alignment_option(chosen: Sized) -> str:
    """What carries the alignment where it is not the option of the parameter."""
    if chosen.case.request.engine != "vllm" or asks_for_blocks(chosen):
        return ""
    return "follows from block_size, which vLLM chooses" if chosen.case.keeps_kv else "not passed on"


def asks_for_blocks(chosen: Sized) -> bool:
    """Whether the engine is asked for a block size: a pinned one, or one that only the alignment makes larger."""
    case = chosen.case
    return case.keeps_kv and ("block_size" in case.request.pins or chosen.shape.block_size != case.blocks.size)

"""The record of the blocks of the KV cache: the rule of their size, and who carries it."""

from typing import Any

from vllm_probe.negotiate.sizing import Sized, alignment

_OWN_BLOCKS = "not passed on: vLLM takes this size by itself, and drops kernels that want another once one is given"


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

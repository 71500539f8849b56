"""What would change a parameter of one config: only what does so in this case."""

from vllm_probe.negotiate.chunking import computes_whole, item_tokens
from vllm_probe.negotiate.laws import table
from vllm_probe.negotiate.sizing import SHORT_TEXT, Sized


def would_change(key: str, chosen: Sized, pin: str | None) -> str:
    """What makes `key` different; a pinned parameter follows its option alone."""
    if pin:
        return f"another {pin}, or none"
    case, special = chosen.case, _SPECIAL.get(key)
    text = special(chosen) if special else None
    if text is None and key in _KV_CACHE and not case.keeps_kv:
        text = "another model" if case.spec.is_encoder else "--engine vllm, which keeps a KV cache, or another model"
    if text is None and key in _BY_CAPACITY and case.total_bytes is None:
        text = "--device-memory"
    if text is None and key in _ONE_RANK and case.engine["max_ranks"] == 1:
        text = "--engine vllm, which runs on more than one device"
    return text or str(table("parameters")[key]["would_change"])


def _quantization(chosen: Sized) -> str | None:
    case = chosen.case
    if case.spec.is_encoder or case.spec.quantization != "none":
        return "another checkpoint"
    return "another checkpoint, or --engine vllm" if case.request.engine == "bundled" else None


def _max_num_seqs(chosen: Sized) -> str:
    case, seqs = chosen.case, chosen.shape.seqs
    if case.spec.task == "embed" and seqs <= max(1, chosen.chunk.rows // SHORT_TEXT):
        return f"a --concurrency above {seqs}, another prefill_chunk_size, or --max-num-seqs"
    if seqs < case.workload.concurrency:
        fewer = f"a --concurrency below {seqs}, " if seqs > 1 else ""
        return f"more memory, {fewer}shorter requests, or --max-num-seqs"
    return "another --concurrency, or --max-num-seqs"


def _max_num_batched_tokens(chosen: Sized) -> str:
    case, tokens = chosen.case, chosen.shape.tokens
    first = "another prefill_chunk_size"
    if tokens > chosen.chunk.rows:
        whole = computes_whole(case, tokens) and tokens == chosen.shape.max_model_len
        first = "another --max-model-len" if whole else "another --max-num-seqs"
        first = "another model" if tokens == item_tokens(case) else first
    return f"{first}, or --max-num-batched-tokens"


def _prefill_chunk_size(chosen: Sized) -> str:
    below = f"or a --max-num-batched-tokens below {chosen.chunk.rows}"
    if "curve" in chosen.chunk.inputs:
        return f"another rate or bandwidth in the descriptor, {below}"
    return f"rates by row count, another bandwidth or number of transfers in the descriptor, {below}"


def _max_model_len(chosen: Sized) -> str:
    lowered = chosen.shape.max_model_len < chosen.case.spec.max_model_len
    return f"{'more' if lowered else 'much less'} memory, another model, or --max-model-len"


def _compile(chosen: Sized) -> str:
    if not chosen.case.engine["has_compiler"]:
        return "another winner of a bench, or --engine vllm"
    return "--enforce-eager" if chosen.case.device["compile_backend"] else "another device type"


def _threads(chosen: Sized) -> str | None:
    return None if chosen.case.device["has_threads"] else "a CPU as the device"


_KV_CACHE = ("kv_cache_dtype", "block_size", "num_kv_blocks", "kv_cache_memory_bytes")
_BY_CAPACITY = ("num_kv_blocks", "kv_cache_memory_bytes", "gpu_memory_utilization")
_ONE_RANK = ("tensor_parallel_size", "pipeline_parallel_size", "collective_backend")
_SPECIAL = {
    "quantization": _quantization,
    "max_num_seqs": _max_num_seqs,
    "max_num_batched_tokens": _max_num_batched_tokens,
    "prefill_chunk_size": _prefill_chunk_size,
    "max_model_len": _max_model_len,
    "compile": _compile,
    "threads": _threads,
}

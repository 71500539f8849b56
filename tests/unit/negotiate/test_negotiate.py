"""The whole verb: golden decisions, and what a document, a model or a capacity changes in them."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import (
    ARC,
    ASCEND,
    CPU,
    EMBEDDING,
    GIB,
    GLM_5_3,
    H100,
    MINILM,
    QWEN3_8B,
    RTX,
    config,
    decision,
    descriptor,
    rejections,
)
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.models import catalogue


def summary(found: RuntimeConfig) -> dict[str, Any]:
    keys = ("dtype", "quantization", "prefill_chunk_size", "alignment_bytes", "block_size", "max_model_len")
    return {key: getattr(found, key) for key in keys}


def test_ascend_version_1_document_golden() -> None:
    found = config(EMBEDDING, ASCEND, engine="vllm")
    assert summary(found) == {
        "dtype": "float16",
        "quantization": "awq",
        "prefill_chunk_size": 512,
        "alignment_bytes": 256,
        "block_size": 128,
        "max_model_len": 32768,
    }
    assert found.requires == ("an AWQ checkpoint of Qwen3-Embedding-0.6B",)
    rope = 32_768 * 128 * 2
    assert found.budget.weights_bytes == pytest.approx(440_401_920 * 4.15625 / 8 + 155_374_592 * 2 + rope, rel=1e-6)
    assert (found.alternatives[0].change, found.alternatives[0].verdict) == ("--quantization none", "unknown")
    assert found.alternatives[0].budget is not None
    assert found.alternatives[0].budget.weights_bytes == 2 * 595_776_512 + rope
    assert any("4378" in warning for warning in found.warnings)
    assert sum("suspect: unit?" in warning for warning in found.warnings) == 2
    assert rejections(found, "quantization")["ascend"] == "the descriptor lists no int8"


def test_arc_and_rtx_version_1_documents_golden() -> None:
    arc, rtx = config(EMBEDDING, ARC, engine="vllm"), config(EMBEDDING, RTX, engine="vllm")
    assert (arc.prefill_chunk_size, arc.alignment_bytes, arc.block_size) == (1024, 64, 64)
    assert (arc.dtype, arc.quantization) == ("float16", "awq")
    assert (rtx.prefill_chunk_size, rtx.alignment_bytes, rtx.block_size) == (1024, 256, 16)
    assert (rtx.dtype, rtx.quantization) == ("float16", "w8a8")
    assert "int8 at 116,000 GFLOP/s (stated), fp16 reaches 29,000" in decision(rtx, "quantization").rule
    assert decision(rtx, "quantization").passed_on == "--quantization compressed-tensors"


def test_ascend_is_aligned_to_256_bytes_whatever_its_document_says() -> None:
    assert config(EMBEDDING, ASCEND | {"memory": {"alignment_bytes": 32}}, engine="vllm").alignment_bytes == 256
    assert config(EMBEDDING, ASCEND | {"memory": {}}, engine="vllm").alignment_bytes == 512
    assert config(EMBEDDING, ASCEND | {"memory": {"alignment_bytes": 1024}}, engine="vllm").alignment_bytes == 1024


def test_width_and_threads_are_those_that_were_fastest_in_the_sweep() -> None:
    widths = {"native": 16, "optimal": 8, "threads": 1, "sweep": [{"lanes": 8}]}
    found = config(MINILM, descriptor(CPU, execution={"group_width": widths}), threads=4)
    assert (found.group_width, found.threads) == (8, 1)
    assert decision(found, "threads").rule == "as many as were fastest in the sweep, and as this process has"
    assert decision(found, "group_width").inputs["descriptor"] == {"native": 16, "optimal": 8, "threads": 1}
    more = descriptor(CPU, execution={"group_width": {"threads": 8}})
    assert config(MINILM, more, threads=4).threads == 4


def test_reference_machine_golden() -> None:
    found = config(MINILM, CPU, capability_name="ref", threads=4)
    assert summary(found) == {
        "dtype": "bfloat16",
        "quantization": "none",
        "prefill_chunk_size": 512,
        "alignment_bytes": 64,
        "block_size": None,
        "max_model_len": 256,
    }
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.threads, found.group_width) == (32, 512, 2, 16)
    assert found.primitives == {"linear": "mkldnn"}
    assert found.pooling == {"type": "mean", "normalize": True}
    assert found.roles == {"main": "cpu0"}
    assert found.memory_fence_scope == "none"
    assert (found.compile.enabled, found.engine_version, found.task) == (False, "0.1.0", "embed")
    assert found.capability == "ref (sha256:0123456789abcdef)"
    assert "17 times slower than bf16: 56 against 974" in rejections(found, "dtype")["float16"]
    assert found.budget.verdict == "boots"
    assert found.alternatives == ()


def test_a_chunk_of_the_reference_machine_is_measured_for_its_decoders_too() -> None:
    found = config(EMBEDDING, CPU, engine="vllm")
    assert (found.dtype, found.quantization, found.prefill_chunk_size, found.block_size) == (
        "bfloat16",
        "w8a8",
        512,
        128,
    )
    assert config(EMBEDDING, CPU).quantization == "none"


def test_pooling_is_sized_for_pooling_on_a_24_gib_card() -> None:
    pins = {"max_model_len": 8192}
    found = config(EMBEDDING, RTX, engine="vllm", device_memory_bytes=24 * GIB, pins=pins | {"quantization": "none"})
    assert found.budget.requested_bytes is not None
    assert 2.6 < found.budget.requested_bytes / GIB < 3.5
    assert found.kv_cache_memory_bytes == pytest.approx(8192 * 114_688 * 1.02, rel=0.005)
    assert found.gpu_memory_utilization == pytest.approx(found.budget.requested_bytes / (24 * GIB), abs=1e-4)
    assert decision(found, "kv_cache_memory_bytes").passed_on == "--kv-cache-memory-bytes"
    filled = config(QWEN3_8B, H100, engine="vllm")
    assert filled.gpu_memory_utilization == 0.95
    assert decision(filled, "kv_cache_memory_bytes").passed_on.startswith("not passed on: vLLM profiles")


def test_the_bundled_runtime_embeds_in_chunks_and_has_room_for_the_keys_of_the_longest_prompt() -> None:
    embedding = catalogue.load("Qwen3-Embedding-0.6B")
    found = config(embedding, CPU)
    assert "--engine vllm" not in " ".join(found.warnings)
    assert found.max_model_len == 32768
    assert found.max_num_batched_tokens == found.prefill_chunk_size < 32768
    assert found.kv_cache_memory_bytes == pytest.approx(32768 * 114_688 * 1.02, rel=0.01)


def test_an_encoder_takes_the_longest_prompt_in_one_step_and_keeps_no_keys() -> None:
    found = config(MINILM, CPU, pins={"max_num_batched_tokens": 512})
    assert found.max_num_batched_tokens >= found.max_model_len
    assert (found.kv_cache_dtype, found.block_size, found.num_kv_blocks, found.kv_cache_memory_bytes) == (None,) * 4
    assert found.budget.kv_cache_bytes == 0


def test_what_the_bundled_runtime_cannot_run_is_said() -> None:
    assert "Qwen3ForCausalLM needs --engine vllm" in " ".join(config(QWEN3_8B, CPU).warnings)


def test_glm_is_refused_with_the_bytes_it_needs() -> None:
    found = config(GLM_5_3, RTX, engine="vllm", device_memory_bytes=24 * GIB)
    assert found.budget.verdict == "oom"
    assert found.budget.requested_bytes is not None
    assert found.budget.requested_bytes / 1e12 == pytest.approx(1.49, abs=0.01)
    assert found.max_model_len == 640
    assert found.gpu_memory_utilization is None
    assert "more than there is" in found.unknown["/gpu_memory_utilization"]
    assert found.alternatives
    assert "GlmMoeDsaForCausalLM needs --engine vllm" in " ".join(config(GLM_5_3, CPU).warnings)


def test_a_folder_without_weights_is_where_they_have_to_come() -> None:
    """Its name alone would be that of a repository on the hub, which is another's or nobody's."""
    found = config(replace(QWEN3_8B, repository=None, folder="/models/Qwen3-8B"), H100, engine="vllm")
    assert found.model == "/models/Qwen3-8B"
    assert "/models/Qwen3-8B has no weights: vLLM starts once they are there" in found.warnings
    filled = replace(QWEN3_8B, folder="/models/Qwen3-8B", weights_path="/models/Qwen3-8B")
    assert not any("no weights" in warning for warning in config(filled, H100, engine="vllm").warnings)
    cached = replace(QWEN3_8B, repository="Qwen/Qwen3-8B", folder="/cache/Qwen3-8B")
    assert config(cached, H100, engine="vllm").model == "Qwen/Qwen3-8B"


def test_a_lowered_context_says_so() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", device_memory_bytes=20 * GIB)
    assert 640 <= found.max_model_len < 40960
    rule = decision(found, "max_model_len").rule
    assert rule == "lowered from the model's limit of 40960 to the largest that boots"
    assert found.budget.estimated_max_model_len == found.max_model_len
    assert "of 32 sequences of 640 tokens" in decision(found, "max_num_seqs").rule


def test_what_the_model_cannot_take_is_invalid_and_says_why_first() -> None:
    found = config(MINILM, CPU, input_len=300)
    assert found.budget.verdict == "invalid"
    assert found.warnings[0] == "300 input tokens are over the limit of all-MiniLM-L6-v2, 256 tokens"
    assert found.predicted.method == "withheld: it does not boot (invalid)"
    assert config(EMBEDDING, ASCEND, engine="vllm", input_len=40000).budget.verdict == "invalid"


def test_a_rate_measured_on_a_busy_device_is_a_warning() -> None:
    pointer = "/compute_units/fp32/throughput_gflops"
    notes = {pointer: {"source": "measured", "status": "throttled"}}
    (warning,) = (each for each in config(MINILM, descriptor(CPU, measurements=notes)).warnings if "busy" in each)
    assert "the fp32 rate (throttled)" in warning
    assert not any("busy" in each for each in config(MINILM, CPU).warnings)


def test_two_ranks_are_connected_by_the_devices_library() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"tensor_parallel_size": 2})
    assert (found.tensor_parallel_size, found.collective_backend) == (2, "nccl")
    assert config(QWEN3_8B, H100, engine="vllm").collective_backend is None
    staged = config(QWEN3_8B, H100, engine="vllm", pins={"pipeline_parallel_size": 2})
    assert staged.budget.weights_bytes < config(QWEN3_8B, H100, engine="vllm").budget.weights_bytes


def test_a_law_used_outside_its_range_is_a_warning() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", engine_version="0.40")
    assert found.engine_version == "0.40"
    assert found.warnings[0].startswith("the memory law of vllm 0.29 to 0.33 is used outside its range")


def test_an_unknown_capacity_leaves_null_what_follows_from_it() -> None:
    found = config(EMBEDDING, ASCEND, engine="vllm")
    gone = ("device_total_bytes", "requested_bytes", "kv_cache_bytes", "kv_cache_tokens", "num_kv_blocks")
    assert all(getattr(found.budget, key) is None for key in gone)
    assert all("--device-memory" in found.unknown[f"/budget/{key}"] for key in gone)
    assert found.kv_cache_memory_bytes is found.num_kv_blocks is found.gpu_memory_utilization is None
    known = config(EMBEDDING, ASCEND, engine="vllm", device_memory_bytes=64 * GIB)
    assert known.budget.verdict == "boots"
    assert known.kv_cache_memory_bytes


def test_swapping_the_descriptor_alone_changes_the_config() -> None:
    one, other = config(EMBEDDING, ASCEND, engine="vllm"), config(EMBEDDING, CPU, engine="vllm")
    assert summary(one) != summary(other)
    slower = descriptor(CPU, compute_units={"bf16": {"throughput_gflops": 20}})
    assert config(MINILM, slower).dtype == "float32"


def test_exact_header_bytes_stand_in_the_budget_without_a_warning() -> None:
    read = replace(MINILM, weight_bytes=90_261_504, num_parameters=22_565_376)
    found = config(read, CPU, pins={"dtype": "float32"})
    assert found.budget.weights_bytes == 90_261_504
    assert not any("no file header" in warning for warning in found.warnings)
    assert any("no file header" in warning for warning in config(MINILM, CPU).warnings)

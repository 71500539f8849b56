"""The memory law, against start-up logs of real engines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.negotiate.cases import (
    CPU,
    EMBEDDING,
    GIB,
    GLM_5_3,
    H100,
    LLAMA_8B,
    MINILM,
    QWEN3_8B,
    QWEN3_30B_A3B,
    case,
    selection,
)
from vllm_probe.core.config import MemoryBudget
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.budget import Shape, account, limit_bytes
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.requirements import analyse

LOGS = Path(__file__).parents[4] / "shared" / "data" / "vllm_kv_cases.jsonl"
LOGGED = {
    "Qwen/Qwen3-8B": QWEN3_8B,
    "Qwen/Qwen3-30B-A3B": QWEN3_30B_A3B,
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA_8B,
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": replace(LLAMA_8B, quantization="w8a8"),
}


def budget(spec: ModelSpec, document: dict[str, Any], **request: Any) -> MemoryBudget:
    return selection(spec, document, **request).own.budget


def logged(spec: ModelSpec, version: str, **pins: Any) -> MemoryBudget:
    """As the runs of the logs: 1024 sequences, 8192 tokens."""
    pins = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, "max_model_len": 8192} | pins
    return budget(spec, H100, engine="vllm", engine_version=version, pins=pins)


@pytest.mark.parametrize(
    ("spec", "version", "pins", "activation", "kv", "tolerance"),
    [
        (QWEN3_8B, "0.19.0", {"gpu_memory_utilization": 0.95}, 2.21, 57.50, 0.002),
        (LLAMA_8B, "0.11.0", {"gpu_memory_utilization": 0.9}, 4.76, 51.38, 0.002),
        (QWEN3_30B_A3B, "0.19.0", {"gpu_memory_utilization": 0.95}, 2.68, 15.41, 0.01),
    ],
)
def test_the_law_of_its_version_gives_what_vllm_logged_on_an_h100(
    spec: ModelSpec, version: str, pins: dict[str, Any], activation: float, kv: float, tolerance: float
) -> None:
    found = logged(spec, version, **pins)
    assert found.activation_bytes / GIB == pytest.approx(activation, abs=0.06)
    assert found.kv_cache_bytes is not None
    assert found.kv_cache_bytes / GIB == pytest.approx(kv, rel=tolerance)
    assert found.verdict == "boots"


@pytest.mark.skipif(not LOGS.exists(), reason="the collected start-up logs are not beside the repository")
def test_every_logged_start_of_a_known_model_is_within_one_percent() -> None:
    errors = []
    for line in LOGS.read_text().splitlines():
        row = json.loads(line)
        spec = LOGGED.get(row["model"])
        if spec and row["grade"] == "A" and row["outcome"] == "ok" and "H100" in (row["gpu"] or ""):
            pins = {"gpu_memory_utilization": row["gpu_memory_utilization"], "tensor_parallel_size": row["tp"]}
            found = logged(spec, row["vllm_version"], **pins)
            assert found.kv_cache_bytes is not None
            errors.append(abs(found.kv_cache_bytes / GIB / row["kv_avail_gib"] - 1))
    assert len(errors) >= 3
    assert max(errors) < 0.01


def test_a_newer_law_is_the_largest_of_its_moments() -> None:
    llama = account(
        case(LLAMA_8B, H100, engine="vllm"),
        match(case(LLAMA_8B, H100, engine="vllm")).own,
        Shape(max_model_len=8192, seqs=256, tokens=2048, block_size=16, kv_dtype="bfloat16", has_graphs=False),
    )
    assert llama.activation_bytes == 128256 * 4096 * 2 + 2 * 2048 * 4096 * 2 == pytest.approx(1_084_479_242, rel=0.001)
    assert llama.graph_bytes == 0


def test_a_pinned_share_is_taken_of_the_whole_device() -> None:
    assert limit_bytes(case(QWEN3_8B, H100, engine="vllm", pins={"gpu_memory_utilization": 0.5})) == pytest.approx(
        0.5 * 79.19 * GIB, abs=2
    )
    old = case(QWEN3_8B, H100, engine="vllm", engine_version="0.19", pins={"gpu_memory_utilization": 0.5})
    assert limit_bytes(old, GIB) == pytest.approx((0.5 * 79.19 + 1) * GIB, abs=2)


def test_memory_that_is_shared_is_not_filled_and_a_card_is() -> None:
    card = budget(QWEN3_8B, H100, engine="vllm")
    assert card.requested_bytes == pytest.approx(0.95 * 79.19 * GIB, rel=0.01)
    shared = budget(QWEN3_8B, CPU, engine="vllm", pins={"max_model_len": 1024})
    assert shared.kv_cache_tokens == 32 * 640 + 128
    thrifty = budget(QWEN3_8B, H100, engine="vllm", objective="memory", pins={"max_model_len": 1024})
    assert thrifty.kv_cache_tokens == 32 * 640 + 16


def test_an_encoder_holds_weights_one_layer_while_loading_and_its_process() -> None:
    found = budget(MINILM, CPU)
    assert found.kv_cache_bytes == found.num_kv_blocks == found.graph_bytes == 0
    assert found.weights_bytes == 2 * 22_565_376
    assert found.non_torch_bytes == round(0.39 * GIB)
    assert found.activation_bytes >= 2 * 1_774_464 - 2 * 4_000
    assert found.verdict == "boots"


def test_a_pooling_model_keeps_one_step_of_keys_and_not_a_card_full() -> None:
    pins = {"max_model_len": 8192, "quantization": "none"}
    found = budget(EMBEDDING, H100, engine="vllm", device_memory_bytes=24 * GIB, pins=pins)
    assert found.kv_cache_bytes is not None
    assert found.requested_bytes is not None
    assert found.kv_cache_bytes == pytest.approx(8192 * 114_688 * 1.02, rel=0.005)
    assert 2.6 < found.requested_bytes / GIB < 3.5


def test_a_cache_of_a_pinned_size_boots_only_if_it_holds_one_sequence_and_fits() -> None:
    pins = {"max_model_len": 4096, "quantization": "none"}
    verdicts = [
        budget(QWEN3_8B, H100, engine="vllm", pins=pins | {"kv_cache_memory_bytes": size}).verdict
        for size in (GIB // 8, 2 * GIB, 80 * GIB)
    ]
    assert verdicts == ["kv_too_small", "boots", "oom"]


def test_what_lacks_only_a_little_is_too_small_and_what_lacks_all_is_out_of_memory() -> None:
    little = budget(QWEN3_8B, H100, engine="vllm", device_memory_bytes=19 * GIB, pins={"max_model_len": 40960})
    assert little.verdict == "kv_too_small"
    assert little.estimated_max_model_len is not None
    assert 640 <= little.estimated_max_model_len < 40960
    assert little.kv_cache_bytes == (40960 // 16 + 1) * 16 * 147_456
    assert budget(QWEN3_8B, H100, engine="vllm", device_memory_bytes=16 * GIB).verdict == "oom"


def test_latent_attention_and_experts_have_moments_of_their_own() -> None:
    glm = budget(GLM_5_3, H100, engine="vllm")
    assert glm.activation_bytes == 65536 * 64 * (192 + 256) * 2
    sparse = budget(QWEN3_30B_A3B, H100, engine="vllm", pins={"max_num_batched_tokens": 65536, "max_num_seqs": 8})
    assert sparse.activation_bytes == 65536 * 8 * (2048 + 2048) * 2


def test_two_ranks_hold_half_each_and_more_beside_torch() -> None:
    one, two = (logged(QWEN3_8B, "0.19", gpu_memory_utilization=0.95, tensor_parallel_size=ranks) for ranks in (1, 2))
    assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=0.01)
    assert (one.non_torch_bytes, two.non_torch_bytes) == (round(0.25 * GIB), round(2.1 * GIB))
    assert one.kv_cache_tokens is not None
    assert two.kv_cache_tokens is not None
    assert two.kv_cache_tokens > 2 * one.kv_cache_tokens


def test_linear_attention_keeps_a_state_for_each_sequence_beside_the_blocks() -> None:
    hybrid = catalogue.load("Qwen3.5-35B-A3B")
    state = analyse(hybrid).state_bytes(2)

    def held(**request: Any) -> MemoryBudget:
        return budget(hybrid, H100, engine="vllm", device_memory_bytes=75 * GIB, **request)

    few, many = (held(pins={"max_num_seqs": seqs, "max_model_len": 8192}) for seqs in (8, 64))
    assert few.kv_cache_bytes is not None
    assert few.num_kv_blocks is not None
    assert many.num_kv_blocks is not None
    block = 20_480 * 16
    assert few.num_kv_blocks == (few.kv_cache_bytes - 8 * state) // block
    assert few.num_kv_blocks - many.num_kv_blocks > 50 * state // block
    one = held(pins={"max_num_seqs": 4096, "max_model_len": 1024})
    assert (one.verdict, one.num_kv_blocks) == ("boots", 1024 // 16 + 1)

"""What is said to change a value changes it."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import CPU, EMBEDDING, GIB, H100, MINILM, QWEN3_8B, RTX, config, decision
from vllm_probe.core.config import RuntimeConfig

OTHER: dict[str, dict[str, Any]] = {
    "--concurrency": {"concurrency": 333},
    "--dtype": {"pins": {"dtype": "float32"}},
    "--engine": {"engine": "vllm"},
    "--gpu-memory-utilization": {"pins": {"gpu_memory_utilization": 0.5}},
    "--max-model-len": {"pins": {"max_model_len": 100}},
    "--max-num-batched-tokens": {"pins": {"max_num_batched_tokens": 300}},
    "--max-num-seqs": {"pins": {"max_num_seqs": 7}},
}
"""A request that follows the advice."""


def advice(found: RuntimeConfig) -> list[tuple[str, str]]:
    return [(each.key, option) for each in found.decisions for option in re.findall(r"--[a-z-]+", each.would_change)]


NUMBERS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size", "gpu_memory_utilization")


@pytest.mark.parametrize(
    ("key", "option"), [each for each in advice(config(MINILM, CPU, threads=2)) if each[0] in (*NUMBERS, "dtype")]
)
def test_an_option_that_is_named_changes_the_value_on_the_reference_machine(key: str, option: str) -> None:
    before, after = (getattr(config(MINILM, CPU, threads=2, **more), key) for more in ({}, OTHER[option]))
    assert after != before


def test_more_requests_change_the_sequences_of_a_step_exactly_where_that_is_said() -> None:
    assert decision(config(MINILM, CPU), "max_num_seqs").would_change.startswith("a --concurrency above 32, ")
    assert config(MINILM, CPU, concurrency=8).max_num_seqs == 32
    assert config(MINILM, CPU, concurrency=33).max_num_seqs == 33
    many = config(MINILM, CPU, concurrency=64)
    assert decision(many, "max_num_seqs").would_change == "another --concurrency, or --max-num-seqs"
    tight = decision(config(QWEN3_8B, H100, engine="vllm", device_memory_bytes=20 * GIB), "max_num_seqs").would_change
    assert tight.startswith("more memory, a --concurrency below ")
    least = config(QWEN3_8B, H100, engine="vllm", device_memory_bytes=8 * GIB, pins={"quantization": "none"})
    assert least.max_num_seqs == 1
    assert decision(least, "max_num_seqs").would_change == "more memory, shorter requests, or --max-num-seqs"


def test_a_pinned_value_changes_with_its_option_alone() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"max_num_seqs": 3, "enforce_eager": True})
    assert decision(found, "max_num_seqs").would_change == "another --max-num-seqs, or none"
    assert decision(found, "compile").would_change == "another --enforce-eager, or none"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("quantization", "another checkpoint"),
        ("kv_cache_dtype", "another model"),
        ("kv_cache_memory_bytes", "another model"),
        ("tensor_parallel_size", "--engine vllm, which runs on more than one device"),
        ("compile", "another winner of a bench, or --engine vllm"),
        ("max_num_batched_tokens", "another prefill_chunk_size, or --max-num-batched-tokens"),
    ],
)
def test_what_has_no_effect_on_an_encoder_here_is_not_named(key: str, text: str) -> None:
    assert decision(config(MINILM, CPU), key).would_change == text


def test_the_longest_prompt_and_the_number_of_sequences_are_named_where_they_set_the_step() -> None:
    whole = config(replace(EMBEDDING, pooling="mean"), CPU)
    assert whole.max_num_batched_tokens == whole.max_model_len
    assert decision(whole, "max_num_batched_tokens").would_change.startswith("another --max-model-len")
    many = config(QWEN3_8B, RTX, engine="vllm", concurrency=3000)
    assert decision(many, "max_num_batched_tokens").would_change.startswith("another --max-num-seqs")


@pytest.mark.parametrize("document", [CPU, RTX, H100], ids=lambda document: document["device_type"])
def test_vllm_quantizes_where_the_bundled_runtime_does_not(document: dict[str, Any]) -> None:
    assert decision(config(EMBEDDING, document), "quantization").would_change == "another checkpoint, or --engine vllm"
    assert "--quantization" in decision(config(EMBEDDING, document, engine="vllm"), "quantization").would_change


def test_what_waits_for_the_capacity_changes_with_it() -> None:
    found = config(QWEN3_8B, RTX, engine="vllm")
    for key in ("num_kv_blocks", "kv_cache_memory_bytes", "gpu_memory_utilization"):
        assert decision(found, key).would_change == "--device-memory"

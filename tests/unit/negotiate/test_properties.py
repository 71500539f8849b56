"""What holds of every decision, whatever the device."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.negotiate.cases import (
    ASCEND,
    CPU,
    EMBEDDING,
    GIB,
    H100,
    QWEN3_0_6B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    RTX,
    config,
    selection,
)
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.values import Objective
from vllm_probe.models import catalogue

HYBRID, MLA = catalogue.load("Qwen3.5-27B"), catalogue.load("DeepSeek-V2-Lite")
models = st.sampled_from([EMBEDDING, QWEN3_0_6B, QWEN3_8B, QWEN3_30B_A3B, HYBRID, MLA, catalogue.load("gemma-3-12b")])
objectives = st.sampled_from(["throughput", "latency", "memory"])
rates = st.integers(20_000, 2_000_000)
sizes = st.integers(1, 160 * 64).map(lambda step: step * GIB // 64)
rounds = settings(max_examples=25, deadline=None)

WORDS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
COMPUTED = {"fp8": "fp8_e4m3", "w8a8": "int8"}
"""Method to the capability word in which its matrices are multiplied."""


def gpu(**units: int) -> dict[str, Any]:
    return H100 | {"compute_units": {word: {"throughput_gflops": rate} for word, rate in units.items()}}


@rounds
@given(models, objectives, rates, rates, rates, st.tuples(sizes, sizes))
def test_more_memory_never_lowers_context_or_batch(
    spec: ModelSpec, objective: Objective, bf16: int, fp8: int, int8: int, memory: tuple[int, int]
) -> None:
    document = gpu(bf16=bf16, fp8_e4m3=fp8, int8=int8)
    small, large = (
        config(spec, document, engine="vllm", objective=objective, device_memory_bytes=size) for size in sorted(memory)
    )
    if small.budget.verdict == "boots":
        assert large.budget.verdict == "boots"
        assert large.max_model_len >= small.max_model_len
        assert min(large.max_num_seqs, 32) >= min(small.max_num_seqs, 32)
        if spec.task == "generate":
            assert large.max_num_seqs >= small.max_num_seqs


@rounds
@given(
    st.sampled_from([EMBEDDING, QWEN3_8B, QWEN3_30B_A3B]), objectives, rates, rates, st.integers(1, 1_000_000), sizes
)
def test_a_faster_int8_never_moves_the_choice_away_from_int8(
    spec: ModelSpec, objective: Objective, bf16: int, int8: int, faster: int, memory: int
) -> None:
    slow, fast = (
        config(spec, gpu(bf16=bf16, int8=rate), engine="vllm", objective=objective, device_memory_bytes=memory)
        for rate in (int8, int8 + faster)
    )
    if slow.quantization == "w8a8":
        assert fast.quantization == "w8a8"


@rounds
@given(
    st.sampled_from([EMBEDDING, QWEN3_0_6B, QWEN3_8B]),
    st.sampled_from([RTX, ASCEND, CPU, H100]),
    st.sampled_from(["fp16", "bf16", "fp32", "int8", "int4", "fp8_e4m3"]),
    st.sampled_from(["bundled", "vllm"]),
    objectives,
)
def test_a_format_that_the_descriptor_lacks_is_never_in_the_config(
    spec: ModelSpec, document: dict[str, Any], removed: str, engine: Any, objective: Objective
) -> None:
    units = {word: unit for word, unit in document["compute_units"].items() if word != removed}
    found = config(spec, document | {"compute_units": units}, engine=engine, objective=objective)
    if units:
        assert COMPUTED.get(found.quantization) != removed
    if {"bf16", "fp16", "fp32"} & set(units):
        assert WORDS[found.dtype] != removed
    unpacks = found.quantization in ("awq", "gptq") and objective != "memory"
    assert removed not in {COMPUTED.get(found.quantization), "int4" if unpacks else None}


def is_whole(found: RuntimeConfig) -> bool:
    """Whether every byte of the budget is accounted for, and none twice."""
    budget = found.budget
    parts = (budget.weights_bytes, budget.activation_bytes, budget.non_torch_bytes, budget.graph_bytes)
    if budget.requested_bytes is None:
        return budget.kv_cache_bytes is None
    return budget.requested_bytes == sum(parts) + (budget.kv_cache_bytes or 0)


@rounds
@given(
    models, objectives, sizes, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([RTX, H100, CPU])
)
def test_every_budget_adds_up_to_the_byte(
    spec: ModelSpec, objective: Objective, memory: int, ranks: int, stages: int, document: dict[str, Any]
) -> None:
    pins = {"tensor_parallel_size": ranks, "pipeline_parallel_size": stages}
    found = config(spec, document, engine="vllm", objective=objective, device_memory_bytes=memory, pins=pins)
    assert is_whole(found)
    if found.budget.verdict == "boots":
        assert (found.budget.requested_bytes or 0) <= memory
    for other in found.alternatives:
        assert other.budget is None or other.requested_bytes == other.budget.requested_bytes


@pytest.mark.parametrize("gib", [12, 16, 18, 20, 24, 40])
def test_the_checkpoint_as_it_is_wins_only_where_it_holds_as_much_as_its_twins(gib: int) -> None:
    found = selection(QWEN3_8B, gpu(bf16=100_000, int8=90_000), engine="vllm", device_memory_bytes=gib * GIB)
    if found.chosen is found.own and found.own.boots:
        rated = [twin for twin in found.twins if twin.boots and not twin.candidate.unmeasured]
        assert all(twin.shape.max_model_len <= found.own.shape.max_model_len for twin in rated)


@rounds
@given(models, st.integers(100, 8000), st.integers(100, 8000), rates, st.integers(1, 64))
def test_more_bandwidth_on_the_same_architecture_never_slows_decoding(
    spec: ModelSpec, one: int, other: int, bf16: int, concurrency: int
) -> None:
    found = [
        config(
            spec,
            gpu(bf16=bf16) | {"memory": H100["memory"] | {"bandwidth_gb_s": gb_s}},
            engine="vllm",
            concurrency=concurrency,
            pins={"max_num_seqs": concurrency},
        ).predicted.tpot_s.value
        for gb_s in sorted((one, other))
    ]
    if None not in found:
        slow, fast = found
        assert (fast or 0) <= (slow or 0) * (1 + 1e-9)

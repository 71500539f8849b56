"""What must hold of the config for every model, device and option that is asked for."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.negotiate.cases import (
    ARC,
    ASCEND,
    BGE_M3,
    CPU,
    EMBEDDING,
    GIB,
    GLM_5_3,
    H100,
    MINILM,
    QWEN3_0_6B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    RTX,
    config,
    decision,
)
from vllm_probe.core.codec import dumps, from_json
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.laws import table

MODELS = (EMBEDDING, MINILM, BGE_M3, QWEN3_0_6B, QWEN3_8B, QWEN3_30B_A3B, GLM_5_3)
DEVICES = (ASCEND, ARC, RTX, H100, CPU)
WORDS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@pytest.mark.parametrize(("document", "gib"), [(ASCEND, 64), (RTX, 24), (H100, 80)])
def test_every_catalogue_model_gets_a_config_or_a_refusal_with_what_would_boot(
    document: dict[str, Any], gib: int
) -> None:
    verdicts = set()
    for name in catalogue.entries():
        found = config(catalogue.load(name), document, engine="vllm", device_memory_bytes=gib * GIB)
        verdicts.add(found.budget.verdict)
        assert found.budget.requested_bytes is not None, name
        if found.budget.verdict == "boots":
            assert found.budget.requested_bytes <= gib * GIB, name
        else:
            assert found.budget.requested_bytes > 0.9 * gib * GIB, name
            assert [each.verdict for each in found.alternatives] == ["boots"] * len(found.alternatives), name
            assert len(found.alternatives) >= 2, name
    assert {"boots", "oom"} <= verdicts <= {"boots", "oom", "kv_too_small"}


@pytest.mark.parametrize(
    ("pin", "value", "field"),
    [
        ("dtype", "float32", "float32"),
        ("quantization", "awq", "awq"),
        ("kv_cache_dtype", "fp8", "fp8"),
        ("max_model_len", 2048, 2048),
        ("block_size", 32, 32),
        ("kv_cache_memory_bytes", 8 * GIB, 8 * GIB),
        ("max_num_seqs", 3, 3),
        ("max_num_batched_tokens", 700, 700),
        ("gpu_memory_utilization", 0.8, 0.8),
        ("tensor_parallel_size", 4, 4),
        ("pipeline_parallel_size", 2, 2),
    ],
)
def test_every_option_of_vllms_name_is_honoured_and_marked(pin: str, value: Any, field: Any) -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={pin: value})
    assert getattr(found, pin) == field
    assert decision(found, pin).pinned
    assert decision(found, pin).rule == f"pinned by --{pin.replace('_', '-')}"
    assert [each.key for each in found.decisions if each.pinned] == [pin]


def test_an_impossible_pin_is_bad_usage() -> None:
    with pytest.raises(BadUsage, match="does not divide"):
        config(QWEN3_8B, H100, engine="vllm", pins={"tensor_parallel_size": 7})


@pytest.mark.parametrize("document", DEVICES, ids=lambda document: document["device_type"])
@pytest.mark.parametrize("spec", MODELS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("engine", ["bundled", "vllm"])
def test_every_parameter_is_decided_and_every_null_has_a_reason(
    spec: ModelSpec, document: dict[str, Any], engine: str
) -> None:
    found = config(spec, document, engine=engine)
    assert [each.key for each in found.decisions] == list(table("parameters"))
    for each in found.decisions:
        assert each.rule
        assert each.would_change
        assert each.passed_on
        if each.key != "compile":
            assert each.value == getattr(found, each.key)
    nulls = [key for key in RuntimeConfig.__dataclass_fields__ if getattr(found, key) is None]
    assert {f"/{key}" for key in nulls} <= set(found.unknown)
    assert all(found.unknown.values())
    text = dumps(found)
    assert from_json(RuntimeConfig, json.loads(text)).budget == found.budget
    assert not any(found.unknown.get(f"/budget/{key}") for key in ("weights_bytes", "activation_bytes"))


@given(
    spec=st.sampled_from(MODELS),
    document=st.sampled_from(DEVICES),
    engine=st.sampled_from(["bundled", "vllm"]),
    objective=st.sampled_from(["throughput", "latency", "memory"]),
    sizes=st.tuples(st.integers(1, 1 << 38), st.integers(1, 1 << 38)),
    concurrency=st.integers(1, 300),
)
def test_more_memory_never_lowers_context_or_batch_and_every_budget_adds_up(
    spec: ModelSpec,
    document: dict[str, Any],
    engine: str,
    objective: str,
    sizes: tuple[int, int],
    concurrency: int,
) -> None:
    pins = {"quantization": "none"}
    less, more = (
        config(
            spec, document, engine=engine, objective=objective, concurrency=concurrency,
            device_memory_bytes=size, pins=pins,
        )
        for size in sorted(sizes)
    )  # fmt: skip
    for found in (less, more):
        parts = ("weights_bytes", "activation_bytes", "non_torch_bytes", "graph_bytes", "kv_cache_bytes")
        assert found.budget.requested_bytes == sum(getattr(found.budget, part) for part in parts)
        if found.budget.verdict == "boots":
            assert (found.budget.requested_bytes or 0) <= (found.budget.device_total_bytes or 0)
    if less.budget.verdict == "boots":
        assert more.budget.verdict == "boots"
        assert more.max_model_len >= less.max_model_len
        assert more.max_num_seqs >= less.max_num_seqs
        assert more.max_num_batched_tokens >= less.max_num_batched_tokens


@given(
    spec=st.sampled_from([EMBEDDING, QWEN3_8B, MINILM]),
    document=st.sampled_from(DEVICES),
    engine=st.sampled_from(["bundled", "vllm"]),
    kept=st.sets(st.sampled_from(["fp32", "bf16", "fp16", "int8", "int4"]), min_size=1),
)
def test_a_format_that_is_not_in_the_descriptor_is_never_in_the_config(
    spec: ModelSpec, document: dict[str, Any], engine: str, kept: set[str]
) -> None:
    units = {word: {"throughput_gflops": 100.0 * (index + 1)} for index, word in enumerate(sorted(kept))}
    found = config(spec, document | {"compute_units": units}, engine=engine)
    usable = kept & {"fp32", "bf16"} if document is CPU or document is ASCEND else kept & set(WORDS.values())
    if document is ASCEND and engine == "vllm":
        usable = kept & {"bf16", "fp16"}
    if usable:
        assert WORDS[found.dtype] in kept
    method = table("methods")[found.quantization]["format"]
    assert method is None or method in kept


@given(
    document=st.sampled_from([RTX, CPU]),
    rate=st.floats(1, 1e6),
    faster=st.floats(1, 100),
    spec=st.sampled_from([EMBEDDING, QWEN3_8B]),
    objective=st.sampled_from(["throughput", "latency"]),
)
def test_a_faster_int8_never_moves_vllm_away_from_int8(
    document: dict[str, Any], rate: float, faster: float, spec: ModelSpec, objective: str
) -> None:
    def chosen(gflops: float) -> str:
        units = document["compute_units"] | {
            "int8": {"throughput_gflops": gflops},
            "int4": {"throughput_gflops": 30000},
        }
        return config(spec, document | {"compute_units": units}, engine="vllm", objective=objective).quantization

    if chosen(rate) == "w8a8":
        assert chosen(rate * faster) == "w8a8"

"""The whole verb: golden decisions, and what must hold for every question."""

import json
from dataclasses import replace
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
    descriptor,
    rejections,
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


def test_the_bundled_runtime_compiles_where_bench_saw_a_gain() -> None:
    rope = {"bf16": {"implementation": "inductor", "second": "blocked", "ratio": 2.5}}
    document = descriptor(CPU, primitives={"rope": rope})
    found = config(EMBEDDING, document)
    assert (found.compile.enabled, found.compile.mode, found.compile.backend) == (True, "default", "inductor")
    assert found.compile.reason == "bench saw a gain: rope 2.5 times as fast"
    assert found.primitives["rope"] == "inductor"
    eager = config(EMBEDDING, document, pins={"enforce_eager": True})
    assert (eager.compile.enabled, eager.primitives["rope"]) == (False, "blocked")
    assert config(EMBEDDING, CPU).compile.reason == "bench saw no gain"
    untried = descriptor({key: value for key, value in CPU.items() if key != "primitives"})
    assert config(EMBEDDING, untried).compile.reason == "no bench tried it"


def test_what_bench_could_not_tell_is_no_winner() -> None:
    disturbed = {"source": "measured", "status": "throttled", "confidence": "low", "reason": "busy"}
    clear = {"implementation": "inductor", "second": "blocked", "ratio": 2.5}
    document = descriptor(
        CPU,
        primitives={"attention": {"bf16": {"implementation": "bmm"}}, "rope": {"bf16": clear}},
        measurements={"/primitives/attention/bf16": disturbed, "/primitives/rope/bf16": disturbed},
    )
    found = config(EMBEDDING, document)
    (rule,) = [decision.rule for decision in found.decisions if decision.key == "primitives"]
    assert rule.endswith("; attention as the adapter prefers, since bench could not tell which is faster")
    assert found.primitives["attention"] == "bmm"


def test_graphs_are_recorded_where_launches_take_over_a_fifth_of_a_step() -> None:
    won = {"rope": {"bf16": {"implementation": "inductor", "second": "rope", "ratio": 2.5}}}
    small = config(EMBEDDING, H100 | {"primitives": won}, input_len=64).compile
    assert (small.enabled, small.mode) == (True, "reduce-overhead")
    assert "of a step, which recorded graphs save" in small.reason
    large = config(EMBEDDING, H100 | {"primitives": won}, input_len=32_000).compile
    assert (large.enabled, large.mode) == (True, "default")


def test_eager_execution_has_no_graphs_and_no_compiler() -> None:
    eager = config(QWEN3_8B, H100, engine="vllm", pins={"enforce_eager": True})
    assert (eager.compile.enabled, eager.budget.graph_bytes) == (False, 0)
    assert decision(eager, "compile").pinned
    compiled = config(QWEN3_8B, H100, engine="vllm")
    assert (compiled.compile.enabled, compiled.compile.mode, compiled.compile.backend) == (True, "default", "inductor")
    assert compiled.budget.graph_bytes > 0


def test_a_law_used_outside_its_range_is_a_warning() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", engine_version="0.40")
    assert found.engine_version == "0.40"
    assert found.warnings[0].startswith("the memory law of vllm 0.29 to 0.33 is used outside its range")


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


def test_an_unknown_capacity_leaves_null_what_follows_from_it() -> None:
    found = config(EMBEDDING, ASCEND, engine="vllm")
    gone = ("device_total_bytes", "requested_bytes", "kv_cache_bytes", "kv_cache_tokens", "num_kv_blocks")
    assert all(getattr(found.budget, key) is None for key in gone)
    assert all("--device-memory" in found.unknown[f"/budget/{key}"] for key in gone)
    assert found.kv_cache_memory_bytes is found.num_kv_blocks is found.gpu_memory_utilization is None
    known = config(EMBEDDING, ASCEND, engine="vllm", device_memory_bytes=64 * GIB)
    assert known.budget.verdict == "boots"
    assert known.kv_cache_memory_bytes


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

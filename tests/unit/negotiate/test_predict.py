"""Speed by roofline, or the reason why none is predicted."""

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
    QWEN3_0_6B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    RTX,
    config,
    decision,
    descriptor,
    selection,
)
from vllm_probe.core.config import Estimate
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.predict import Roofline


def roofline(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Roofline:
    own = selection(spec, document, **{"engine": "vllm", **request}).own
    return Roofline(own.case, own.candidate, own.shape)


def test_a_full_step_is_bound_by_arithmetic_at_the_measured_rate_of_its_rows() -> None:
    found = roofline(EMBEDDING, CPU)
    flops = 2 * 28 * 15_728_640 + 4 * 28 * 2048 * 256
    seconds = flops / (0.43 * 960e9)
    assert found.prompt_s(512) == pytest.approx(512 * seconds)
    assert found.tokens_per_s() == pytest.approx(1 / seconds)


def test_the_bundled_runtime_computes_attention_and_norms_on_vector_units_and_begins_each_operator() -> None:
    own = selection(MINILM, CPU, input_len=128).own
    found = Roofline(own.case, own.candidate, own.shape)
    linears = 2 * 6 * (4 * 384 * 384 + 2 * 384 * 1536) / (0.7 * 900e9)
    attention = 6 * 4 * 384 * 128 / (0.7 * 0.5 * 213e9)
    values = 43 * 6 * (4 * 384 + 1536) / (0.7 * 213e9)
    assert found.prompt_s(256) == pytest.approx(128 * (linears + attention + values + 6 * 60e-6 / 256))


def test_minilm_on_two_zen_4_cores_is_predicted_around_what_its_engine_and_server_reached() -> None:
    """benchmarks/encoder_step.py: 22,400 to 24,800 tokens/s alone at best, 11,000 to 13,500 served beside a client."""
    quick = descriptor(CPU, memory={"bandwidth_gb_s": 73.5})
    speed = config(MINILM, quick, input_len=128, pins={"max_num_batched_tokens": 256}).predicted.tokens_per_s
    assert speed.low is not None
    assert speed.high is not None
    assert speed.low < 11_000
    assert 22_400 < speed.high < 24_800
    assert "attention over 50% of fp32 213 GFLOP/s" in config(MINILM, quick).predicted.method


def test_a_single_token_is_bound_by_the_bytes_it_reads() -> None:
    found = roofline(EMBEDDING, CPU, input_len=1)
    assert found.prompt_s(1) == pytest.approx(2 * 28 * 15_728_640 / (0.9 * 0.65 * 34e9), rel=0.01)


BESIDE = 36 * 55e-6 + 0.9e-3
"""Seconds of a step of Qwen3-8B with vLLM that are neither arithmetic nor reading."""


def test_a_decode_step_reads_the_weights_once_and_every_cache() -> None:
    found = roofline(QWEN3_8B, H100, concurrency=2)
    weights = 2 * (8_190_735_360 - 151_936 * 4096 - 36 * (2 * 4096 + 256) - 4096)
    cache = 2 * (512 + 64) * 147_456
    assert found.step_s() == pytest.approx((weights + cache) / (0.9 * 0.9 * 3000e9) + BESIDE, rel=0.001)


def test_a_stated_rate_counts_for_less_than_a_measured_one() -> None:
    notes = {"/memory/bandwidth_gb_s": {"source": "measured", "status": "measured"}}
    stated, measured = (roofline(QWEN3_8B, H100 | {"measurements": each}, concurrency=1) for each in ({}, notes))
    assert stated.step_s() - BESIDE == pytest.approx((measured.step_s() - BESIDE) / 0.9, rel=0.001)
    method = config(QWEN3_8B, H100, engine="vllm").predicted.method
    assert "75% of a stated rate and 90% of a stated bandwidth count as measured" in method


def test_time_per_token_and_to_the_first_grow_with_what_the_others_ask() -> None:
    alone, many = (roofline(QWEN3_8B, H100, concurrency=count) for count in (1, 21))
    prompt = many.prompt_s()
    assert many.tpot_s() == pytest.approx(many.step_s() + 0.25 * 20 * prompt / 128)
    assert many.ttft_s() == pytest.approx(0.025 + many.step_s() + 2 * prompt)
    assert alone.tpot_s() == pytest.approx(alone.step_s())
    assert alone.ttft_s() == pytest.approx(0.025 + alone.prompt_s())


def test_experts_fill_their_matrices_with_many_rows_only() -> None:
    found = roofline(QWEN3_30B_A3B, H100)
    few, many = (found.prompt_s(rows) for rows in (256, 8192))
    assert few / many > 1.2


@pytest.mark.parametrize("spec", [QWEN3_30B_A3B, catalogue.load("gpt-oss-20b")])
def test_one_sequence_of_experts_decodes_by_the_bandwidth_of_the_card_not_by_its_arithmetic(spec: ModelSpec) -> None:
    cards = (("a100", 312_000, 2039), ("rtx-5090", 210_000, 1792), ("rtx-4090", 165_000, 1008), ("l40s", 362_000, 864))
    steps = [
        roofline(
            spec,
            H100 | {"compute_units": {"bf16": {"throughput_gflops": units}}, "memory": H100["memory"] | memory},
            concurrency=1,
        ).step_s()
        for _, units, gb_s in cards
        for memory in ({"bandwidth_gb_s": gb_s},)
    ]
    assert steps == sorted(steps)
    assert steps[0] < 0.75 * steps[2]


def test_a_faster_card_is_never_predicted_slower() -> None:
    speeds = []
    for units, bandwidth in ((165_000, 1008), (312_000, 2039), (989_000, 3350)):
        document = H100 | {
            "compute_units": {"bf16": {"throughput_gflops": units}, "fp32": {"throughput_gflops": 82_600 - units / 20}},
            "memory": H100["memory"] | {"bandwidth_gb_s": bandwidth},
        }
        speeds.append(config(MINILM, document).predicted.tokens_per_s.value or 0.0)
    assert speeds == sorted(speeds)
    assert speeds[-1] == pytest.approx(256 / 500e-6)  # what its server can take in bounds a small model


def test_one_measured_speed_scales_every_prediction_and_narrows_its_band() -> None:
    plain = config(QWEN3_8B, H100, engine="vllm").predicted
    found = config(QWEN3_8B, H100, engine="vllm", measured_tokens_per_s=1500.0).predicted
    scale = 1500 / (plain.tokens_per_s.value or 0)
    assert found.tokens_per_s.value == pytest.approx(1500)
    assert found.tpot_s.value == pytest.approx((plain.tpot_s.value or 0) / scale)
    assert found.ttft_s.value == pytest.approx((plain.ttft_s.value or 0) / scale)
    assert width(found.tokens_per_s) < width(plain.tokens_per_s)
    assert width(found.tpot_s) < width(plain.tpot_s)
    assert "scaled by the 1,500 tokens/s that were measured" in found.method
    assert "another" not in found.method.partition("scaled")[2]
    odd = config(QWEN3_8B, H100, engine="vllm", measured_tokens_per_s=15.0).predicted
    assert "workload or unit may be another" in odd.method


def test_generated_tokens_wait_for_their_prompts() -> None:
    long, short = (roofline(QWEN3_8B, H100, input_len=length).tokens_per_s() for length in (4096, 16))
    assert short > long
    assert short < 32 / roofline(QWEN3_8B, H100, input_len=16).step_s()


def test_a_prediction_has_a_band_around_its_value_and_names_rates_and_source() -> None:
    found = config(MINILM, CPU).predicted
    assert found.tokens_per_s.low is not None
    assert found.tokens_per_s.value is not None
    assert found.tokens_per_s.low < found.tokens_per_s.value < (found.tokens_per_s.high or 0)
    assert found.ttft_s.low is not None
    assert found.ttft_s.high is not None
    assert found.ttft_s.low < found.ttft_s.high
    assert found.tpot_s.value is None
    assert "bf16 974 GFLOP/s (measured, in short runs)" in found.method
    assert config(QWEN3_8B, RTX, engine="vllm").predicted.tpot_s.value


@pytest.mark.parametrize(
    ("spec", "document", "request_", "reason"),
    [
        (EMBEDDING, ASCEND, {}, "suspect: unit?"),
        (EMBEDDING, ARC, {}, "suspect: unit?"),
        (EMBEDDING, RTX | {"memory": {"alignment_bytes": 256}}, {}, "no rate for bandwidth"),
        (EMBEDDING, RTX | {"compute_units": {}}, {}, "no rate for bf16"),
        (GLM_5_3, RTX, {"device_memory_bytes": 24 * GIB}, "it does not boot (oom)"),
    ],
)
def test_what_cannot_be_believed_or_does_not_run_is_not_predicted(
    spec: ModelSpec, document: dict[str, Any], request_: dict[str, Any], reason: str
) -> None:
    found = config(spec, document, engine="vllm", **request_).predicted
    assert found.method.startswith("withheld: ")
    assert reason in found.method
    assert found.tokens_per_s.value is found.ttft_s.value is found.tpot_s.value is None


def test_each_rank_reads_its_part_of_weights_and_cache() -> None:
    bus = H100 | {"device": {"arch": "sm_90"}, "dma": {"peer_gb_s": 1e12}}
    one, two = (roofline(QWEN3_8B, bus, concurrency=2, pins={"tensor_parallel_size": ranks}) for ranks in (1, 2))
    sums = 2 * 36 * 4e-6
    assert two.step_s() - BESIDE - sums == pytest.approx((one.step_s() - BESIDE) / 2, rel=0.001)


def test_ranks_sum_hidden_states_twice_a_layer_over_their_link() -> None:
    fast = roofline(QWEN3_8B, H100, concurrency=2, pins={"tensor_parallel_size": 4})
    slow = roofline(QWEN3_8B, H100 | {"device": {"arch": "sm_89"}}, concurrency=2, pins={"tensor_parallel_size": 4})
    sent = 2 * 3 / 4 * 2 * 4096 * 2
    difference = sent / 20e9 + 20e-6 - sent / 400e9 - 4e-6
    assert slow.step_s() - fast.step_s() == pytest.approx(2 * 36 * difference)


def test_the_cache_is_read_in_its_own_format() -> None:
    wide, narrow = (
        roofline(QWEN3_8B, H100, concurrency=2, pins={"kv_cache_dtype": word}) for word in ("bfloat16", "fp8")
    )
    assert wide.step_s() - narrow.step_s() == pytest.approx((512 + 64) * 147_456 / (0.9 * 0.9 * 3000e9))


def test_the_bytes_of_a_cached_token_are_those_of_the_cache_format() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_dtype": "fp8"})
    assert decision(found, "kv_cache_dtype").inputs["bytes_per_token"] == 73_728


def test_the_link_of_ranks_is_named_with_its_source() -> None:
    pins = {"tensor_parallel_size": 2}
    assumed = config(QWEN3_8B, H100, engine="vllm", pins=pins).predicted.method
    assert "on each of 2 ranks, whose sums go at 400 GB/s and 4 us each (fit to H200 SXM runs" in assumed
    stated = config(QWEN3_8B, H100 | {"dma": {"peer_gb_s": 50}}, engine="vllm", pins=pins).predicted.method
    assert "at 50 GB/s and 4 us each (the descriptor's peer_gb_s)" in stated
    assert "ranks" not in config(QWEN3_8B, H100, engine="vllm").predicted.method


def width(speed: Estimate) -> float:
    assert speed.low is not None
    assert speed.high is not None
    return speed.high / speed.low


@pytest.mark.parametrize(
    ("document", "pins", "reason"),
    [
        (CPU, {"tensor_parallel_size": 2}, "the rate at which 2 ranks exchange sums is not known"),
        (H100, {"pipeline_parallel_size": 2}, "how far 2 pipeline stages overlap is not known"),
    ],
)
def test_ranks_of_which_too_little_is_known_are_not_predicted(
    document: dict[str, Any], pins: dict[str, Any], reason: str
) -> None:
    found = config(QWEN3_0_6B, document, engine="vllm", pins=pins).predicted
    assert found.method == f"withheld: {reason}"

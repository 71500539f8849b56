"""Speed by roofline, or the reason why none is predicted."""

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
    QWEN3_0_6B,
    QWEN3_8B,
    RTX,
    config,
    decision,
    descriptor,
    selection,
)
from vllm_probe.core.config import Estimate
from vllm_probe.core.model import ModelSpec
from vllm_probe.negotiate.predict import Roofline


def roofline(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Roofline:
    own = selection(spec, document, **{"engine": "vllm", **request}).own
    return Roofline(own.case, own.candidate, own.shape)


def test_a_full_step_is_bound_by_arithmetic_at_the_measured_rate_of_its_rows() -> None:
    found = roofline(EMBEDDING, CPU)
    flops = 2 * 28 * 15_728_640 + 4 * 28 * 2048 * 256
    assert found.prefill_s(512) == pytest.approx(flops / 960e9)
    assert found.tokens_per_s() == pytest.approx(960e9 / flops)
    assert found.ttft_s() == pytest.approx(512 * flops / 960e9)


def test_the_bundled_runtime_computes_attention_and_norms_on_vector_units_and_begins_each_operator() -> None:
    own = selection(MINILM, CPU, input_len=128).own
    found = Roofline(own.case, own.candidate, own.shape)
    linears = 2 * 6 * (4 * 384 * 384 + 2 * 384 * 1536) / 900e9
    attention = 6 * 4 * 384 * 128 / (0.5 * 213e9)
    values = 43 * 6 * (4 * 384 + 1536) / 213e9
    assert found.prefill_s(256) == pytest.approx(linears + attention + values + 6 * 60e-6 / 256)


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
    found = roofline(EMBEDDING, CPU)
    assert found.prefill_s(1) == pytest.approx(2 * 28 * 15_728_640 / 34e9)


def test_a_decode_step_reads_the_weights_once_and_every_cache() -> None:
    found = roofline(QWEN3_8B, H100, concurrency=2)
    weights = 2 * (8_190_735_360 - 151_936 * 4096 - 36 * (2 * 4096 + 256) - 4096)
    cache = 2 * (512 + 64) * 147_456
    assert found.step_s() == pytest.approx((weights + cache) / 3000e9 + 36 * 130e-6, rel=0.001)


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
    one, two = (roofline(QWEN3_8B, H100, concurrency=2, pins={"tensor_parallel_size": ranks}) for ranks in (1, 2))
    started = 36 * 130e-6
    assert two.step_s() - started == pytest.approx((one.step_s() - started) / 2)
    assert two.prefill_s(1024) - started / 1024 == pytest.approx((one.prefill_s(1024) - started / 1024) / 2)


def test_ranks_sum_hidden_states_twice_a_layer_over_their_link() -> None:
    alone = roofline(QWEN3_8B, H100, concurrency=2, pins={"tensor_parallel_size": 4})
    linked = replace(alone, link=(25.0, 20.0))
    sent = 2 * 3 / 4 * 2 * 4096 * 2
    assert linked.step_s() - alone.step_s() == pytest.approx(2 * 36 * (sent / 25e9 + 20e-6))


def test_the_cache_is_read_in_its_own_format() -> None:
    wide, narrow = (
        roofline(QWEN3_8B, H100, concurrency=2, pins={"kv_cache_dtype": word}) for word in ("bfloat16", "fp8")
    )
    assert wide.step_s() - narrow.step_s() == pytest.approx((512 + 64) * 147_456 / 3000e9)


def test_the_bytes_of_a_cached_token_are_those_of_the_cache_format() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_dtype": "fp8"})
    assert decision(found, "kv_cache_dtype").inputs["bytes_per_token"] == 73_728


def test_an_unknown_link_widens_the_band_and_is_named() -> None:
    one, two = (
        config(QWEN3_8B, H100, engine="vllm", pins={"tensor_parallel_size": ranks}).predicted for ranks in (1, 2)
    )
    assert (two.tokens_per_s.high or 0) > (one.tokens_per_s.high or 0)
    assert width(two.tokens_per_s) > width(one.tokens_per_s)
    assert "on each of 2 ranks, whose link no descriptor states: sums go at 25 GB/s" in two.method
    assert "ranks" not in one.method


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

"""Chunk, batch, context and blocks."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import (
    ARC,
    ASCEND,
    BGE_M3,
    CPU,
    EMBEDDING,
    GIB,
    H100,
    MINILM,
    QWEN3_8B,
    RTX,
    case,
    selection,
)
from vllm_probe.core.model import ModelSpec
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.sizing import Chunk, Sized, prefill_chunk


def chunk(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Chunk:
    found = case(spec, document, **request)
    return prefill_chunk(found, match(found).own)


def sized(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Sized:
    return selection(spec, document, engine="vllm", **request).own


@pytest.mark.parametrize(("document", "rows"), [(ASCEND, 512), (ARC, 1024), (RTX, 1024)])
def test_a_version_1_chunk_is_65536_tokens_a_transfer_over_the_bandwidth(document: dict[str, Any], rows: int) -> None:
    found = chunk(EMBEDDING, document, engine="vllm")
    assert found.rows == rows
    assert found.rule.startswith("no rate curve: 65536 x ")


@pytest.mark.parametrize(
    ("transfers", "bandwidth", "rows"),
    [(1, 8000, 256), (64, 10, 8192), (3, 256, 1024), (11, 1000, 512), (12, 1000, 1024)],
)
def test_it_is_rounded_to_a_power_of_two_within_its_range(transfers: int, bandwidth: float, rows: int) -> None:
    document = RTX | {"dma": {"max_concurrent_transfers": transfers}, "memory": {"bandwidth_gb_s": bandwidth}}
    assert chunk(EMBEDDING, document, engine="vllm").rows == rows


def test_without_curve_or_transfers_it_is_512_and_that_is_said() -> None:
    found = chunk(EMBEDDING, RTX | {"dma": {}}, engine="vllm")
    assert found.rows == 512
    assert "by default" in found.rule


def test_a_measured_chunk_is_the_first_row_count_on_the_plateau_of_its_format() -> None:
    found = chunk(MINILM, CPU)
    assert found.rows == 512
    assert "98% of the best bf16 rate, 974 GFLOP/s" in found.rule
    early = CPU | {"compute_units": {"bf16": {"throughput_gflops": 974, "curve": [[64, 960], [128, 974]]}}}
    assert chunk(MINILM, early).rows == 64


def test_a_chunk_is_smaller_where_waiting_counts_more_than_the_last_percents() -> None:
    unit = {"throughput_gflops": 974, "curve": [[256, 930], [512, 974]]}
    document = CPU | {"compute_units": {"bf16": unit}}
    sizes = {objective: chunk(MINILM, document, objective=objective).rows for objective in ("throughput", "latency")}
    assert sizes == {"throughput": 512, "latency": 256}


def test_a_doubtful_spike_does_not_move_the_chunk() -> None:
    unit = {"throughput_gflops": 974, "curve": [[64, 800], [128, 840], [256, 830], [512, 835], [4096, 974]]}
    spiked = CPU | {"compute_units": {"bf16": unit}}
    assert chunk(MINILM, spiked).rows == 4096
    notes = {"/compute_units/bf16/curve/4": {"source": "measured", "status": "noisy", "spread_pct": 40}}
    assert chunk(MINILM, spiked | {"measurements": notes}).rows == 128


def test_it_is_at_least_twice_the_ridge_point() -> None:
    early = CPU | {"compute_units": {"bf16": {"throughput_gflops": 974, "curve": [[1, 970], [128, 974]]}}}
    assert chunk(MINILM, early).rows == 64
    assert "twice the 29 from which" in chunk(MINILM, early).rule
    assert chunk(MINILM, early | {"memory": {}}).rows == 1


def test_a_pinned_batch_cuts_the_chunk() -> None:
    found = chunk(EMBEDDING, CPU, pins={"max_num_batched_tokens": 100})
    assert found.rows == 100
    assert found.rule.endswith("cut to --max-num-batched-tokens 100")


def test_a_step_of_a_chunkable_model_is_the_chunk_and_of_an_encoder_its_longest_prompt() -> None:
    assert sized(EMBEDDING, CPU).shape.tokens == 512
    assert sized(BGE_M3, CPU).shape.tokens == 8192
    assert sized(MINILM, CPU).shape.tokens == 512
    mean = replace(EMBEDDING, pooling="mean")
    assert sized(mean, CPU).shape.tokens == 32768


def test_a_pinned_batch_bounds_the_context_of_what_is_computed_whole() -> None:
    assert sized(BGE_M3, CPU, pins={"max_num_batched_tokens": 1000}).shape.max_model_len == 1000
    assert sized(EMBEDDING, CPU, pins={"max_num_batched_tokens": 1000}).shape.max_model_len == 32768


def test_pooling_takes_as_many_short_texts_as_fill_a_step() -> None:
    assert sized(EMBEDDING, RTX).shape.seqs == 1024 // 16
    assert sized(EMBEDDING, RTX, concurrency=200).shape.seqs == 200
    assert sized(EMBEDDING, RTX, pins={"max_num_seqs": 5}).shape.seqs == 5


def test_every_sequence_of_a_generator_has_a_token_in_a_step() -> None:
    assert sized(QWEN3_8B, RTX, concurrency=3000).shape.tokens == 3000


def test_the_batch_shrinks_to_what_the_cache_holds_and_the_context_to_what_boots() -> None:
    tight = sized(QWEN3_8B, H100, device_memory_bytes=20 * GIB)
    assert tight.shape.seqs < 32
    assert tight.shape.max_model_len < 40960
    assert tight.holds_workload()
    tighter = replace(tight.shape, seqs=tight.shape.seqs + 1)
    assert not replace(tight, shape=tighter).holds_workload()
    assert tight.budget.verdict == "boots"
    roomy = sized(QWEN3_8B, H100)
    assert (roomy.shape.seqs, roomy.shape.max_model_len) == (32, 40960)


def test_what_does_not_boot_is_sized_for_the_workload_alone() -> None:
    found = sized(QWEN3_8B, H100, device_memory_bytes=10 * GIB)
    assert (found.shape.max_model_len, found.budget.verdict) == (640, "oom")
    assert found.budget.estimated_max_model_len == 0
    assert found.budget.requested_bytes
    assert found.budget.requested_bytes > 15.26 * GIB


def test_without_a_capacity_the_context_is_the_models_and_nothing_is_refused() -> None:
    found = sized(EMBEDDING, ASCEND)
    assert (found.shape.max_model_len, found.budget.verdict, found.boots) == (32768, "unknown", True)


@pytest.mark.parametrize(
    ("document", "block"), [(RTX, 16), (ARC, 64), (ASCEND, 128), (CPU, 128), (RTX | {"device_type": "abacus"}, 16)]
)
def test_blocks_have_the_engines_size_on_the_device(document: dict[str, Any], block: int) -> None:
    assert sized(EMBEDDING, document).shape.block_size == block


def test_blocks_are_widened_until_they_keep_the_alignment() -> None:
    wide = RTX | {"memory": {"alignment_bytes": 2 * 8 * 128 * 2 * 64}}
    assert sized(EMBEDDING, wide).shape.block_size == 64
    assert sized(EMBEDDING, wide, pins={"block_size": 32}).shape.block_size == 32

"""The memory law, against start-up logs of real engines."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
    config,
    decision,
    descriptor,
    selection,
)
from vllm_probe.core.config import MemoryBudget
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.releases import is_before
from vllm_probe.core.values import Engine
from vllm_probe.models import catalogue
from vllm_probe.negotiate.activation import activation_bytes, sizes_of
from vllm_probe.negotiate.budget import account, limit_bytes
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.case import open_case
from vllm_probe.negotiate.gemm import WeightFormat
from vllm_probe.negotiate.laws import table
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.shape import Shape
from vllm_probe.negotiate.stages import stages_of

BF16 = WeightFormat(method="none", width=2)
SHAPE = Shape(max_model_len=8192, seqs=1024, tokens=8192, block_size=16, kv_dtype="bfloat16", has_graphs=True)


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


@pytest.mark.parametrize("ranks", [1, 2])
def test_ten_mebibytes_more_never_give_an_engine_less(ranks: int) -> None:
    """Every size from 1 to 200 GiB: 5 % of 18.7 GiB, taken as a float, left 94 % of it."""
    opened = case(QWEN3_8B, H100, engine="vllm", pins={"tensor_parallel_size": ranks})
    request = replace(opened.request, device_memory_bytes=1)
    limits = [
        limit_bytes(replace(opened, request=request, total_bytes=size, usable_bytes=size)) or 0
        for size in range(GIB, 200 * GIB, 10 << 20)
    ]
    assert limits == sorted(limits)
    assert limits[-1] == pytest.approx(0.95 * 200 * GIB, rel=0.001)


def test_sixteen_sizes_of_a_card_never_lower_context_or_batch_as_they_grow() -> None:
    """Llama-3.1-8B held 8768 tokens in 18.6 GiB and 8016 in 18.7."""
    pins = {"quantization": "none"}
    sized = [
        selection(LLAMA_8B, H100, engine="vllm", device_memory_bytes=size, pins=pins).chosen.shape
        for size in range(round(18.6 * GIB), round(18.76 * GIB), 10 << 20)
    ]
    lengths = [shape.max_model_len for shape in sized]
    assert lengths == sorted(lengths)
    assert [shape.seqs for shape in sized] == sorted(shape.seqs for shape in sized)


@pytest.mark.parametrize("engine", ["vllm", "bundled"])
def test_no_engine_may_take_the_last_of_a_card(engine: Engine) -> None:
    card = case(MINILM, H100, engine=engine, objective="memory")
    assert limit_bytes(card) == pytest.approx(0.95 * 79.19 * GIB, abs=2)


def test_unified_memory_of_which_only_the_total_is_known_leaves_room_for_the_system() -> None:
    """What was free of a GB10 when nothing ran on it: 101.3 of 121.69 GiB."""
    shared = H100 | {"memory": {"total_bytes": round(121.69 * GIB), "kind": "unified"}}
    assert (limit_bytes(case(QWEN3_8B, shared, engine="vllm")) or 0) / GIB == pytest.approx(101.3, abs=0.5)
    measured = shared | {"memory": shared["memory"] | {"usable_bytes": 110 * GIB}}
    for known in (measured, {**shared, "device_memory_bytes": 110 * GIB}):
        size = known.pop("device_memory_bytes", None)
        assert (
            limit_bytes(case(QWEN3_8B, known, engine="vllm", device_memory_bytes=size)) or 0
        ) / GIB == pytest.approx(110 - 0.15, abs=0.01)


def test_what_is_kept_free_is_named_with_its_rule() -> None:
    words = [
        str(decision(config(QWEN3_8B, H100, engine=engine, pins=pins), "gpu_memory_utilization").inputs["kept_free"])
        for engine, pins in (("vllm", {}), ("vllm", {"gpu_memory_utilization": 0.5}))
    ]
    assert words == [
        "3.96 GiB: 5 % of the card at least, the share being a whole percent",
        "39.59 GiB: what the pinned share leaves",
    ]


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
    pins = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    latent = budget(catalogue.load("GLM-4.7-Flash"), H100, engine="vllm", engine_version="0.29", pins=pins)
    prefill = 65536 * 20 * (192 + 256 + 192 + 64) * 2
    experts = 8192 * 4 * (2048 + 2 * 1536) * 2
    assert latent.activation_bytes == prefill + experts + 8192 * 2048 * 2
    assert latent.activation_bytes / GIB == pytest.approx(2.04, abs=0.03), "measured, github.com/mondegreens/apron"
    sparse = budget(QWEN3_30B_A3B, H100, engine="vllm", pins={"max_num_batched_tokens": 65536, "max_num_seqs": 8})
    assert sparse.activation_bytes == 65536 * 8 * (2048 + 2048) * 2


def test_an_indexer_leaves_no_latents_to_unfold() -> None:
    pins = {"max_num_batched_tokens": 256, "max_num_seqs": 8}
    assert budget(GLM_5_3, H100, engine="vllm", pins=pins).activation_bytes < 2.1 * GIB


def test_two_ranks_hold_half_each_and_more_beside_torch() -> None:
    one, two = (logged(QWEN3_8B, "0.19", gpu_memory_utilization=0.95, tensor_parallel_size=ranks) for ranks in (1, 2))
    assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=0.01)
    assert (one.non_torch_bytes, two.non_torch_bytes) == (round(0.25 * GIB), round(2.1 * GIB))
    assert one.kv_cache_tokens is not None
    assert two.kv_cache_tokens is not None
    assert two.kv_cache_tokens > 2 * one.kv_cache_tokens


def test_linear_attention_takes_a_block_for_each_sequence_of_every_group() -> None:
    hybrid = catalogue.load("Qwen3.5-35B-A3B")
    pins = {"max_num_seqs": 8, "max_model_len": 8192}
    found = budget(hybrid, H100, engine="vllm", device_memory_bytes=77 * GIB, pins=pins)
    tokens = math.ceil(analyse(hybrid).state_bytes(2) / 30 / 2048 / 16) * 16
    assert tokens * 2048 >= analyse(hybrid).state_bytes(2) / 30 > (tokens - 16) * 2048
    assert found.kv_cache_bytes is not None
    assert found.num_kv_blocks == found.kv_cache_bytes // (10 * tokens * 2048)
    assert found.kv_cache_tokens == found.num_kv_blocks * 8192 // (2 * 3 + math.ceil(8192 / tokens))


def test_a_rank_of_a_pipeline_holds_its_end_and_the_fullest_one_counts() -> None:
    pins = {"pipeline_parallel_size": 2, "gpu_memory_utilization": 0.95, "max_num_seqs": 1024}
    found = logged(LLAMA_8B, "0.19", **pins)
    half = (LLAMA_8B.vocab_size * 4096 * 2 + analyse(LLAMA_8B).layer_bytes(BF16) * 16) / GIB
    assert found.weights_bytes / GIB == pytest.approx(half, rel=0.01)
    assert found.activation_bytes / GIB == pytest.approx(1.89, abs=0.03), "the last rank samples"
    law = case(LLAMA_8B, H100, engine="vllm", engine_version="0.19", pins=pins | {"max_num_batched_tokens": 8192})
    first = activation_bytes(law, sizes_of(law, match(law).own, SHAPE, stages_of(32, 2)[0]), stages_of(32, 2)[0])
    assert first / GIB == pytest.approx(1.10, abs=0.01), "logged of the first rank of two"


def test_graphs_come_on_top_of_the_share_until_0_20_and_stand_in_it_since() -> None:
    old, new = (logged(QWEN3_8B, version, gpu_memory_utilization=0.9) for version in ("0.20.0", "0.21.0"))
    share = math.ceil(0.9 * round(79.19 * GIB))
    assert old.requested_bytes == share + old.graph_bytes
    assert new.requested_bytes == share
    assert old.graph_bytes == new.graph_bytes > 0


def test_graphs_are_those_of_a_stage_and_of_the_sizes_that_are_captured() -> None:
    found = {
        name: logged(catalogue.load(name), "0.19").graph_bytes / GIB for name in ("Qwen2.5-7B-Instruct", "gpt-oss-20b")
    }
    assert found == pytest.approx({"Qwen2.5-7B-Instruct": 0.81, "gpt-oss-20b": 1.30}, abs=0.1), "estimated by vLLM 0.19"
    half = logged(QWEN3_8B, "0.19", pipeline_parallel_size=2)
    assert half.graph_bytes == pytest.approx((0.2 + 18 * 0.0215) * GIB, abs=2)


def test_packed_experts_are_padded_as_their_version_does() -> None:
    gpt = catalogue.load("gpt-oss-20b")
    held = {version: logged(gpt, version).weights_bytes / GIB for version in ("0.11", "0.19", "0.29")}
    assert held == pytest.approx({"0.11": 13.47, "0.19": 13.64, "0.29": 12.82}, rel=0.005)


def test_kernels_that_want_memory_after_profiling_are_seen_to_fail() -> None:
    gpt = catalogue.load("gpt-oss-20b")
    verdicts = [logged(gpt, "0.19.0", gpu_memory_utilization=share).verdict for share in (0.95, 0.9)]
    assert verdicts == ["oom", "boots"], "github.com/llm-d-incubation/llm-d-planner, start-ups of 0.19 on an H100"


def test_tokens_are_counted_as_the_version_logs_them() -> None:
    gemma = catalogue.load("gemma-3-12b")
    old, new = (logged(gemma, version, gpu_memory_utilization=0.95) for version in ("0.20.1", "0.20.2rc1"))
    assert old.num_kv_blocks == new.num_kv_blocks == pytest.approx(48_867, rel=0.002)
    assert old.num_kv_blocks is not None
    assert old.kv_cache_tokens == old.num_kv_blocks // 6 * 16
    assert new.kv_cache_tokens == int(old.num_kv_blocks / 3077 * 8192)


def test_a_card_that_only_a_data_sheet_describes_has_what_an_engine_sees() -> None:
    card = {"device": {"name": "NVIDIA H100 SXM 80GB"}, "memory": {"total_bytes": 80 * GIB}}
    assert case(QWEN3_8B, H100, engine="vllm").total_bytes == round(79.19 * GIB)
    assert open_case(QWEN3_8B, descriptor(H100, **card), Request(engine="vllm")).total_bytes == round(79.19 * GIB)
    measured = card | {"memory": {"total_bytes": 80 * GIB, "usable_bytes": 78 * GIB}}
    assert open_case(QWEN3_8B, descriptor(H100, **measured), Request(engine="vllm")).total_bytes == 80 * GIB


@given(
    name=st.sampled_from(sorted(catalogue.entries())),
    gib=st.integers(1, 200),
    version=st.sampled_from(["0.6.3", "0.11", "0.19.0", "0.25", "0.33"]),
    pins=st.fixed_dictionaries(
        {},
        optional={
            "gpu_memory_utilization": st.floats(0.05, 1.0),
            "max_num_batched_tokens": st.integers(1024, 16384),
            "pipeline_parallel_size": st.integers(1, 4),
        },
    ),
)
@settings(max_examples=60, deadline=None)
def test_every_budget_adds_up_to_the_byte(name: str, gib: int, version: str, pins: dict[str, Any]) -> None:
    spec, request = catalogue.load(name), {"engine_version": version, "device_memory_bytes": gib * GIB, "pins": pins}
    without = table("vllm")["first_releases"].get(spec.architecture, (None, None))[1]
    assume(without is None or is_before(without, version))
    found = budget(spec, H100, engine="vllm", **request)
    parts = (found.weights_bytes, found.activation_bytes, found.non_torch_bytes, found.graph_bytes)
    assert found.kv_cache_bytes is not None
    assert found.requested_bytes == sum(parts) + found.kv_cache_bytes
    assert min(*parts, found.kv_cache_bytes) >= 0
    if found.verdict == "boots":
        assert found.requested_bytes <= gib * GIB

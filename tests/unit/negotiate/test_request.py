"""What the user may ask, and what means nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.negotiate.cases import ASCEND, CPU, EMBEDDING, GLM_5_3, MINILM, QWEN3_8B, RTX, case
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.request import Request, check_pins, ranks_of, workload_of


@pytest.mark.parametrize(
    ("spec", "request_", "expected"),
    [
        (QWEN3_8B, Request(), (32, 512, 128)),
        (QWEN3_8B, Request(objective="latency"), (1, 512, 128)),
        (QWEN3_8B, Request(objective="latency", concurrency=4), (4, 512, 128)),
        (QWEN3_8B, Request(output_len=0), (32, 512, 0)),
        (QWEN3_8B, Request(pins={"max_model_len": 200}), (32, 100, 100)),
        (EMBEDDING, Request(), (32, 512, 0)),
        (EMBEDDING, Request(output_len=9), (32, 512, 0)),
        (MINILM, Request(), (32, 256, 0)),
    ],
)
def test_the_workload_has_defaults_that_the_model_takes(
    spec: ModelSpec, request_: Request, expected: tuple[int, int, int]
) -> None:
    found = workload_of(request_, spec)
    assert (found.concurrency, found.input_len, found.output_len) == expected
    assert found.reason is None
    assert found.length <= spec.max_model_len


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(input_len=300), "300 input tokens are over the limit of all-MiniLM-L6-v2, 256 tokens"),
        (Request(input_len=200, pins={"max_model_len": 100}), "200 input tokens are over --max-model-len 100"),
        (
            Request(pins={"max_model_len": 512}),
            "--max-model-len 512 is over the limit of all-MiniLM-L6-v2, 256 tokens",
        ),
    ],
)
def test_what_the_model_cannot_take_has_a_reason(request_: Request, reason: str) -> None:
    assert reason in (workload_of(request_, MINILM).reason or "")


def test_pins_have_one_form_and_auto_pins_nothing() -> None:
    pins = {"dtype": "half", "quantization": "int8", "max_model_len": -1, "kv_cache_dtype": "auto", "block_size": None}
    found = check_pins(Request(engine="vllm", pins=pins), QWEN3_8B, 8)
    assert found.pins == {"dtype": "float16", "quantization": "w8a8"}
    assert check_pins(Request(pins={"quantization": "int8"}), QWEN3_8B, 1).pins == {"quantization": "int8"}


@pytest.mark.parametrize(
    ("word", "dtype"),
    [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32"), ("half", "float16"), ("float", "float32")],
)
def test_the_words_of_descriptors_are_synonyms_of_those_of_vllm(word: str, dtype: str) -> None:
    assert check_pins(Request(pins={"dtype": word}), QWEN3_8B, 1).pins == {"dtype": dtype}
    if word not in ("half", "float"):
        assert check_pins(Request(pins={"kv_cache_dtype": word}), QWEN3_8B, 1).pins == {"kv_cache_dtype": dtype}


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"dtype": "bf17"}, "--dtype bf17 means nothing"),
        ({"dtype": ["x"]}, "--dtype"),
        ({"kv_cache_dtype": "int3"}, "--kv-cache-dtype int3"),
        ({"max_model_len": 0}, "--max-model-len 0"),
        ({"max_num_seqs": True}, "--max-num-seqs True"),
        ({"block_size": 1.5}, "--block-size 1.5"),
        ({"gpu_memory_utilization": 1.2}, "--gpu-memory-utilization 1.2"),
        ({"gpu_memory_utilization": "x"}, "--gpu-memory-utilization x"),
        ({"enforce_eager": 1}, "--enforce-eager 1"),
        ({"quantization": 4}, "--quantization 4"),
        ({"speculative_config": "x"}, "'speculative_config' is not a parameter"),
        (
            {"tensor_parallel_size": 3},
            "--tensor-parallel-size 3 does not divide the 32 heads, 151936 padded vocabulary rows, 8 key/value heads",
        ),
        ({"pipeline_parallel_size": 37}, "--pipeline-parallel-size 37 exceeds the 36 layers"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "--max-num-seqs 64 exceeds --max-num-batched-tokens 32"),
    ],
)
def test_a_pin_that_means_nothing_is_bad_usage_and_names_the_option(pins: dict[str, Any], message: str) -> None:
    with pytest.raises(BadUsage) as caught:
        check_pins(Request(engine="vllm", pins=pins), QWEN3_8B, 4096)
    assert message in str(caught.value)
    assert caught.value.hint


def test_the_bundled_runtime_has_one_rank() -> None:
    with pytest.raises(BadUsage, match="2 ranks"):
        check_pins(Request(pins={"tensor_parallel_size": 2}), QWEN3_8B, 1)


def test_ranks_divide_the_heads_and_divide_or_repeat_the_key_heads() -> None:
    assert ranks_of(QWEN3_8B) == (1, 2, 4, 8, 16, 32)
    assert ranks_of(GLM_5_3)[-1] == 64


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("Qwen3-14B", (1, 2, 4, 8)), ("GLM-4.6", (1, 2, 4, 8, 16, 32)), ("all-MiniLM-L6-v2", (1, 2, 3, 4, 6, 12))],
)
def test_ranks_divide_the_padded_vocabulary_of_a_model_too(name: str, ranks: tuple[int, ...]) -> None:
    assert ranks_of(catalogue.load(name)) == ranks


@given(st.integers(1, 64), st.integers(1, 32), st.integers(1, 300_000), st.integers(1, 512))
def test_ranks_are_exactly_those_for_which_every_division_of_vllm_is_even(
    groups: int, kv: int, vocab: int, inner: int
) -> None:
    heads, rows = groups * kv, vocab + -vocab % 64
    shared = (max(n, kv) % min(n, kv) == 0 for n in range(1, heads + 1))
    even = [
        n for n, whole in enumerate(shared, 1) if whole and heads % n == 0 and rows % n == 0 and inner * 16 % n == 0
    ]
    spec = replace(QWEN3_8B, num_heads=heads, num_kv_heads=kv, vocab_size=vocab, intermediate_size=inner * 16)
    assert list(ranks_of(spec)) == even


def test_ranks_divide_experts_and_linear_attention_too() -> None:
    moe = catalogue.load("Qwen3-30B-A3B")
    assert moe.moe
    assert 32 in ranks_of(moe)
    narrow = replace(moe, moe=replace(moe.moe, expert_intermediate=760))
    assert ranks_of(narrow)[-1] == 8
    hybrid = catalogue.load("Qwen3.5-27B")
    assert hybrid.linear
    assert 2 in ranks_of(hybrid)
    odd = replace(hybrid, linear=replace(hybrid.linear, num_key_heads=15, num_value_heads=45))
    assert ranks_of(odd) == (1,)
    with pytest.raises(BadUsage, match="does not divide the 15 linear-attention key heads, 45 linear-attention value"):
        check_pins(Request(engine="vllm", pins={"tensor_parallel_size": 2}), odd, 4096)


@pytest.mark.parametrize(
    ("document", "size", "sizes"),
    [
        (RTX, 7, "16, 32, 64, 128, 256"),
        (RTX, 8, "16, 32, 64, 128, 256"),
        (CPU, 1, "16, 32, 64, 128, 256"),
        (ASCEND, 256, "16, 32, 64, 128"),
    ],
)
def test_a_block_size_that_the_engine_does_not_take_there_is_bad_usage(
    document: dict[str, Any], size: int, sizes: str
) -> None:
    with pytest.raises(BadUsage, match=f"--block-size {size}: vllm on ") as caught:
        case(QWEN3_8B, document, engine="vllm", pins={"block_size": size})
    assert caught.value.hint == f"give one of {sizes}, or none"


def test_a_block_size_means_nothing_to_an_engine_without_blocks() -> None:
    assert case(MINILM, CPU, pins={"block_size": 7}).request.pins == {"block_size": 7}

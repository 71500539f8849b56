"""Releases that compute a prompt whole: what they ask of a step, and what it takes."""

from typing import Any

import pytest

from tests.unit.negotiate.cases import ASCEND, EMBEDDING, GIB, H100, LLAMA_8B, QWEN3_8B, RTX, case, config, selection
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.chunking import computes_whole, runs_v0, start_defaults

GEMMA, LATENT = catalogue.load("gemma-3-4b"), catalogue.load("DeepSeek-V2-Lite")
CARD = H100 | {"memory": {"total_bytes": round(23.58 * GIB), "kind": "dedicated"}}
OLD = H100 | {"device": {**H100["device"], "arch": "sm_75"}}
CACHE = {"kv_cache_dtype": "fp8"}


@pytest.mark.parametrize(
    ("document", "version", "spec", "pins", "is_v0"),
    [
        (H100, "0.7.3", LLAMA_8B, {}, True), (H100, "0.8.5", LLAMA_8B, {}, False), (OLD, "0.8.5", LLAMA_8B, {}, True),
        (OLD, "0.10.1", LLAMA_8B, {}, True), (OLD, "0.10.2", LLAMA_8B, {}, False),
        (ASCEND, "0.8.5", LLAMA_8B, {}, True),
        (H100, "0.8.5", EMBEDDING, {}, True), (H100, "0.9.2", EMBEDDING, {}, False),
        (RTX, "0.8.5", LLAMA_8B, CACHE, True), (H100, "0.8.5", LLAMA_8B, CACHE, False),
        (H100, "0.8.5", LLAMA_8B, {"dtype": "float32"}, True), (H100, "0.33", LLAMA_8B, {}, False),
    ],
)  # fmt: skip
def test_the_first_engine_runs_what_the_second_could_not_do_yet(
    document: dict[str, Any], version: str, spec: ModelSpec, pins: dict[str, Any], is_v0: bool
) -> None:
    assert runs_v0(case(spec, document, engine="vllm", engine_version=version, pins=pins)) is is_v0
    assert not runs_v0(case(spec, document, pins=pins))


@pytest.mark.parametrize(
    ("version", "spec", "length", "is_whole"),
    [
        ("0.6.4", LLAMA_8B, 32768, True), ("0.6.4", LLAMA_8B, 32769, False), ("0.5.3", LLAMA_8B, 131072, True),
        ("0.6.4", GEMMA, 131072, True), ("0.6.4", LATENT, 131072, True), ("0.8.5", LLAMA_8B, 8192, False),
        ("0.7.3", EMBEDDING, 32768, True),
    ],
)  # fmt: skip
def test_the_first_engine_cuts_prompts_of_long_plain_models_alone(
    version: str, spec: ModelSpec, length: int, is_whole: bool
) -> None:
    assert computes_whole(case(spec, H100, engine="vllm", engine_version=version), length) is is_whole


@pytest.mark.parametrize(
    ("version", "length", "tokens", "seqs"),
    [("0.6.4", 20000, 20000, 256), ("0.6.4", 1000, 2048, 256), ("0.6.4", 35000, 512, 256), ("0.7.2", 35000, 2048, 256),
     ("0.8.4", 35000, 2048, 1024), ("0.9.2", 35000, 2048, 256)],
)  # fmt: skip
def test_a_start_that_says_nothing_has_the_step_of_its_engine(
    version: str, length: int, tokens: int, seqs: int
) -> None:
    found = start_defaults(case(LLAMA_8B, CARD, engine="vllm", engine_version=version), length)
    assert found == {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}


@pytest.mark.parametrize(("length", "gib"), [(20000, 3.81), (35000, 5.82)])
def test_a_longer_context_may_boot_where_a_shorter_one_does_not(length: int, gib: float) -> None:
    """github.com/vllm-project/vllm/issues/10517: 20000 and 35000 tokens came up on a 3090, 29000 did not."""
    pins = {"gpu_memory_utilization": 0.9, "max_model_len": length}
    asked = {"engine": "vllm", "engine_version": "0.6.4", "concurrency": 1}
    pins |= start_defaults(case(LLAMA_8B, CARD, pins=pins, **asked), length)
    found = selection(LLAMA_8B, CARD, pins=pins, **asked).own.budget
    assert found.verdict == "boots"
    assert (found.kv_cache_bytes or 0) / GIB == pytest.approx(gib, rel=0.01)


def test_what_is_between_two_that_boot_fails_with_the_length_that_was_logged() -> None:
    pins = {"gpu_memory_utilization": 0.9, "max_model_len": 29000, "max_num_batched_tokens": 29000, "max_num_seqs": 256}
    found = selection(LLAMA_8B, CARD, engine="vllm", engine_version="0.6.4", concurrency=1, pins=pins).own.budget
    assert found.verdict == "kv_too_small"


@pytest.mark.parametrize(("version", "is_whole"), [("0.6.4", True), ("0.7.3", True), ("0.8.5", False), ("0.33", False)])
def test_a_config_for_the_first_engine_never_has_a_step_under_its_context(version: str, is_whole: bool) -> None:
    found = config(QWEN3_8B, CARD, engine="vllm", engine_version=version, pins={"max_model_len": 12000})
    assert (found.max_num_batched_tokens >= found.max_model_len) is is_whole


def test_a_longest_context_is_looked_for_among_those_that_are_cut_first() -> None:
    found = selection(LLAMA_8B, CARD, engine="vllm", engine_version="0.7.3", concurrency=1).own
    assert found.boots
    assert found.shape.max_model_len > 32768
    assert found.shape.tokens < found.shape.max_model_len


def test_a_pinned_step_under_a_whole_prompt_is_refused_with_its_release() -> None:
    pins = {"max_num_batched_tokens": 2048, "max_model_len": 8192}
    found = config(QWEN3_8B, H100, engine="vllm", engine_version="0.7.3", pins=pins)
    assert found.budget.verdict == "invalid"
    assert found.warnings[0] == (
        "--max-num-batched-tokens 2048 is under 8192: vllm 0.7.3 computes prompts of Qwen3-8B whole, up to a context "
        "of 32768 tokens"
    )
    assert config(QWEN3_8B, H100, engine="vllm", engine_version="0.9.2", pins=pins).budget.verdict == "boots"
    assert found.alternatives[0].change == "--max-num-batched-tokens 8192"
    for other in found.alternatives:
        assert other.budget is None or other.verdict == "boots"

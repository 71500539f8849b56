"""Models whose images attend to themselves both ways: a step holds a whole image or video."""

from typing import Any

import pytest

from tests.unit.negotiate.cases import ARC, GIB, H100, QWEN3_8B, RTX, case, config, decision
from vllm_probe.models import catalogue
from vllm_probe.negotiate.chunking import item_tokens, start_defaults

GEMMA3, GEMMA4 = catalogue.load("gemma-3-4b"), catalogue.load("gemma-4-31B")
ROCM = H100 | {"device_type": "amd", "device": {"arch": "gfx942"}}
CARD = RTX | {"memory": {"bandwidth_gb_s": 1000, "total_bytes": 96 * GIB}}


@pytest.mark.parametrize(
    ("document", "version", "gemma3", "gemma4"),
    [
        (H100, "0.33", 256, 2496), (H100, "0.13.0", 256, None), (H100, "0.12.0", 0, None), (H100, "0.19.0", 256, 2496),
        (ROCM, "0.33", 256, 2496), (ROCM, "0.29.0", 0, 0), (ARC, "0.33", 0, 0),
    ],
)  # fmt: skip
def test_the_platform_and_the_release_decide_what_a_step_must_hold(
    document: dict[str, Any], version: str, gemma3: int, gemma4: int | None
) -> None:
    asked = {"engine": "vllm", "engine_version": version}
    assert item_tokens(case(GEMMA3, document, **asked)) == gemma3
    if gemma4 is not None:
        assert item_tokens(case(GEMMA4, document, **asked)) == gemma4
    assert item_tokens(case(QWEN3_8B, document, **asked)) == 0
    assert item_tokens(case(GEMMA3, document)) == 0


def test_a_step_is_at_least_the_longest_item() -> None:
    found = config(GEMMA4, CARD, engine="vllm", objective="latency")
    assert found.prefill_chunk_size < found.max_num_batched_tokens == 2496
    step = decision(found, "max_num_batched_tokens")
    assert step.rule == "the longest image or video, which is computed whole"
    assert step.would_change == "another model, or --max-num-batched-tokens"


def test_a_server_that_came_up_had_a_step_that_holds_the_longest_item() -> None:
    assert start_defaults(case(GEMMA4, RTX, engine="vllm"), 8192)["max_num_batched_tokens"] == 2496
    assert start_defaults(case(QWEN3_8B, RTX, engine="vllm"), 8192)["max_num_batched_tokens"] == 2048


def test_a_smaller_pinned_step_is_refused_with_the_number_and_what_would_boot() -> None:
    pins = {"max_num_batched_tokens": 2048}
    found = config(GEMMA4, H100, engine="vllm", pins=pins)
    assert found.budget.verdict == "invalid"
    assert found.warnings[0] == (
        "--max-num-batched-tokens 2048 is under 2496: vllm 0.33 computes an image or video of gemma-4-31B in one step"
    )
    assert found.alternatives[0].change == "--max-num-batched-tokens 2496"
    assert found.alternatives[0].verdict == "boots"
    larger = config(GEMMA4, H100, engine="vllm", pins={"max_num_batched_tokens": 2496})
    assert larger.budget.verdict == "boots"
    assert config(QWEN3_8B, H100, engine="vllm", pins=pins).budget.verdict == "boots"

"""The layout of the KV cache: groups, pages, blocks of a sequence."""

import pytest

from tests.unit.negotiate.cases import GIB, QWEN3_8B
from vllm_probe.models import catalogue
from vllm_probe.negotiate.kv import CacheGroup, Layout, layout
from vllm_probe.negotiate.requirements import analyse
from vllm_probe.negotiate.stages import stages_of


def laid(
    name: str, *, width: int = 2, ranks: int = 1, grouped: bool = True, stages: int = 1, states: int = 1
) -> Layout:
    spec = catalogue.load(name)
    stage = stages_of(spec.num_layers, stages)[0]
    return layout(analyse(spec), width, ranks, stage, 16, grouped=grouped, states=states)


@pytest.mark.parametrize(
    ("name", "groups", "layers"),
    [("gemma-3-4b", 7, 5), ("gemma-3-12b", 6, 8), ("gemma-3-27b", 7, 10), ("Llama-4-Scout", 4, 12),
     ("gpt-oss-20b", 2, 12), ("Qwen3-8B", 1, 36)],
)  # fmt: skip
def test_layers_of_two_kinds_share_pages_in_groups_as_large_as_the_rarer_one(
    name: str, groups: int, layers: int
) -> None:
    found, need = laid(name), analyse(catalogue.load(name))
    assert len(found.groups) == groups
    assert found.block_bytes == layers * 16 * need.kv_bytes_per_layer(2)


def test_a_windowed_group_keeps_its_window_and_a_step_and_a_chunked_one_no_block_more() -> None:
    sliding, chunked = CacheGroup("sliding", 1024, 16), CacheGroup("chunked", 8192, 16)
    assert sliding.blocks(8192, 8192) == 513
    assert sliding.blocks(131_072, 2048) == (1023 + 2048 + 15) // 16 + 1
    assert chunked.blocks(131_072, 8192) == 1024
    assert CacheGroup("full", None, 16).blocks(8193, 64) == 513
    assert CacheGroup("linear", None, 784).blocks(1 << 20, 64) == 1


def test_the_concurrency_that_vllm_logs_is_blocks_over_those_of_one_sequence() -> None:
    gemma = laid("gemma-3-12b")
    assert gemma.blocks(8192, 8192) == 3077
    assert 48_867 / gemma.blocks(8192, 8192) == pytest.approx(15.88, abs=0.005)
    assert gemma.held_tokens(48_867, 8192, 8192, "blocks") == 130_304


def test_blocks_of_attention_grow_until_they_hold_a_state() -> None:
    for width, tokens in ((2, 784), (1, 1568)):
        found = laid("Qwen3.5-27B", width=width)
        assert {group.block_tokens for group in found.groups} == {tokens}
        assert len(found.groups) == 4
        assert found.block_bytes == 16 * tokens * 2 * 4 * 256 * width


@pytest.mark.parametrize(("gib", "tokens"), [(5.98, 567_978), (6.01, 569_878)])
def test_two_states_a_sequence_give_the_tokens_that_a_hybrid_logged(gib: float, tokens: int) -> None:
    """github.com/noonghunna/club-3090, issues 612 and 652: Qwen3.6-35B-A3B on a 5090, vLLM 0.24, 8-bit cache."""
    found = laid("Qwen3.5-35B-A3B", width=1, states=2)
    blocks = round(gib * GIB) // found.block_bytes
    assert found.held_tokens(blocks, 131_072, 8192, "concurrency") == pytest.approx(tokens, abs=1)


def test_a_windowed_model_with_two_widths_holds_the_sequences_that_it_logged() -> None:
    """gemma-4-26B-A4B on a GB10 with an 8-bit cache of 54.14 GiB: 25.41 sequences of 131,072 tokens."""
    found = laid("gemma-4-26B-A4B", width=1)
    blocks = round(54.14 * GIB) // found.block_bytes
    assert blocks / found.blocks(131_072, 8192) == pytest.approx(25.41, abs=0.005)


def test_a_kind_with_smaller_entries_gets_more_tokens_a_block() -> None:
    found = laid("gemma-4-26B-A4B")
    need = analyse(catalogue.load("gemma-4-26B-A4B"))
    per_token = {kind.block_tokens for kind in found.groups}
    assert found.block_bytes == 5 * 16 * need.kv_bytes_per_layer(2)
    assert per_token == {16, 32}


def test_engines_without_groups_keep_every_layer_whole() -> None:
    found = laid("gemma-3-12b", grouped=False)
    assert found.groups == (CacheGroup("sliding", None, 16),) or found.groups[0].window is None
    assert found.block_bytes == 16 * 393_216


def test_eight_bits_hold_twice_the_tokens_and_ranks_share_heads_but_not_latents() -> None:
    assert laid("Qwen3-8B").block_bytes == 2 * laid("Qwen3-8B", width=1).block_bytes
    assert laid("Qwen3-8B", ranks=8).block_bytes * 8 == laid("Qwen3-8B").block_bytes
    assert laid("Qwen3-8B", ranks=16).block_bytes == laid("Qwen3-8B", ranks=8).block_bytes
    assert laid("DeepSeek-V3", ranks=8).block_bytes == 16 * 70_272
    assert laid("Qwen3-8B", stages=2).block_bytes * 2 == laid("Qwen3-8B").block_bytes


def test_stages_give_their_rest_to_the_last_but_one_backwards() -> None:
    assert [stage.layers for stage in stages_of(61, 4)] == [15, 15, 16, 15]
    assert [stage.layers for stage in stages_of(36, 2)] == [18, 18]
    assert [(stage.is_first, stage.is_last) for stage in stages_of(3, 3)] == [
        (True, False), (False, False), (False, True),
    ]  # fmt: skip
    assert stages_of(QWEN3_8B.num_layers, 1)[0].share == 1


def test_the_compressed_cache_of_deepseek_v4_takes_what_a_start_of_vllm_asked_for() -> None:
    """github.com/vllm-project/vllm, issue 44376, vLLM 0.22: 6.66 GiB for 30,000 tokens; 5.44 GiB hold 13,528."""
    found = laid("DeepSeek-V4-Flash", width=1, ranks=2)
    assert len(found.groups) == 5
    assert found.block_bytes * found.blocks(30_000, 16_384) / GIB == pytest.approx(6.66, abs=0.005)
    assert found.block_bytes * found.blocks(13_528, 16_384) / GIB == pytest.approx(5.44, abs=0.01)

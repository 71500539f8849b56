"""What a model needs, by arithmetic that gives the published totals."""

from dataclasses import replace

import pytest

from tests.unit.negotiate.cases import (
    BGE_M3,
    EMBEDDING,
    GIB,
    GLM_5_3,
    LLAMA_8B,
    MINILM,
    QWEN3_0_6B,
    QWEN3_8B,
    QWEN3_30B_A3B,
)
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.gemm import Gemm, WeightFormat
from vllm_probe.negotiate.requirements import Requirements, analyse
from vllm_probe.negotiate.stages import Stage, stages_of

BF16 = WeightFormat(method="none", width=2)
AWQ = WeightFormat(method="awq", width=2, bits=4.15625)
W8A8 = WeightFormat(method="w8a8", width=2, bits=8, row_bytes=4)


def whole_of(need: Requirements) -> Stage:
    return stages_of(need.spec.num_layers, 1)[0]


CHECKS: dict[str, tuple[float | None, float | None, float | None, int]] = {
    "Qwen3-0.6B": (1.110, 0.596, None, 114_688),
    "Qwen3-1.7B": (3.205, None, None, 114_688),
    "Qwen3-4B": (7.49, 4.022, None, 147_456),
    "Qwen3-8B": (15.26, 8.191, None, 147_456),
    "Qwen3-14B": (27.51, None, None, 163_840),
    "Qwen3-32B": (61.02, 32.76, None, 262_144),
    "Qwen3-30B-A3B": (56.87, 30.53, 3.0, 98_304),
    "Qwen3-235B-A22B": (437.9, None, None, 192_512),
    "Llama-3.1-8B": (14.96, 8.030, None, 131_072),
    "Llama-3.1-70B": (131.4, 70.55, None, 327_680),
    "Llama-3.1-405B": (756, None, None, 516_096),
    "Mistral-7B-v0.3": (13.50, None, None, 131_072),
    "gemma-3-4b": (7.23, None, None, 139_264),
    "gemma-3-12b": (21.92, None, None, 393_216),
    "gemma-3-27b": (50.31, None, None, 507_904),
    "DeepSeek-V3": (None, 671.03, 36.6, 70_272),
    "DeepSeek-V2-Lite": (29.26, None, None, 31_104),
    "Kimi-K2-Instruct": (None, 1026, None, 70_272),
    "GLM-4.5-Air": (None, 106.9, 12.8, 188_416),
    "GLM-4.6": (None, 352.8, 32.9, 376_832),
    "GLM-4.7-Flash": (None, None, None, 54_144),
    "GLM-5": (None, 743.9, 40.8, 89_856 + 78 * 132),
    "GLM-5.3": (None, 743.9, 40.8, 89_856 + 21 * 132),
    "gpt-oss-20b": (None, 20.91, 3.6, 49_152),
    "gpt-oss-120b": (None, 116.83, 5.1, 73_728),
    "phi-4": (27.31, 14.66, None, 204_800),
    "DeepSeek-R1-Distill-Qwen-7B": (14.19, 7.616, None, 57_344),
}
"""GiB in 16 bits, 1e9 parameters, 1e9 active ones, bytes of keys and values a token; published or verified totals."""


@pytest.mark.parametrize("name", CHECKS)
def test_weights_and_kv_bytes_are_the_published_ones(name: str) -> None:
    need, (gib, parameters, active, kv_bytes) = analyse(catalogue.load(name)), CHECKS[name]
    if gib:
        assert need.computed_parameters * 2 / GIB == pytest.approx(gib, rel=0.001)
    if parameters:
        assert need.num_parameters / 1e9 == pytest.approx(parameters, rel=0.001)
    if active:
        assert need.active_parameters / 1e9 == pytest.approx(active, rel=0.015)
    assert need.kv_bytes_per_token(2) == kv_bytes


@pytest.mark.parametrize("name", catalogue.entries())
def test_every_model_of_the_catalogue_has_its_requirements(name: str) -> None:
    spec = catalogue.load(name)
    need = analyse(spec)
    assert len({gemm.name for gemm in need.gemms}) == len(need.gemms)
    assert sum(gemm.weights for gemm in need.gemms) > 0.3 * need.num_parameters
    assert 0 < need.active_parameters <= need.num_parameters
    assert need.attention_flops(0) < need.attention_flops(1000) < need.attention_flops(1001)
    assert (need.kv_bytes_per_token(2) > 0) != spec.is_encoder


def test_the_embedding_model_has_its_exact_parameter_count_and_no_output_projection() -> None:
    need = analyse(EMBEDDING)
    assert need.num_parameters == 595_776_512
    assert need.flops_per_token(samples=True) == 2 * 28 * 15_728_640
    assert need.attention_flops(1) == 4 * 28 * 2048


def test_glm_5_has_744_billion_parameters_of_which_41_are_active() -> None:
    assert GLM_5_3.mla
    every_layer_indexes = replace(GLM_5_3, mla=replace(GLM_5_3.mla, num_indexers=78))
    need = analyse(every_layer_indexes)
    assert need.num_parameters / 1e9 == pytest.approx(743.9, abs=0.05)
    assert need.active_parameters / 1e9 == pytest.approx(40.8, abs=0.05)
    assert need.kv_bytes_per_token(2) == 89_856 + 78 * 132


def test_shared_indexers_are_counted_once() -> None:
    need = analyse(GLM_5_3)
    assert need.num_parameters / 1e9 == pytest.approx(743.4, abs=0.05)
    assert need.kv_bytes_per_token(2) == 89_856 + 21 * 132


def test_minilm_is_its_checkpoint_without_the_pooler_that_nothing_uses() -> None:
    assert analyse(MINILM).num_parameters == 22_713_216 - (384 * 384 + 384)


def test_an_encoder_keeps_no_keys_and_values() -> None:
    need = analyse(BGE_M3)
    assert need.num_parameters == pytest.approx(567e6, rel=0.001)
    assert need.kv_bytes_per_token(2) == 0


def test_the_linears_of_a_grouped_query_layer_are_listed_with_their_shapes() -> None:
    shapes = {gemm.name: (gemm.k, gemm.n, gemm.stored) for gemm in analyse(EMBEDDING).gemms}
    assert shapes == {
        "q": (1024, 2048, 28),
        "k": (1024, 1024, 28),
        "v": (1024, 1024, 28),
        "o": (2048, 1024, 28),
        "gate": (1024, 3072, 28),
        "up": (1024, 3072, 28),
        "down": (3072, 1024, 28),
    }


def test_intensity_grows_with_the_rows_towards_that_of_the_outputs() -> None:
    gemm = Gemm(name="q", k=1024, n=4096, stored=1, active=1)
    assert gemm.intensity(1, 2) == pytest.approx(1, abs=0.01)
    assert gemm.intensity(512, 2) == pytest.approx(2 * 512 * 1024 * 4096 / (2 * (1024 * 4096 + 512 * 5120)))
    assert gemm.intensity(10**9, 2) == pytest.approx(1024 * 4096 / 5120, rel=0.001)


@pytest.mark.parametrize(("spec", "weights", "gib"), [(LLAMA_8B, W8A8, 8.49), (QWEN3_8B, AWQ, 5.71)])
def test_quantized_weights_leave_embeddings_output_and_norms_alone(
    spec: ModelSpec, weights: WeightFormat, gib: float
) -> None:
    assert analyse(spec).weight_bytes(weights) / GIB == pytest.approx(gib, rel=0.01)


def test_exact_header_bytes_are_preferred_for_the_checkpoints_own_format_only() -> None:
    need = analyse(replace(MINILM, weight_bytes=90_852_864, num_parameters=22_713_216))
    assert need.weight_bytes(WeightFormat(method="none", width=4)) == 90_852_864
    assert need.weight_bytes(BF16) == 2 * 22_713_216
    assert analyse(QWEN3_8B).weight_bytes(BF16) == 2 * analyse(QWEN3_8B).computed_parameters


def test_what_is_stored_wider_than_it_is_computed_in_is_cast_as_it_is_loaded() -> None:
    need = analyse(replace(QWEN3_8B, weight_bytes=4 * 8_190_735_360, num_parameters=8_190_735_360))
    assert need.weight_bytes(BF16) == 2 * 8_190_735_360


def test_ranks_divide_layers_and_hold_replicated_parts_whole() -> None:
    need = analyse(QWEN3_8B)
    whole, half = need.rank_bytes(BF16, 1, whole_of(need)), need.rank_bytes(BF16, 2, whole_of(need))
    assert whole == need.weight_bytes(BF16)
    assert half / GIB == pytest.approx(15.26 / 2, abs=0.01)
    assert half > whole / 2
    glm = analyse(GLM_5_3)
    assert glm.rank_bytes(BF16, 64, whole_of(glm)) > glm.weight_bytes(BF16) / 64 + 1.5 * GIB


def test_a_stage_holds_its_layers_and_its_end() -> None:
    need = analyse(QWEN3_8B)
    end = 151_936 * 4096 * 2
    inside = need.weight_bytes(BF16) - 2 * end
    first, middle, last = (need.rank_bytes(BF16, 1, stage) for stage in stages_of(36, 3))
    assert first == last == pytest.approx(inside / 3 + end, rel=0.0001)
    assert middle == pytest.approx(inside / 3, rel=0.0001)


def test_a_tied_embedding_stands_on_both_ends_of_a_pipeline() -> None:
    tied = analyse(QWEN3_0_6B)
    first, last = (tied.rank_bytes(BF16, 1, stage) for stage in stages_of(28, 2))
    assert first == last > tied.weight_bytes(BF16) / 2


def test_keys_are_repeated_on_ranks_beyond_their_heads() -> None:
    need = analyse(QWEN3_30B_A3B)
    four, eight = (need.rank_bytes(BF16, ranks, whole_of(need)) for ranks in (4, 8))
    copied = (need.vector_parameters + 48 * 2048 * 128) * 2
    once = 2 * 48 * 2048 * 4 * 128 * 2
    assert eight == pytest.approx(copied + (4 * (four - copied) - once) / 8 + once / 4, rel=1e-6)


def test_layers_with_wider_heads_have_a_rotary_table_of_their_own() -> None:
    assert analyse(catalogue.load("gemma-4-31B")).rotary_bytes(2) == 262_144 * (256 + 512) * 2


def test_the_rotary_table_of_gemma_3_is_as_long_as_its_stretched_positions() -> None:
    gemma = analyse(catalogue.load("gemma-3-4b"))
    assert gemma.rotary_bytes(2) == 131_072 * (8 + 1) * 256 * 2
    assert analyse(LLAMA_8B).rotary_bytes(2) == 131_072 * 128 * 2
    assert analyse(MINILM).rotary_bytes(2) == 0
    tower, tables = gemma.spec.vision_parameters * 2, gemma.rotary_bytes(2)
    assert (gemma.computed_parameters * 2 + tower + tables) / GIB == pytest.approx(8.58, rel=0.002)


def test_latents_of_sparse_attention_keep_positions_in_16_bits() -> None:
    glm, deepseek = analyse(GLM_5_3), analyse(catalogue.load("DeepSeek-V3"))
    assert glm.kv_bytes_per_layer(1) == 512 + 4 * 4 + 64 * 2 == 656
    assert deepseek.kv_bytes_per_layer(1) == 576


def test_a_step_reads_only_the_experts_that_its_tokens_reach() -> None:
    need = analyse(QWEN3_30B_A3B)
    one, many = (need.read_bytes(rows, BF16, samples=True) for rows in (1, 1000))
    assert one / 2 == pytest.approx(need.active_parameters)
    assert many == pytest.approx(sum(gemm.stored_bytes(BF16) for gemm in need.gemms), rel=0.001)


def test_latent_keys_are_the_same_on_every_rank_and_heads_are_shared_out() -> None:
    assert analyse(GLM_5_3).kv_bytes_per_token(2, ranks=8) == analyse(GLM_5_3).kv_bytes_per_token(2)
    assert [analyse(QWEN3_8B).kv_bytes_per_token(2, ranks) for ranks in (1, 2, 8, 16)] == [
        147_456, 73_728, 18_432, 18_432,
    ]  # fmt: skip


def test_a_window_limits_what_is_computed_and_read_and_not_what_a_token_costs() -> None:
    gemma = catalogue.load("gemma-3-4b")
    need, whole = analyse(gemma), analyse(replace(gemma, attention_groups=()))
    assert need.kv_bytes_per_token(2) == whole.kv_bytes_per_token(2)
    assert need.kv_read_bytes(1024, 2) == whole.kv_read_bytes(1024, 2) == 1024 * 139_264
    entry = 139_264 // 34
    assert need.kv_read_bytes(10_240, 2) == entry * (5 * 10_240 + 29 * 1024)
    assert need.attention_flops(10_240) == 4 * 8 * 256 * (5 * 10_240 + 29 * 1024)


def test_an_indexer_scores_every_token_and_attends_to_the_best() -> None:
    need = analyse(GLM_5_3)
    heads, scores = 2 * 78 * 64 * (256 + 256), 2 * 21 * 32 * 128
    assert need.attention_flops(1000) == 1000 * (heads + scores)
    assert need.attention_flops(100_000) == 2048 * heads + 100_000 * scores
    assert need.kv_read_bytes(100_000, 2) == 2048 * 89_856 + 100_000 * 21 * 132


def test_a_compressed_cache_shares_its_entries() -> None:
    need = analyse(catalogue.load("DeepSeek-V4-Flash"))
    assert need.kv_bytes_per_token(2) == 1024 * 2 + 1024 * 21 // 4 + 1024 * 20 // 128 + 132 * 21 // 4
    assert need.num_parameters / 1e9 == pytest.approx(284.3, rel=0.001)
    entries = 2 * 128 + 21 * (128 + 512) + 20 * (128 + 51_200 / 128)
    assert need.kv_read_bytes(51_200, 2) == 1024 * entries + 132 * 21 * 51_200 / 4


def test_linear_attention_keeps_a_state_for_a_sequence_and_nothing_for_a_token() -> None:
    spec = catalogue.load("Qwen3.5-27B")
    need = analyse(spec)
    assert need.kv_bytes_per_token(2) == 16 * 2 * 4 * 256 * 2
    assert need.state_bytes(2) == 48 * (3 * 10_240 * 2 + 48 * 128 * 128 * 4)
    assert need.state_bytes(2, ranks=2) == need.state_bytes(2) // 2
    assert need.attention_flops(0) == 48 * (7 * 48 * 128 * 128 + 2 * 4 * 10_240)
    assert need.num_parameters / 1e9 == pytest.approx(26.9, rel=0.001)
    assert analyse(QWEN3_8B).state_bytes(2) == 0


def test_full_layers_with_heads_of_their_own_are_listed_apart() -> None:
    shapes = {gemm.name: (gemm.k, gemm.n, gemm.stored) for gemm in analyse(catalogue.load("gemma-4-26B-A4B")).gemms}
    assert [shapes[name] for name in ("q", "k", "v", "o")] == [
        (2816, 4096, 25), (2816, 2048, 25), (2816, 2048, 25), (4096, 2816, 25),
    ]  # fmt: skip
    assert [shapes[f"full_{name}"] for name in ("q", "k", "o")] == [(2816, 8192, 5), (2816, 1024, 5), (8192, 2816, 5)]
    assert "full_v" not in shapes


def test_projections_behind_pooling_are_weights_too() -> None:
    gemma = catalogue.load("embeddinggemma-300m")
    behind = analyse(gemma).num_parameters - analyse(replace(gemma, projections=())).num_parameters
    assert behind == 768 * 3072 + 3072 * 768


MXFP4 = WeightFormat(method="mxfp4", width=2, bits=4.25, parts=(("attention", None, 0),))


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.82), ("gpt-oss-120b", 60.77)])
def test_parts_that_a_checkpoint_leaves_alone_keep_their_width(name: str, gib: float) -> None:
    assert analyse(catalogue.load(name)).weight_bytes(MXFP4) / GIB == pytest.approx(gib, abs=0.01)


def test_glm_in_eight_bits_takes_what_eight_ranks_logged() -> None:
    fp8 = WeightFormat(method="fp8", width=2, bits=8, row_bytes=4)
    need = analyse(catalogue.load("GLM-5.3-FP8"))
    assert need.rank_bytes(fp8, 8, whole_of(need)) / GIB == pytest.approx(88.91, rel=0.01)

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
from vllm_probe.core.model import MlaShape, ModelSpec, MoeShape
from vllm_probe.negotiate.requirements import Gemm, WeightFormat, analyse

BF16 = WeightFormat(method="none", width=2)
AWQ = WeightFormat(method="awq", width=2, bits=4.15625)
W8A8 = WeightFormat(method="w8a8", width=2, bits=8, row_bytes=4)


@pytest.mark.parametrize(
    ("spec", "gib", "kv_bytes"),
    [
        (QWEN3_0_6B, 1.110, 114_688),
        (QWEN3_8B, 15.26, 147_456),
        (LLAMA_8B, 14.96, 131_072),
        (QWEN3_30B_A3B, 56.87, 98_304),
    ],
)
def test_weights_and_kv_bytes_are_the_published_ones(spec: ModelSpec, gib: float, kv_bytes: int) -> None:
    need = analyse(spec)
    assert need.weight_bytes(BF16) / GIB == pytest.approx(gib, abs=0.005)
    assert need.kv_bytes_per_token(2) == kv_bytes


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


def test_latent_attention_without_query_compression_or_indexer_is_deepseek_v2_lite() -> None:
    lite = replace(
        GLM_5_3,
        name="DeepSeek-V2-Lite",
        num_layers=27,
        hidden_size=2048,
        num_heads=16,
        num_kv_heads=16,
        head_dim=192,
        intermediate_size=10944,
        vocab_size=102400,
        moe=MoeShape(num_experts=64, num_active=6, num_shared=2, expert_intermediate=1408, num_dense_layers=1),
        mla=MlaShape(q_rank=None, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
    )
    need = analyse(lite)
    assert need.weight_bytes(BF16) / GIB == pytest.approx(29.26, abs=0.005)
    assert need.kv_bytes_per_token(2) == 31_104


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


def test_ranks_divide_layers_and_hold_replicated_parts_whole() -> None:
    need = analyse(QWEN3_8B)
    whole, half = need.rank_bytes(BF16, 1, 1), need.rank_bytes(BF16, 2, 1)
    assert whole == need.weight_bytes(BF16)
    assert half / GIB == pytest.approx(15.26 / 2, abs=0.01)
    assert half > whole / 2
    glm = analyse(GLM_5_3)
    assert glm.rank_bytes(BF16, 64, 1) > glm.weight_bytes(BF16) / 64 + 1.5 * GIB


def test_a_stage_holds_its_layers_and_half_of_the_ends() -> None:
    need = analyse(QWEN3_8B)
    ends = 2 * 151_936 * 4096 * 2
    assert need.rank_bytes(BF16, 1, 2) == pytest.approx((need.weight_bytes(BF16) - ends) / 2 + ends / 2, rel=0.001)


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

"""Public configs of models whose layers keep a state, in the keys that make their shape."""

from typing import Any

from tests.unit.models.families import decoder

GRANITE_TYPES = [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4
GRANITE_STATE: dict[str, Any] = {
    "model_type": "granitemoehybrid", "mamba_d_state": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "mamba_expand": 2, "mamba_d_conv": 4, "tie_word_embeddings": True, "layer_types": GRANITE_TYPES,
}  # fmt: skip
NEMOTRON_STATE: dict[str, Any] = {
    "model_type": "nemotron_h", "head_dim": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "expand": 2,
}  # fmt: skip
LFM2_TYPES = [
    "conv",
    "conv",
    "full_attention",
    *["conv", "conv", "full_attention"] * 2,
    *["conv", "full_attention"] * 3,
]
HYBRIDS: dict[str, dict[str, Any]] = {
    "granite-4.0-h-small": decoder(
        4096, 40, 32, 8, 768, 100352, shared_intermediate_size=1536, num_local_experts=72, num_experts_per_tok=10,
        mamba_n_heads=128, position_embedding_type="nope", **GRANITE_STATE,
    ),
    "granite-4.0-h-micro": decoder(
        2048, 40, 32, 8, 8192, 100352, shared_intermediate_size=8192, num_local_experts=0, num_experts_per_tok=0,
        mamba_n_heads=64, position_embedding_type="nope", **GRANITE_STATE,
    ),
    "granite-4.0-micro": decoder(
        2560, 40, 40, 8, 8192, 100352, shared_intermediate_size=8192, num_local_experts=0, num_experts_per_tok=0,
        mamba_n_heads=80, position_embedding_type="rope", **GRANITE_STATE | {"layer_types": ["attention"] * 40},
    ),
    "Bamba-9B": decoder(
        4096, 32, 32, 8, 14336, 128256, model_type="bamba", attn_layer_indices=[9, 18, 27], mamba_n_heads=128,
        mamba_d_head="auto", mamba_d_state=128, mamba_n_groups=1,
    ),
    "Jamba-v0.1": decoder(
        4096, 32, 32, 8, 14336, 65536, model_type="jamba", num_experts=16, num_experts_per_tok=2,
        expert_layer_offset=1, expert_layer_period=2, attn_layer_offset=4, attn_layer_period=8, mamba_d_state=16,
        mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256,
    ),
    "Nemotron-H-8B": decoder(
        4096, 52, 32, 8, 21504, 131072, mamba_num_heads=128,
        hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", **NEMOTRON_STATE,
    ),
    "Nemotron-3-Nano-30B-A3B": decoder(
        2688, 52, 32, 2, 1856, 131072, mamba_num_heads=64, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=6, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", **NEMOTRON_STATE,
    ),
    "mamba-2.8b": {
        "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "state_size": 16, "conv_kernel": 4,
        "expand": 2, "intermediate_size": 5120, "time_step_rank": 160, "vocab_size": 50280,
    },
    "falcon-mamba-7b": {
        "model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16,
        "conv_kernel": 4, "expand": 2, "time_step_rank": 256, "vocab_size": 65024, "tie_word_embeddings": False,
    },
    "Mamba-Codestral-7B": {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128, "conv_kernel": 4,
        "expand": 2, "num_heads": 128, "head_dim": 64, "n_groups": 8, "vocab_size": 32768,
    },
    "Falcon-H1-7B": decoder(
        3072, 44, 12, 2, 12288, 130049, model_type="falcon_h1", head_dim=128, mamba_d_ssm=3072, mamba_n_heads=24,
        mamba_d_head=128, mamba_d_state=256, mamba_n_groups=1, mamba_d_conv=4,
    ),
    "LFM2-1.2B": decoder(
        2048, 15, 32, 8, 12288, 65536, model_type="lfm2", conv_L_cache=3, layer_types=LFM2_TYPES
    ),
    "LFM2-8B-A1B": decoder(
        2048, 24, 32, 8, 7168, 65536, model_type="lfm2_moe", conv_L_cache=3, num_experts=32, num_experts_per_tok=4,
        moe_intermediate_size=1792, num_dense_layers=2, layer_types=["conv", "conv", "full_attention", "conv"] * 6,
    ),
}  # fmt: skip

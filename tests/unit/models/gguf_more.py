"""Small models of the architectures that GGUF and transformers call alike or nearly so."""

from typing import Any

from tests.unit.models.gguf_architectures import EXPERTS, HEAD, NORMED, common

DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 32,
    "max_position_embeddings": 4096,
}
SPARSE = DENSE | {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
BIASED: dict[str, Any] = {"blk.0.attn_q.bias": ("F32", (64,))}
SHARED = EXPERTS | {"expert_shared_count": 1, "leading_dense_block_count": 1}
SLIDES: dict[str, object] = {"attention.sliding_window": 16}
UNTIED = {"tie_word_embeddings": False}
LFM2 = DENSE | {
    "layer_types": ["conv", "conv", "full_attention", "conv"],
    "conv_L_cache": 3,
    "block_auto_adjust_ff_dim": False,
}
ONE_EACH = DENSE | {"num_key_value_heads": 4}
EARLY = {"first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 1}
CONVOLUTIONS: dict[str, object] = {"attention.head_count_kv": [0, 0, 2, 0], "shortconv.l_cache": 3}

MAMBA: dict[str, Any] = {"tie_word_embeddings": False, "layer_types": ["mamba", "attention", "mamba", "mamba"]}
GRANITE = (
    DENSE
    | MAMBA
    | {
        "model_type": "granitemoehybrid",
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "position_embedding_type": "nope",
    }
)
NEMOTRON = DENSE | {
    "model_type": "nemotron_h",
    "tie_word_embeddings": False,
    "conv_kernel": 4,
    "ssm_state_size": 16,
    "n_groups": 1,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
}
STATES: dict[str, object] = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 1,
    "ssm.time_step_rank": 8,
    "ssm.inner_size": 128,
    "attention.head_count_kv": [0, 2, 0, 0],
}

PURE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "state_size": 16,
    "conv_kernel": 4,
    "expand": 2,
    "vocab_size": 32,
    "max_position_embeddings": 1 << 20,
}
WITHOUT: dict[str, object] = {
    "block_count": 4,
    "embedding_length": 64,
    "context_length": 1 << 20,
    "feed_forward_length": 0,
    "attention.head_count": 0,
}

PLAIN = (
    "apertus", "arcee", "baichuan", "chatglm", "granite", "internlm2", "minicpm", "nemotron", "olmo", "seed_oss",
    "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
"""Called alike, of attention and a feed-forward with nothing else to say; all but some tie their embeddings."""

MORE: dict[str, tuple[dict[str, Any], str, dict[str, object], dict[str, Any]]] = {
    **{
        kind: (DENSE | UNTIED | {"model_type": kind}, kind, common(DENSE), HEAD | (NORMED if kind == "apertus" else {}))
        for kind in PLAIN
    },
    "falcon-7b": (
        DENSE | {"model_type": "falcon", "multi_query": True, "num_key_value_heads": None},
        "falcon",
        common(DENSE) | {"attention.head_count_kv": 1},
        {},
    ),
    "gpt2": (ONE_EACH | {"model_type": "gpt2"}, "gpt2", common(ONE_EACH), {}),
    "bloom": (ONE_EACH | {"model_type": "bloom", "seq_length": 4096}, "bloom", common(ONE_EACH), {}),
    "mpt": (ONE_EACH | {"model_type": "mpt"}, "mpt", common(ONE_EACH), {}),
    "starcoder": (
        DENSE | {"model_type": "gpt_bigcode", "multi_query": True},
        "starcoder",
        common(DENSE) | {"attention.head_count_kv": 1},
        {},
    ),
    "gptneox": (ONE_EACH | UNTIED | {"model_type": "gpt_neox"}, "gptneox", common(ONE_EACH), HEAD),
    "phi2": (DENSE | UNTIED | {"model_type": "phi"}, "phi2", common(DENSE), HEAD | BIASED),
    "qwen": (DENSE | UNTIED | {"model_type": "qwen", "seq_length": 4096}, "qwen", common(DENSE), HEAD),
    "command-r": (DENSE | {"model_type": "cohere"}, "command-r", common(DENSE), {}),
    "cohere2": (DENSE | {"model_type": "cohere2", "sliding_window": 16}, "cohere2", common(DENSE, **SLIDES), {}),
    "exaone": (DENSE | UNTIED | {"model_type": "exaone"}, "exaone", common(DENSE), HEAD),
    "exaone4": (
        DENSE | UNTIED | {"model_type": "exaone4", "sliding_window": 16, "sliding_window_pattern": "LLLG"},
        "exaone4",
        common(DENSE, **SLIDES),
        HEAD | NORMED,
    ),
    "ernie4_5": (DENSE | {"model_type": "ernie4_5", "head_dim": 16}, "ernie4_5", common(DENSE), {}),
    "olmo2": (DENSE | UNTIED | {"model_type": "olmo2"}, "olmo2", common(DENSE), HEAD | NORMED),
    "olmo3": (
        DENSE | UNTIED | {"model_type": "olmo3", "sliding_window": 16},
        "olmo2",
        common(DENSE, **SLIDES, **{"attention.sliding_window_pattern": [True, True, True, False]}),
        HEAD | NORMED,
    ),
    "hunyuan-dense": (
        DENSE | UNTIED | {"model_type": "hunyuan_v1_dense"}, "hunyuan-dense", common(DENSE), HEAD | NORMED
    ),
    "qwen2vl": (DENSE | UNTIED | {"model_type": "qwen2_vl_text"}, "qwen2vl", common(DENSE), HEAD | BIASED),
    "qwen3vl": (DENSE | UNTIED | {"model_type": "qwen3_vl_text"}, "qwen3vl", common(DENSE), HEAD | NORMED),
    "qwen3vlmoe": (
        SPARSE | UNTIED | {"model_type": "qwen3_vl_moe_text", "num_experts": 8},
        "qwen3vlmoe",
        common(DENSE, **EXPERTS),
        HEAD | NORMED,
    ),
    "granitemoe": (
        DENSE
        | {"model_type": "granitemoe", "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": True},
        "granitemoe",
        common(DENSE, expert_count=8, expert_used_count=2),
        {},
    ),
    "olmoe": (
        DENSE | UNTIED | {"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2},
        "olmoe",
        common(DENSE, expert_count=8, expert_used_count=2),
        HEAD | NORMED,
    ),
    "phimoe": (
        DENSE | UNTIED | {"model_type": "phimoe", "num_local_experts": 8, "num_experts_per_tok": 2},
        "phimoe",
        common(DENSE, expert_count=8, expert_used_count=2),
        HEAD,
    ),
    "deepseek": (
        SPARSE | UNTIED | EARLY | {"model_type": "deepseek"},
        "deepseek",
        common(DENSE, **SHARED),
        HEAD,
    ),
    "dots1": (
        SPARSE | UNTIED | EARLY | {"model_type": "dots1"},
        "dots1",
        common(DENSE, **SHARED),
        HEAD | NORMED,
    ),
    "bailingmoe2": (
        SPARSE
        | UNTIED
        | {"model_type": "bailing_moe_v2", "num_experts": 8, "num_shared_experts": 2, "use_qk_norm": True}
        | {"first_k_dense_replace": 1, "moe_shared_expert_intermediate_size": 24},
        "bailingmoe2",
        common(DENSE, **SHARED, expert_shared_feed_forward_length=48) | {"expert_shared_count": 2},
        HEAD | NORMED,
    ),
    "bailingmoe": (
        SPARSE | UNTIED | {"model_type": "bailing_moe", "num_experts": 8, "num_shared_experts": 2},
        "bailingmoe",
        common(DENSE, **EXPERTS, expert_shared_count=2),
        HEAD,
    ),
    "ernie4_5-moe": (
        SPARSE | {"model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1}
        | {"tie_word_embeddings": True, "moe_layer_start_index": 0},
        "ernie4_5-moe",
        common(DENSE, **EXPERTS, expert_shared_count=1, interleave_moe_layer_step=1),
        {},
    ),
    "hunyuan-moe": (
        SPARSE | {"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2] * 4, "tie_word_embeddings": True},
        "hunyuan-moe",
        common(DENSE, **EXPERTS, expert_shared_count=1),
        NORMED,
    ),
    "granitehybrid": (
        GRANITE | {"shared_intermediate_size": 96},
        "granitehybrid",
        common(DENSE, expert_shared_feed_forward_length=96) | STATES,
        HEAD,
    ),
    "granitehybrid of experts": (
        GRANITE | {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 192},
        "granitehybrid",
        common(DENSE, expert_count=8, expert_used_count=2, expert_shared_feed_forward_length=192) | STATES,
        HEAD,
    ),
    "falcon-h1": (
        DENSE
        | UNTIED
        | {"model_type": "falcon_h1", "mamba_d_ssm": 128, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_n_groups": 1}
        | {"mamba_n_heads": 8, "mamba_d_head": 16, "head_dim": 16},
        "falcon-h1",
        common(DENSE) | STATES | {"attention.head_count_kv": 2, "attention.key_length": 16},
        HEAD,
    ),
    "mamba": (
        PURE | {"model_type": "mamba", "time_step_rank": 4},
        "mamba",
        WITHOUT | STATES | {"ssm.time_step_rank": 4, "attention.head_count_kv": 0},
        {},
    ),
    "mamba2": (
        PURE | {"model_type": "mamba2", "num_heads": 8, "head_dim": 16, "n_groups": 1, "tie_word_embeddings": True},
        "mamba2",
        WITHOUT | STATES | {"attention.head_count_kv": 0},
        {},
    ),
    "nemotron_h": (
        NEMOTRON | {"hybrid_override_pattern": "M*-M"},
        "nemotron_h",
        common(DENSE) | STATES | {"feed_forward_length": [0, 0, 96, 0]},
        HEAD,
    ),
    "nemotron_h_moe": (
        NEMOTRON
        | {"hybrid_override_pattern": "M*EM", "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 48},
        "nemotron_h_moe",
        common(DENSE, **EXPERTS, expert_shared_count=1, expert_shared_feed_forward_length=48)
        | STATES
        | {"feed_forward_length": [0, 0, 24, 0]},
        HEAD,
    ),
    "lfm2": (LFM2 | {"model_type": "lfm2"}, "lfm2", common(DENSE) | CONVOLUTIONS, NORMED),
    "lfm2moe": (
        LFM2 | {"model_type": "lfm2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
        | {"num_dense_layers": 2},
        "lfm2moe",
        common(DENSE, **EXPERTS, leading_dense_block_count=2) | CONVOLUTIONS,
        NORMED,
    ),
}  # fmt: skip

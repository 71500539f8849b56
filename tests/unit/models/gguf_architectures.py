"""Metadata and tensors of a small GGUF model of each architecture, beside the config.json of the same shape."""

from pathlib import Path
from typing import Any

from tests.unit.models.folders import (
    BERT,
    GEMMA3,
    GEMMA4,
    GLM,
    GPT_OSS,
    LLAMA4,
    QWEN3,
    QWEN3_5,
    write,
)
from tests.unit.models.gguf_files import model
from vllm_probe.core.model import ModelSpec
from vllm_probe.models.gguf_model import read_gguf_model

TABLE: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F16", (32, 64))}
HEAD: dict[str, tuple[str, tuple[int, ...]]] = {"output.weight": ("F16", (32, 64))}
NORMED: dict[str, tuple[str, tuple[int, ...]]] = {"blk.0.attn_q_norm.weight": ("F32", (8,))}
MISTRAL = QWEN3 | {"model_type": "mistral", "architectures": None, "sliding_window": 16, "use_sliding_window": True}
NOMIC: dict[str, Any] = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "n_layer": 2,
    "n_positions": 2048,
    "layer_norm_epsilon": 1e-12,
    "rotary_emb_base": 1000,
    "type_vocab_size": 2,
    "vocab_size": 32,
}
GEMMA2: dict[str, Any] = {
    "model_type": "gemma2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 8192,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 16,
    "vocab_size": 32,
}
QWEN2_MOE: dict[str, Any] = {
    "model_type": "qwen2_moe",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 8192,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "shared_expert_intermediate_size": 96,
    "vocab_size": 32,
}
DEEPSEEK2: dict[str, Any] = {key: value for key, value in GLM.items() if not key.startswith("index")} | {
    "model_type": "deepseek_v2",
    "architectures": None,
}


def common(config: dict[str, Any], **others: object) -> dict[str, object]:
    """What every decoder states, in the keys of GGUF."""
    text = config.get("text_config", config)
    stated = {
        "block_count": text["num_hidden_layers"],
        "embedding_length": text["hidden_size"],
        "context_length": text.get("max_position_embeddings", 131072),
        "feed_forward_length": text.get("intermediate_size"),
        "attention.head_count": text.get("num_attention_heads"),
        "attention.head_count_kv": text.get("num_key_value_heads"),
        "attention.key_length": text.get("head_dim"),
        "attention.value_length": text.get("head_dim"),
        **others,
    }
    return {key: value for key, value in stated.items() if value is not None}


LATENT: dict[str, object] = {
    "attention.key_length": 20,
    "attention.value_length": 16,
    "attention.key_length_mla": 16,
    "attention.value_length_mla": 16,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 24,
    "attention.kv_lora_rank": 16,
    "rope.dimension_count": 4,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 32,
    "leading_dense_block_count": 1,
}
OLDER: dict[str, object] = {"attention.key_length_mla": None, "attention.key_length": 16, "attention.head_count_kv": 4}
EXPERTS: dict[str, object] = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 24}

PAIRS: dict[str, tuple[dict[str, Any], str, dict[str, object], dict[str, tuple[str, tuple[int, ...]]]]] = {
    "qwen3": (QWEN3, "qwen3", common(QWEN3), NORMED),
    "llama": (QWEN3 | {"model_type": "llama", "architectures": None}, "llama", common(QWEN3), {}),
    "qwen2": (
        QWEN3 | {"model_type": "qwen2", "architectures": None, "attention_bias": True},
        "qwen2",
        common(QWEN3),
        {"blk.0.attn_q.bias": ("F32", (32,))},
    ),
    "mistral": (MISTRAL, "mistral3", common(QWEN3, **{"attention.sliding_window": 16}), {}),
    "mixtral": (
        QWEN3 | {"model_type": "mixtral", "architectures": None, "num_local_experts": 8, "num_experts_per_tok": 2},
        "llama",
        common(QWEN3, expert_count=8, expert_used_count=2),
        {},
    ),
    "qwen3moe": (
        QWEN3
        | {"model_type": "qwen3_moe", "architectures": None, "num_experts": 8, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 24, "tie_word_embeddings": False},
        "qwen3moe",
        common(QWEN3, **EXPERTS),
        NORMED | HEAD,
    ),
    "qwen2moe": (
        QWEN2_MOE,
        "qwen2moe",
        common(QWEN2_MOE, **EXPERTS, expert_shared_feed_forward_length=96),
        {"blk.0.attn_q.bias": ("F32", (64,))} | HEAD,
    ),
    "qwen35moe": (
        QWEN3_5,
        "qwen35moe",
        common(
            QWEN3_5,
            **EXPERTS,
            **{
                "expert_shared_feed_forward_length": 24,
                "ssm.conv_kernel": 4,
                "ssm.state_size": 8,
                "ssm.group_count": 2,
                "ssm.time_step_rank": 6,
                "ssm.inner_size": 48,
                "full_attention_interval": 4,
                "feed_forward_length": 24,
            },
        ),
        HEAD,
    ),
    "gemma2": (GEMMA2, "gemma2", common(GEMMA2, **{"attention.sliding_window": 16}), {}),
    "gemma3": (
        GEMMA3,
        "gemma3",
        common(GEMMA3)
        | {
            "attention.head_count": 8,
            "attention.head_count_kv": 4,
            "attention.key_length": 256,
            "attention.value_length": 256,
            "attention.sliding_window": 16,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        NORMED,
    ),
    "gemma4": (
        GEMMA4,
        "gemma4",
        common(GEMMA4)
        | EXPERTS
        | {
            "attention.head_count_kv": [2, 2, 1],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "attention.sliding_window": 16,
            "attention.sliding_window_pattern": [True, True, False],
            "attention.shared_kv_layers": 0,
        },
        NORMED
        | {"blk.0.attn_k.weight": ("F16", (32, 64)), "blk.0.attn_v.weight": ("F16", (32, 64))}
        | {"blk.2.attn_k.weight": ("F16", (32, 64))},
    ),
    "gpt-oss": (
        GPT_OSS | {"quantization_config": None},
        "gpt-oss",
        common(GPT_OSS, **{"attention.sliding_window": 16}, expert_count=8, expert_used_count=2)
        | {"expert_feed_forward_length": 40},
        HEAD | {"blk.0.attn_q.bias": ("F32", (32,))},
    ),
    "llama4": (
        LLAMA4 | {"text_config": LLAMA4["text_config"] | {"attention_chunk_size": 8192}},
        "llama4",
        common(LLAMA4, expert_count=4, expert_used_count=1, interleave_moe_layer_step=1)
        | {"feed_forward_length": 64, "expert_feed_forward_length": 32},
        HEAD,
    ),
    "glm4": (QWEN3 | {"model_type": "glm4", "architectures": None}, "glm4", common(QWEN3), {}),
    "glm4moe": (
        QWEN2_MOE
        | {"model_type": "glm4_moe", "n_shared_experts": 1, "first_k_dense_replace": 1}
        | {"shared_expert_intermediate_size": None},
        "glm4moe",
        common(QWEN2_MOE, **EXPERTS, expert_shared_count=1, leading_dense_block_count=1, nextn_predict_layers=1)
        | {"block_count": 5},
        HEAD | {"blk.4.nextn.eh_proj.weight": ("F16", (64, 128))},
    ),
    "glm-dsa": (
        {key: value for key, value in GLM.items() if key != "indexer_types"} | {"index_topk": 64},
        "glm-dsa",
        common(GLM)
        | LATENT
        | {"attention.indexer.head_count": 4, "attention.indexer.key_length": 8, "attention.indexer.top_k": 64},
        HEAD,
    ),
    "deepseek2": (DEEPSEEK2, "deepseek2", common(GLM) | LATENT, HEAD),
    "deepseek2 of 2024": (
        DEEPSEEK2,
        "deepseek2",
        {key: value for key, value in (common(GLM) | LATENT | OLDER).items() if value is not None},
        HEAD,
    ),
    "bert": (
        BERT,
        "bert",
        common(BERT, **{"attention.causal": False, "pooling_type": 2}),
        {"token_types.weight": ("F32", (2, 8))},
    ),
    "nomic": (
        NOMIC,
        "nomic-bert",
        {
            "block_count": 2,
            "embedding_length": 64,
            "context_length": 2048,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.causal": False,
            "attention.layer_norm_epsilon": 1e-12,
            "rope.freq_base": 1000.0,
            "pooling_type": 2,
        },
        {"token_types.weight": ("F32", (2, 64))},
    ),
}


def read(path: Path, architecture: str, values: dict[str, object], tensors: dict[str, Any], **others: Any) -> ModelSpec:
    name = "bert" if architecture == "bert" else "gpt2"
    content = model(architecture, values, TABLE | tensors, **{"tokenizer__ggml__model": name, **others})
    return read_gguf_model(write(path, {"m.gguf": content}) / "m.gguf")

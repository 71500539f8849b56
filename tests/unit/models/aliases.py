"""Configs of model types that are made of the layers of others, with the parameters that their cards state."""

from typing import Any

from tests.unit.models.families import decoder

MIMO = decoder(
    4096, 36, 32, 8, 11008, 151680, model_type="mimo", architectures=["MiMoForCausalLM"], head_dim=128,
    attention_bias=True, sliding_window=32768, use_sliding_window=False, num_nextn_predict_layers=1,
)  # fmt: skip
"""XiaomiMiMo/MiMo-7B-Base: config.json in aiconfigurator_core 0.12.0 (PyPI)."""

ROUNDED: dict[str, tuple[dict[str, Any], str]] = {
    "deepseek-moe-16b": (
        decoder(
            2048, 28, 16, 16, 10944, 102400, model_type="deepseek", architectures=["DeepseekForCausalLM"],
            moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
            first_k_dense_replace=1, moe_layer_freq=1,
        ),
        "16.4",
    ),
    "Qwen-7B": (
        {
            "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "intermediate_size": 22016, "vocab_size": 151936, "kv_channels": 128,
            "max_position_embeddings": 32768, "seq_length": 8192, "layer_norm_epsilon": 1e-06, "no_bias": True,
        },
        "7.72",
    ),
    "MiniCPM-2B": (
        decoder(2304, 40, 36, 36, 5760, 122753, model_type="minicpm", architectures=["MiniCPMForCausalLM"]), "2.72"
    ),
    "Ling-lite": (
        decoder(
            2048, 28, 16, 4, 5632, 126464, model_type="bailing_moe", architectures=["BailingMoeForCausalLM"],
            head_dim=128, moe_intermediate_size=1408, num_experts=64, num_shared_experts=2, num_experts_per_tok=6,
            first_k_dense_replace=0, use_bias=False, use_qkv_bias=False,
        ),
        "16.8",
    ),
    "Ring-mini-2.0": (
        decoder(
            2048, 20, 16, 4, 5120, 157184, model_type="bailing_moe_v2", architectures=["BailingMoeV2ForCausalLM"],
            head_dim=128, moe_intermediate_size=512, num_experts=256, num_shared_experts=1, num_experts_per_tok=8,
            moe_shared_expert_intermediate_size=512, first_k_dense_replace=1, use_qk_norm=True, use_qkv_bias=False,
        ),
        "16.3",
    ),
    "nomic-embed-text-v2-moe": (
        {
            "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
            "n_inner": 3072, "n_positions": 2048, "num_experts": 8, "moe_top_k": 2, "moe_every_n_layers": 2,
            "vocab_size": 250048, "activation_function": "gelu", "type_vocab_size": 1, "qkv_proj_bias": True,
        },
        "0.475",
    ),
    "jina-embeddings-v3, its adapters merged": (
        {
            "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
            "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 250002,
            "max_position_embeddings": 8194, "type_vocab_size": 1, "position_embedding_type": "rotary",
            "rotary_emb_base": 20000.0, "pad_token_id": 1,
        },
        "0.56",
    ),
    "llama-nemotron-embed-1b": (
        decoder(
            2048, 16, 32, 8, 8192, 128256, model_type="llama_bidirec", architectures=["LlamaBidirectionalModel"],
            pooling="avg",
        ),
        "1.24",
    ),
}  # fmt: skip
"""Parameters in thousands of millions, as far as they are stated."""

_INTERN_VIT = {
    "model_type": "intern_vit_6b", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096,
    "patch_size": 14, "image_size": 448,
}  # fmt: skip
_QWEN_7B = decoder(3584, 28, 28, 4, 18944, 152064, model_type="qwen2", tie_word_embeddings=False)

MULTIMODAL: dict[str, tuple[dict[str, Any], str]] = {
    "InternVL3-8B": (
        {
            "model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "vision_config": _INTERN_VIT,
            "llm_config": _QWEN_7B | {"vocab_size": 151674}, "downsample_ratio": 0.5, "dtype": "bfloat16",
        },
        "7.94",
    ),
    "Qwen2.5-Omni-7B, what thinks": (
        {
            "model_type": "qwen2_5_omni", "architectures": ["Qwen2_5OmniModel"], "dtype": "bfloat16",
            "talker_config": {"model_type": "qwen2_5_omni_talker"},
            "thinker_config": {
                "model_type": "qwen2_5_omni_thinker", "text_config": _QWEN_7B | {"model_type": "qwen2_5_omni_text"},
                "audio_config": {"model_type": "qwen2_5_omni_audio_encoder", "d_model": 1280, "encoder_layers": 32},
                "vision_config": {
                    "model_type": "qwen2_5_omni_vision_encoder", "depth": 32, "hidden_size": 1280,
                    "intermediate_size": 3420, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
                },
            },
        },
        "8.93",
    ),
    "Phi-3.5-vision": (
        decoder(
            3072, 32, 32, 32, 8192, 32064, model_type="phi3_v", architectures=["Phi3VForCausalLM"],
            sliding_window=262144, img_processor={"model_name": "openai/clip-vit-large-patch14-336"},
        ),
        "4.15",
    ),
    "MiniCPM-V-2_6": (
        decoder(
            3584, 28, 28, 4, 18944, 151666, model_type="minicpmv", architectures=["MiniCPMV"], query_num=64,
            vision_config={
                "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "image_size": 980,
                "num_hidden_layers": 27, "patch_size": 14,
            },
        ),
        "8.10",
    ),
}  # fmt: skip
"""Models that see or hear, with the parameters of all of their parts."""

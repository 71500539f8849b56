"""Public configs of model types beyond the catalogue's, and the parameters that they are published with."""

from typing import Any


def decoder(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, vocab: int, **more: Any) -> dict[str, Any]:
    """The keys that most configs share."""
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        **more,
    }


QWEN_TOWER = {"depth": 32, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "granite-3.1-8b": decoder(4096, 40, 32, 8, 12800, 49155, model_type="granite", tie_word_embeddings=True),
    "granite-3.1-2b": decoder(2048, 40, 32, 8, 8192, 49155, model_type="granite", tie_word_embeddings=True),
    "granite-3.1-3b-a800m": decoder(
        1536, 32, 24, 8, 512, 49155, model_type="granitemoe", tie_word_embeddings=True, num_local_experts=40,
        num_experts_per_tok=8,
    ),
    "olmo-2-7b": decoder(4096, 32, 32, 32, 11008, 100352, model_type="olmo2"),
    "phi-2": decoder(2560, 32, 32, 32, 10240, 51200, model_type="phi", max_position_embeddings=2048),
    "phi-3.5-moe": decoder(
        4096, 32, 32, 8, 6400, 32064, model_type="phimoe", num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True, sliding_window=131072, max_position_embeddings=131072,
    ),
    "opt-125m": {
        "model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072,
        "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "torch_dtype": "float16",
    },
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
    },
    "falcon-40b": {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_kv_heads": 8, "vocab_size": 65024, "new_decoder_architecture": True, "parallel_attn": True,
    },
    "c4ai-command-r-v01": decoder(
        8192, 40, 64, 64, 22528, 256000, model_type="cohere", max_position_embeddings=8192, model_max_length=131072,
    ),
    "c4ai-command-r7b": decoder(4096, 32, 32, 8, 14336, 256000, model_type="cohere2", head_dim=128),
    "starcoder2-7b": decoder(4608, 32, 36, 4, 18432, 49152, model_type="starcoder2", sliding_window=4096),
    "stablelm-2-1.6b": decoder(2048, 24, 32, 32, 5632, 100352, model_type="stablelm", use_qkv_bias=True),
    "glm-4-9b-chat-hf": decoder(4096, 40, 32, 2, 13696, 151552, model_type="glm", head_dim=128),
    "qwen2.5-vl-7b": decoder(
        3584, 28, 28, 4, 18944, 152064, model_type="qwen2_5_vl",
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        vision_config=QWEN_TOWER | {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
    ),
    "qwen2-vl-7b": decoder(
        3584, 28, 28, 4, 18944, 152064, model_type="qwen2_vl", architectures=["Qwen2VLForConditionalGeneration"],
        vision_config=QWEN_TOWER | {"embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4},
    ),
    "GLM-4.1V-9B": {
        "model_type": "glm4v", "architectures": ["Glm4vForConditionalGeneration"],
        "text_config": decoder(
            4096, 40, 32, 2, 13696, 151552, model_type="glm4v_text", tie_word_embeddings=False,
        ),
        "vision_config": QWEN_TOWER | {
            "depth": 24, "hidden_size": 1536, "num_heads": 12, "intermediate_size": 13696, "out_hidden_size": 4096,
            "image_size": 336,
        },
    },
    "GLM-4.5V": {
        "model_type": "glm4v_moe", "architectures": ["Glm4vMoeForConditionalGeneration"],
        "text_config": decoder(
            4096, 4, 96, 8, 10944, 151552, model_type="glm4v_moe_text", head_dim=128, moe_intermediate_size=1408,
            n_routed_experts=32, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1,
            attention_bias=True, tie_word_embeddings=False,
        ),
        "vision_config": QWEN_TOWER | {
            "depth": 24, "hidden_size": 1536, "num_heads": 12, "intermediate_size": 10944, "out_hidden_size": 4096,
            "image_size": 336,
        },
    },
    "qwen3-vl-30b-a3b": {
        "model_type": "qwen3_vl_moe",
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "text_config": decoder(
            2048, 48, 32, 4, 6144, 151936, model_type="qwen3_vl_moe_text", head_dim=128, num_experts=128,
            num_experts_per_tok=8, moe_intermediate_size=768, tie_word_embeddings=False,
        ),
        "vision_config": {
            "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "out_hidden_size": 2048,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": [8, 16, 24],
            "num_position_embeddings": 2304,
        },
    },
}  # fmt: skip
"""config.json of each, in the keys that make its shape."""

OF_OWN_CODE: dict[str, tuple[dict[str, Any], int]] = {
    "internlm2_5-7b-chat": (decoder(4096, 32, 32, 8, 14336, 92544, model_type="internlm2", bias=False), 7_737_708_544),
    "glm-4-9b-chat": (
        {
            "model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096, "num_layers": 40,
            "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
            "ffn_hidden_size": 13696, "padded_vocab_size": 151552, "vocab_size": 151552, "seq_length": 131072,
            "add_qkv_bias": True, "layernorm_epsilon": 1.5625e-07, "torch_dtype": "bfloat16",
        },
        9_399_951_360,
    ),
    "Baichuan2-13B-Chat": (
        {
            "model_type": "baichuan", "architectures": ["BaichuanForCausalLM"], "hidden_size": 5120,
            "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13696, "vocab_size": 125696,
            "model_max_length": 4096, "torch_dtype": "bfloat16",
        },
        13_896_668_160,
    ),
    "phi-2": (CONFIGS["phi-2"], 2_779_683_840),
    "falcon-7b": (CONFIGS["falcon-7b"], 6_921_720_704),
    "opt-125m": (CONFIGS["opt-125m"], 125_239_296),
}  # fmt: skip
"""Configs with the parameters of their safetensors or of their model cards; most need code that transformers lacks."""

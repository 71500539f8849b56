"""Public configs of further decoders and encoders, in the keys that make their shape."""

from typing import Any

from tests.unit.models.families import decoder

GEMMA_4: dict[str, Any] = {
    "model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
    "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "tie_word_embeddings": True,
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "afm-4.5b": decoder(2560, 36, 20, 4, 18432, 128004, model_type="arcee", eos_token_id=2),
    "apertus-8b": decoder(4096, 32, 32, 8, 21504, 131072, model_type="apertus"),
    "bloom-560m": {
        "model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": 1024, "n_layer": 24,
        "num_attention_heads": 16, "n_head": 16, "vocab_size": 250880,
    },
    "dbrx": {
        "model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "d_model": 6144, "n_heads": 48, "n_layers": 40,
        "max_seq_len": 32768, "vocab_size": 100352, "tie_word_embeddings": False,
        "attn_config": {"kv_n_heads": 8, "rope_theta": 500000, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "dots.llm1": decoder(
        4096, 12, 32, 32, 10944, 152064, model_type="dots1", head_dim=128, n_routed_experts=128, n_shared_experts=2,
        num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1,
        layer_types=["full_attention"] * 12,
    ),
    "ERNIE-4.5-0.3B": decoder(1024, 18, 16, 2, 3072, 103424, model_type="ernie4_5", head_dim=128),
    "ERNIE-4.5-21B-A3B": decoder(
        2560, 28, 20, 4, 12288, 103424, model_type="ernie4_5_moe", tie_word_embeddings=True, moe_num_experts=64,
        moe_k=6, moe_num_shared_experts=2, moe_intermediate_size=1536, moe_layer_start_index=1,
        moe_layer_end_index=27, moe_layer_interval=1,
    ),
    "EXAONE-3.5-7.8B": decoder(4096, 32, 32, 8, 14336, 102400, model_type="exaone"),
    "EXAONE-4.0-32B": decoder(
        5120, 64, 40, 8, 27392, 102400, model_type="exaone4", sliding_window=4096,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 16,
    ),
    "K-EXAONE": decoder(
        6144, 8, 64, 8, 18432, 153600, model_type="exaone_moe", head_dim=128, num_experts=128, num_experts_per_tok=8,
        num_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=1, sliding_window=128,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 2, mlp_layer_types=["dense", *["sparse"] * 7],
    ),
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12,
        "vocab_size": 50257, "n_positions": 1024,
    },
    "starcoder": {
        "model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_embd": 6144, "n_layer": 40,
        "n_head": 48, "n_inner": 24576, "vocab_size": 49152, "n_positions": 8192, "multi_query": True,
    },
    "pythia-160m": decoder(768, 12, 12, 12, 3072, 50304, model_type="gpt_neox", max_position_embeddings=2048),
    "gpt-j-6b": {
        "model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400, "n_positions": 2048,
    },
    "granite-shared": decoder(
        4096, 8, 32, 8, 512, 49155, model_type="granitemoeshared", num_local_experts=62, num_experts_per_tok=6,
        shared_intermediate_size=1024, tie_word_embeddings=True,
    ),
    "Hunyuan-7B": decoder(
        4096, 32, 32, 8, 14336, 128167, model_type="hunyuan_v1_dense", head_dim=128, tie_word_embeddings=True
    ),
    "Hunyuan-A13B": decoder(
        4096, 4, 32, 8, 3072, 128167, model_type="hunyuan_v1_moe", head_dim=128, num_experts=64, moe_topk=[8] * 4,
        num_shared_expert=[1] * 4, moe_intermediate_size=[3072] * 4, tie_word_embeddings=True,
    ),
    "internlm3-8b": decoder(
        4096, 48, 32, 2, 10240, 128512, model_type="internlm3", head_dim=128, qkv_bias=False, bias=False
    ),
    "gemma-4-E2B": decoder(
        1536, 35, 8, 1, 6144, 262144, layer_types=[*["sliding_attention"] * 4, "full_attention"] * 7,
        num_kv_shared_layers=20, use_double_wide_mlp=True, **GEMMA_4,
    ),
    "gemma-4-E4B": decoder(
        2560, 42, 8, 2, 10240, 262144, layer_types=[*["sliding_attention"] * 5, "full_attention"] * 7,
        num_kv_shared_layers=18, use_double_wide_mlp=False, **GEMMA_4,
    ),
    "Llama-4-Maverick": decoder(
        5120, 8, 40, 8, 8192, 202048, model_type="llama4_text", head_dim=128, intermediate_size_mlp=16384,
        interleave_moe_layer_step=2, num_local_experts=32, num_experts_per_tok=1, attention_chunk_size=8192,
        no_rope_layer_interval=4,
    ),
    "Ministral-3-8B": decoder(4096, 34, 32, 8, 14336, 131072, model_type="ministral3", head_dim=128),
    "mpt-7b": {
        "model_type": "mpt", "architectures": ["MPTForCausalLM"], "d_model": 4096, "n_layers": 32, "n_heads": 32,
        "vocab_size": 50432, "max_seq_len": 2048, "expansion_ratio": 4,
    },
    "Nemotron-4-8B": decoder(4096, 32, 32, 8, 16384, 256000, model_type="nemotron", head_dim=128),
    "OLMo-7B": decoder(4096, 32, 32, 32, 11008, 50304, model_type="olmo", eos_token_id=50279),
    "Olmo-3-7B": decoder(4096, 32, 32, 32, 11008, 100278, model_type="olmo3", sliding_window=4096),
    "OLMoE-1B-7B": decoder(
        2048, 16, 16, 16, 1024, 50304, model_type="olmoe", num_experts=64, num_experts_per_tok=8
    ),
    "Seed-OSS-36B": decoder(
        5120, 64, 80, 8, 27648, 155136, model_type="seed_oss", head_dim=128, attention_bias=True,
        attention_out_bias=False,
    ),
    "SmolLM3-3B": decoder(2048, 36, 16, 4, 11008, 128256, model_type="smollm3", tie_word_embeddings=True),
}  # fmt: skip
"""Decoders of attention and a feed-forward in every layer."""

ENCODERS: dict[str, dict[str, Any]] = {
    "ModernBERT-base": {
        "model_type": "modernbert", "hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12,
        "intermediate_size": 1152, "vocab_size": 50368, "max_position_embeddings": 8192, "norm_eps": 1e-05,
        "global_attn_every_n_layers": 3, "local_attention": 128, "position_embedding_type": "absolute",
    },
    "distilbert-base": {
        "model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522,
        "max_position_embeddings": 512,
    },
}  # fmt: skip

GTE_BASE = {
    "model_type": "new", "architectures": ["NewModel"], "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30528, "max_position_embeddings": 8192,
    "type_vocab_size": 0, "position_embedding_type": "rope", "rope_theta": 500000,
}  # fmt: skip
"""https://huggingface.co/Alibaba-NLP/gte-base-en-v1.5, whose code lies beside its weights."""

REFUSED = {
    "t5": "an encoder and a decoder",
    "whisper": "speech",
    "rwkv": "recurrence",
    "xlnet": "permuted",
    "mpnet": "relative positions",
    "deberta-v2": "content and position",
    "mllama_text_model": "across to an image",
    "minimax_text_01": "lightning",
    "zamba2": "share the weights",
    "mimo_v2_flash": "narrower than keys",
    "minicpm3": "unfolds",
    "longcat_flash": "two attentions",
    "nemotron-nas": "many widths",
    "step3p5": "numbers of query heads",
    "ernie4_5_moe_vl": "experts of two widths",
    "phi4mm": "towers that no config describes",
    "albert": "one layer that stands for all",
    "electra": "neither vLLM nor",
}
"""Model types that are known and cannot be read, and a word of why."""


_CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
    "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
_LLAMA = decoder(2048, 2, 32, 32, 8192, 32064, model_type="llama")
TOWERS: dict[str, dict[str, Any]] = {
    "llava-1.5-7b": {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "vision_config": _CLIP,
        "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
    },
    "llava-onevision": {
        "model_type": "llava_onevision", "architectures": ["LlavaOnevisionForConditionalGeneration"],
        "vision_config": _SIGLIP, "text_config": decoder(3584, 2, 28, 4, 18944, 152064, model_type="qwen2"),
    },
    "paligemma-3b": {
        "model_type": "paligemma", "architectures": ["PaliGemmaForConditionalGeneration"], "projection_dim": 2048,
        "vision_config": _SIGLIP | {"image_size": 224, "projection_dim": 2048},
        "text_config": decoder(2048, 2, 8, 1, 16384, 257216, model_type="gemma"),
    },
    "idefics3-8b": {
        "model_type": "idefics3", "architectures": ["Idefics3ForConditionalGeneration"], "scale_factor": 2,
        "vision_config": _SIGLIP | {"model_type": "idefics3_vision", "image_size": 364}, "text_config": _LLAMA,
    },
}  # fmt: skip
"""Multimodal models whose towers have a position for each patch."""

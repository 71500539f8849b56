"""Model types that can be read: their classes, their keys, and what their configs need not say."""

from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import Facts

_WINDOWED: dict[str, JsonValue] = {"use_sliding_window": True}
_NORMED: dict[str, JsonValue] = {"use_qk_norm": True}
_HYBRID: dict[str, JsonValue] = {"use_qk_norm": True, "attn_output_gate": True, "full_attention_interval": 4}
_EXAONE: dict[str, JsonValue] = {**_NORMED, **_WINDOWED, "sliding_window_pattern": 4}
_GEMMA: dict[str, JsonValue] = {
    "use_qk_norm": True,
    "use_sliding_window": True,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "rope_theta": 1e6,
}

_GEMMA_1: dict[str, JsonValue] = {
    "tie_word_embeddings": True,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
}
_GEMMA_2: dict[str, JsonValue] = {
    **_GEMMA_1,
    "use_sliding_window": True,
    "sliding_window": 4096,
    "sliding_window_pattern": 2,
}
_GPT_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
_TIED: dict[str, JsonValue] = {"tie_word_embeddings": True}
_CENTRED: dict[str, JsonValue] = {"layer_norm_eps": 1e-5}
_UNTYPED: dict[str, JsonValue] = {"type_vocab_size": 0}
_GPT: dict[str, JsonValue] = {**_CENTRED, "hidden_act": "gelu_new"}
_OPT_SPARE = 2  # rows before the first position, transformers modeling_opt.py
_BAICHUAN_ROTATED = 4096

_COHERE_2: dict[str, JsonValue] = {
    **_TIED,
    **_CENTRED,
    "use_sliding_window": True,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}
_ERNIE: dict[str, JsonValue] = {**_TIED, "head_dim": 128}
_STARCODER_2: dict[str, JsonValue] = {
    **_TIED,
    **_CENTRED,
    "use_sliding_window": True,
    "hidden_act": "gelu_pytorch_tanh",
}
_OPT: dict[str, JsonValue] = {**_TIED, **_CENTRED, "hidden_act": "relu", "max_position_embeddings": 2048}

_MAMBA_NAMES = {"layer_norm_epsilon": "rms_norm_eps"}

RENAMED: dict[str, dict[str, str]] = {
    "mamba": _MAMBA_NAMES,
    "falcon_mamba": _MAMBA_NAMES,
    "mamba2": _MAMBA_NAMES,
    "nemotron_h": _MAMBA_NAMES,
    "lfm2": {"norm_eps": "rms_norm_eps", "tie_embedding": "tie_word_embeddings"},
    "lfm2_moe": {"norm_eps": "rms_norm_eps", "tie_embedding": "tie_word_embeddings"},
    "nomic_bert": _GPT_NAMES,
    "distilbert": {
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
    },
    "modernbert": {"norm_eps": "layer_norm_eps", "hidden_activation": "hidden_act"},
    "gpt2": _GPT_NAMES | {"activation_function": "hidden_act"},
    "gpt_bigcode": _GPT_NAMES | {"activation_function": "hidden_act"},
    "gptj": _GPT_NAMES | {"activation_function": "hidden_act"},
    "bloom": {
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "seq_length": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    "mpt": {
        "d_model": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "max_seq_len": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    "exaone": {
        "num_layers": "num_hidden_layers",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "rms_norm_eps",
    },
    "exaone_moe": {"num_shared_experts": "n_shared_experts"},
    "ernie4_5": {"use_bias": "linear_bias"},
    "ernie4_5_moe": {
        "use_bias": "linear_bias",
        "moe_num_experts": "num_experts",
        "moe_k": "num_experts_per_tok",
        "moe_num_shared_experts": "n_shared_experts",
    },
    "hunyuan_v1_moe": {"moe_topk": "num_experts_per_tok", "num_shared_expert": "n_shared_experts"},
    "internlm3": {"qkv_bias": "attention_bias", "bias": "linear_bias"},
    "nemotron": {"norm_eps": "layer_norm_eps"},
    "opt": {"ffn_dim": "intermediate_size", "activation_function": "hidden_act"},
    "falcon": {
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "ffn_hidden_size": "intermediate_size",
        "activation": "hidden_act",
        "bias": "linear_bias",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    "chatglm": {
        "num_layers": "num_hidden_layers",
        "ffn_hidden_size": "intermediate_size",
        "multi_query_group_num": "num_key_value_heads",
        "kv_channels": "head_dim",
        "padded_vocab_size": "vocab_size",
        "seq_length": "max_position_embeddings",
        "add_qkv_bias": "attention_bias",
        "layernorm_epsilon": "rms_norm_eps",
    },
    "stablelm": {"use_qkv_bias": "attention_bias"},
    "starcoder2": {"norm_epsilon": "layer_norm_eps", "use_bias": "linear_bias"},
}
"""By model type, keys that it has to those of later configs."""

ARCHITECTURES: dict[str, tuple[str, set[str], dict[str, JsonValue]]] = {
    "bert": ("Bert", {"encoder"}, {}),
    "roberta": ("Roberta", {"encoder", "padded"}, {}),
    "xlm-roberta": ("XLMRoberta", {"encoder", "padded"}, {}),
    "nomic_bert": ("NomicBert", {"encoder", "rotary"}, {"hidden_act": "silu"}),
    "distilbert": ("DistilBert", {"encoder"}, _UNTYPED),
    "modernbert": ("ModernBert", {"encoder", "rotary"}, {**_UNTYPED, **_CENTRED}),
    "new": ("New", {"encoder", "rotary", "half-biased"}, _UNTYPED),
    "gte": ("Gte", {"encoder", "rotary", "half-biased"}, _UNTYPED),
    "llama": ("Llama", set(), {}),
    "llama4_text": ("Llama4", {"parallel"}, {"no_rope_layer_interval": 4}),
    "mistral": ("Mistral", set(), _WINDOWED),
    "mixtral": ("Mixtral", set(), _WINDOWED),
    "phi3": ("Phi3", set(), _WINDOWED),
    "qwen2": ("Qwen2", set(), {"attention_bias": True}),
    "qwen2_moe": ("Qwen2Moe", set(), {"attention_bias": True}),
    "qwen3": ("Qwen3", set(), _NORMED),
    "qwen3_moe": ("Qwen3Moe", set(), _NORMED),
    "qwen3_next": ("Qwen3Next", set(), _HYBRID),
    "qwen3_5_text": ("Qwen3_5", set(), _HYBRID),
    "qwen3_5_moe_text": ("Qwen3_5Moe", set(), _HYBRID),
    "gemma": ("Gemma", set(), _GEMMA_1),
    "gemma2": ("Gemma2", set(), _GEMMA_2),
    "gemma3": ("Gemma3", {"stretched"}, _GEMMA),
    "gemma3_text": ("Gemma3", {"stretched"}, _GEMMA),
    "gemma4_text": ("Gemma4", {"parallel"}, {"use_qk_norm": True, "tie_word_embeddings": True}),
    "gpt_oss": ("GptOss", {"biased"}, {}),
    "minimax_m2": ("MiniMaxM2", set(), {}),
    "glm4": ("Glm4", set(), {}),
    "glm4_moe": ("Glm4Moe", set(), {}),
    "glm4_moe_lite": ("Glm4MoeLite", {"latent"}, {}),
    "glm_moe_dsa": ("GlmMoeDsa", {"latent"}, {}),
    "deepseek_v2": ("DeepseekV2", {"latent"}, {}),
    "deepseek_v3": ("DeepseekV3", {"latent"}, {}),
    "deepseek_v32": ("DeepseekV32", {"latent"}, {}),
    "deepseek_v4": ("DeepseekV4", {"latent"}, {}),
    "kimi_k2": ("DeepseekV3", {"latent"}, {}),
    "granite": ("Granite", set(), {}),
    "granitemoe": ("GraniteMoe", set(), {}),
    "olmo2": ("Olmo2", set(), _NORMED),
    "internlm2": ("InternLM2", set(), {}),
    "baichuan": ("Baichuan", {"spaced"}, {}),
    "glm": ("Glm", set(), {"attention_bias": True}),
    "chatglm": ("ChatGLM", {"generator"}, {"attention_bias": True}),
    "cohere": ("Cohere", set(), {**_TIED, **_CENTRED}),
    "cohere2": ("Cohere2", set(), _COHERE_2),
    "phi": ("Phi", {"biased", "plain"}, {**_CENTRED, "hidden_act": "gelu_new"}),
    "phimoe": ("Phimoe", set(), {**_WINDOWED, "rms_norm_eps": 1e-5}),
    "opt": ("OPT", {"biased", "plain", "positioned"}, _OPT),
    "falcon": ("Falcon", {"plain"}, {**_TIED, **_CENTRED, "hidden_act": "gelu", "max_position_embeddings": 2048}),
    "starcoder2": ("Starcoder2", {"biased", "plain"}, _STARCODER_2),
    "stablelm": ("StableLm", set(), _CENTRED),
    "granitemoehybrid": ("GraniteMoeHybrid", {"unrotated"}, {}),
    "bamba": ("Bamba", set(), {}),
    "falcon_h1": ("FalconH1", set(), {}),
    "nemotron_h": ("NemotronH", {"plain", "unrotated"}, {}),
    "jamba": ("Jamba", {"unrotated"}, {"num_experts": 16, "num_experts_per_tok": 2}),
    "mamba": ("Mamba", {"unrotated", "endless"}, _TIED),
    "falcon_mamba": ("FalconMamba", {"unrotated", "endless"}, _TIED),
    "mamba2": ("Mamba2", {"unrotated", "endless"}, {}),
    "lfm2": ("Lfm2", set(), {**_TIED, **_NORMED}),
    "lfm2_moe": ("Lfm2Moe", set(), {**_TIED, **_NORMED}),
    "arcee": ("Arcee", {"plain"}, {"hidden_act": "relu2"}),
    "apertus": ("Apertus", {"plain"}, {**_NORMED, "hidden_act": "xielu", "max_position_embeddings": 65536}),
    "bloom": ("Bloom", {"biased", "plain", "endless"}, {**_TIED, **_CENTRED, "hidden_act": "gelu", "alibi": True}),
    "dots1": ("Dots1", set(), _NORMED),
    "ernie4_5": ("Ernie4_5", set(), _ERNIE),
    "ernie4_5_moe": ("Ernie4_5_Moe", set(), _TIED),
    "exaone": ("Exaone", set(), {}),
    "exaone4": ("Exaone4", set(), _EXAONE),
    "exaone_moe": ("ExaoneMoe", set(), _EXAONE),
    "gpt2": ("GPT2", {"biased", "plain", "indexed"}, {**_TIED, **_GPT}),
    "gpt_bigcode": ("GPTBigCode", {"biased", "plain", "indexed"}, {**_TIED, **_GPT, "hidden_act": "gelu_pytorch_tanh"}),
    "gpt_neox": ("GPTNeoX", {"biased", "plain"}, {**_CENTRED, "hidden_act": "gelu"}),
    "gptj": ("GPTJ", {"plain"}, _GPT),
    "granitemoeshared": ("GraniteMoeShared", set(), {}),
    "hunyuan_v1_dense": ("HunYuanDenseV1", set(), _NORMED),
    "hunyuan_v1_moe": ("HunYuanMoEV1", set(), _NORMED | {"n_shared_experts": 1}),
    "internlm3": ("InternLM3", set(), {}),
    "ministral3": ("Ministral3", set(), _WINDOWED),
    "mpt": ("MPT", {"plain"}, {**_TIED, **_CENTRED, "hidden_act": "gelu", "alibi": True}),
    "nemotron": ("Nemotron", {"plain"}, {**_CENTRED, "hidden_act": "relu2"}),
    "olmo": ("Olmo", set(), {}),
    "olmo3": ("Olmo3", set(), {**_NORMED, **_WINDOWED, "sliding_window_pattern": 4}),
    "olmoe": ("Olmoe", set(), _NORMED),
    "seed_oss": ("SeedOss", set(), {"attention_bias": True}),
    "smollm3": ("SmolLM3", set(), _TIED),
    "qwen2_vl": ("Qwen2VL", set(), {"attention_bias": True}),
    "qwen2_vl_text": ("Qwen2VL", set(), {"attention_bias": True}),
    "qwen2_5_vl": ("Qwen2_5_VL", set(), {"attention_bias": True}),
    "qwen2_5_vl_text": ("Qwen2_5_VL", set(), {"attention_bias": True}),
    "qwen3_vl_text": ("Qwen3VL", set(), _NORMED),
    "qwen3_vl_moe_text": ("Qwen3VLMoe", set(), _NORMED),
}
"""Model type to the stem of its class names, what its config need not say, and what stands for keys that it lacks.

encoder: bidirectional, learned positions, biases everywhere; rotary: an encoder with rotated positions and gates and
without biases; padded: positions begin after the padding token's row; latent: multi-head latent attention; parallel: a
dense feed-forward beside the experts; biased: biases on every linear; stretched: positions are written stretched,
whatever the scaling; plain: a feed-forward without gates; indexed: a decoder with learned positions; positioned: the
same behind two spare rows; spaced: positions by the distance of tokens (ALiBi) unless it is 4096 wide; unrotated: no
positions, unless the config has them rotated; endless: no longest input unless the config states one; half-biased: a
rotary encoder with biases on its queries, keys and values; generator: its class is named like one without a head.
Defaults are those of the configuration classes of transformers 5.24, of InternLM2, Baichuan, ChatGLM and GTE of the
modeling files beside their weights.
"""


def has_rotation(facts: Facts, traits: set[str]) -> bool:
    """Whether positions are rotated; Baichuan's code takes ALiBi for any width but that of its 7B."""
    if facts.flag("alibi") or traits & {"positioned", "indexed"}:
        return False
    if facts.flag("is_unrotated", default="unrotated" in traits):
        return False
    is_spaced = "spaced" in traits and facts.count("hidden_size") != _BAICHUAN_ROTATED
    return not is_spaced and ("encoder" not in traits or "rotary" in traits)


def learned_positions(facts: Facts, traits: set[str]) -> tuple[int, int]:
    """Rows of the table of learned positions, 0 without one, and the row of the first token."""
    if "indexed" in traits:
        return facts.count("max_position_embeddings"), 0
    if "positioned" in traits:
        return facts.count("max_position_embeddings") + _OPT_SPARE, _OPT_SPARE
    if "encoder" not in traits or has_rotation(facts, traits):
        return 0, 0
    offset = facts.count("pad_token_id", default=1, minimum=0) + 1 if "padded" in traits else 0
    return facts.count("max_position_embeddings"), offset

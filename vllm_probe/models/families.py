"""Model types that can be read: their classes, and what their configs need not say."""

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
_BIASED: dict[str, JsonValue] = {"attention_bias": True}
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

ARCHITECTURES: dict[str, tuple[str, set[str], dict[str, JsonValue]]] = {
    "bert": ("Bert", {"encoder"}, {}),
    "roberta": ("Roberta", {"encoder", "padded"}, {}),
    "camembert": ("Camembert", {"encoder", "padded"}, {}),
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
    "qwen2": ("Qwen2", set(), _BIASED),
    "qwen2_moe": ("Qwen2Moe", set(), _BIASED),
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
    "glm4v": ("Glm4v", set(), _BIASED),
    "glm4v_text": ("Glm4v", set(), _BIASED),
    "glm4v_moe_text": ("Glm4vMoe", set(), _BIASED),
    "glm4_moe": ("Glm4Moe", set(), {}),
    "glm4_moe_lite": ("Glm4MoeLite", {"latent"}, {}),
    "glm_moe_dsa": ("GlmMoeDsa", {"latent"}, {}),
    "deepseek": ("Deepseek", set(), {}),
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
    "glm": ("Glm", set(), _BIASED),
    "chatglm": ("ChatGLM", {"generator"}, _BIASED),
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
    "mimo": ("MiMo", set(), _BIASED),
    "minicpm": ("MiniCPM", set(), _TIED),
    "qwen": ("QWen", set(), _BIASED),
    "bailing_moe": ("BailingMoe", set(), {}),
    "bailing_moe_v2": ("BailingMoeV2", set(), {}),
    "dbrx": ("Dbrx", set(), _CENTRED),
    "llama_bidirec": ("LlamaBidirectional", {"pooled"}, {"use_bidirectional_attention": True}),
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
    "seed_oss": ("SeedOss", set(), _BIASED),
    "smollm3": ("SmolLM3", set(), _TIED),
    "qwen2_vl": ("Qwen2VL", set(), _BIASED),
    "qwen2_vl_text": ("Qwen2VL", set(), _BIASED),
    "qwen2_5_vl": ("Qwen2_5_VL", set(), _BIASED),
    "qwen2_5_vl_text": ("Qwen2_5_VL", set(), _BIASED),
    "qwen2_5_omni_text": ("Qwen2_5Omni", set(), _BIASED),
    "qwen3_omni_moe_text": ("Qwen3OmniMoe", set(), _NORMED),
    "phi3_v": ("Phi3V", set(), _WINDOWED),
    "minicpmv": ("MiniCPMV", {"generator"}, _BIASED),
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
rotary encoder with biases on its queries, keys and values; generator: its class is named like one without a head;
pooled: its config says how it pools.
Defaults are those of the configuration classes of transformers 5.24; of InternLM2, Baichuan, ChatGLM, GTE, MiMo,
MiniCPM, Qwen, Bailing, DeepSeek and Llama-Bidirectional of the files beside their weights, as vLLM 0.32 takes them
(vllm/model_executor/models).
"""


def has_rotation(facts: Facts, traits: set[str]) -> bool:
    """Whether positions are rotated; Baichuan's code takes ALiBi for any width but that of its 7B."""
    if facts.flag("alibi") or traits & {"positioned", "indexed"}:
        return False
    if facts.flag("is_unrotated", default="unrotated" in traits):
        return False
    is_spaced = "spaced" in traits and facts.count("hidden_size") != _BAICHUAN_ROTATED
    return not is_spaced and ("encoder" not in traits or facts.flag("is_rotated", default="rotary" in traits))


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

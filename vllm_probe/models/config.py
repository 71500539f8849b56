"""A Hugging Face `config.json`, as transformers 4 and 5 write it, to a `ModelSpec`."""

from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.core.model import MlaShape, ModelSpec, MoeShape
from vllm_probe.core.values import JsonValue

_LIMIT = 1 << 32
_DTYPES = ("float32", "bfloat16", "float16")

_ARCHITECTURES = {
    "bert": ("Bert", {"encoder"}),
    "roberta": ("Roberta", {"encoder", "padded"}),
    "xlm-roberta": ("XLMRoberta", {"encoder", "padded"}),
    "llama": ("Llama", set[str]()),
    "mistral": ("Mistral", {"windowed"}),
    "mixtral": ("Mixtral", {"windowed"}),
    "qwen2": ("Qwen2", {"qkv_bias"}),
    "qwen3": ("Qwen3", {"qk_norm"}),
    "qwen3_moe": ("Qwen3Moe", {"qk_norm"}),
    "glm4_moe": ("Glm4Moe", set[str]()),
    "glm_moe_dsa": ("GlmMoeDsa", {"latent"}),
    "deepseek_v2": ("DeepseekV2", {"latent"}),
    "deepseek_v3": ("DeepseekV3", {"latent"}),
    "deepseek_v32": ("DeepseekV32", {"latent"}),
    "kimi_k2": ("DeepseekV3", {"latent"}),
}
"""Model type to the stem of its class names and what its config need not say.

encoder: bidirectional, learned positions, biases everywhere; padded: positions begin after the padding token's row;
windowed: `sliding_window` counts without `use_sliding_window`; latent: multi-head latent attention.
"""


class _Facts:
    """Typed access to a JSON object whose values may be anything."""

    def __init__(self, values: JsonValue, source: str) -> None:
        self.values = values if isinstance(values, dict) else {}
        self.source = source

    def count(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        name = next((name for name in names if self.values.get(name) is not None), None)
        value = self.values[name] if name else default
        if type(value) is not int or not minimum <= value < _LIMIT:
            raise self.invalid(f"{name or names[0]} is missing or not a whole number from {minimum} to {_LIMIT - 1}")
        return value

    def number(self, name: str, default: float) -> float:
        value = default if self.values.get(name) is None else self.values[name]
        if not isinstance(value, int | float) or not 0 <= value < _LIMIT:
            raise self.invalid(f"{name} is not a number from 0 to {_LIMIT}")
        return float(value)

    def word(self, *names: str, default: str = "") -> str:
        return next((self.values[name] for name in names if isinstance(self.values.get(name), str)), default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self.values.get(name, default) is True

    def part(self, *names: str) -> "_Facts":
        found = (self.values.get(name) for name in names)
        return _Facts(next((value for value in found if isinstance(value, dict)), {}), self.source)

    def items(self, name: str) -> list[JsonValue]:
        value = self.values.get(name)
        return value if isinstance(value, list) else []

    def invalid(self, reason: str) -> InvalidModel:
        return InvalidModel(f"{self.source}: {reason}", hint="get the model's files again, or report its config")

    def unsupported(self, reason: str) -> UnsupportedModel:
        known = ", ".join(sorted(_ARCHITECTURES))
        return UnsupportedModel(f"{self.source}: {reason}", hint=f"model types that can be read: {known}")


def parse_config(
    config: JsonValue, *, name: str, source: str, generation: JsonValue = None, stored_dtype: str = "float32"
) -> ModelSpec:
    """The model that `config` describes.

    Pooling is vLLM's for a checkpoint without sentence-transformers files: first token for encoders, last token for a
    decoder without a language-model head (`Qwen3Model`), both normalised (vllm/model_executor/models/bert.py,
    roberta.py and adapters.py, 0.32).

    Args:
        config: value of `config.json`; of a multimodal one the text part is used.
        name: canonical name of the model.
        source: where the config is from, for messages and the spec.
        generation: value of `generation_config.json`.
        stored_dtype: number format of the weights, for a config that states none.

    Raises:
        InvalidModel: a value is missing, out of range or contradicts another.
        UnsupportedModel: an architecture or variant whose shape this release cannot express.
    """
    text = config.get("text_config") if isinstance(config, dict) else None
    merged = {**config, **text, "architectures": config.get("architectures")} if isinstance(text, dict) else config
    facts = _Facts(merged, source)
    traits, architecture = _architecture(facts, is_nested=isinstance(text, dict))
    encodes = "encoder" in traits
    embeds = encodes or architecture.endswith("Model")
    mla = _mla(facts) if "latent" in traits else None
    num_heads, num_kv_heads, head_dim = _heads(facts, has_groups=not encodes and mla is None)
    offset = facts.count("pad_token_id", default=1, minimum=0) + 1 if "padded" in traits else 0
    rope = facts.part("rope_parameters", "rope_scaling")
    eos = (*_token_ids(facts.values), *_token_ids(generation))
    return ModelSpec(
        name=name,
        architecture=architecture,
        model_type=facts.word("model_type"),
        is_encoder=encodes,
        task="embed" if embeds else "generate",
        num_layers=facts.count("num_hidden_layers"),
        hidden_size=facts.count("hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=mla.nope_dim + mla.rope_dim if mla else head_dim,
        intermediate_size=facts.count("intermediate_size"),
        is_gated=not encodes,
        vocab_size=facts.count("vocab_size"),
        num_positions=facts.count("max_position_embeddings") if encodes else 0,
        position_offset=offset,
        num_token_types=facts.count("type_vocab_size", default=2, minimum=0) if encodes else 0,
        max_model_len=_max_model_len(facts, rope, offset),
        dtype=_dtype(facts, stored_dtype),
        ties_embeddings=embeds or facts.flag("tie_word_embeddings"),
        has_qkv_bias=not encodes and facts.flag("attention_bias", default="qkv_bias" in traits),
        has_bias=encodes,
        has_qk_norm=facts.flag("use_qk_norm", default="qk_norm" in traits),
        activation=facts.word("hidden_act", default="gelu" if encodes else "silu"),
        norm_eps=facts.number("layer_norm_eps", 1e-12) if encodes else facts.number("rms_norm_eps", 1e-6),
        rope_theta=None if encodes else rope.number("rope_theta", facts.number("rope_theta", 1e4)),
        eos_token_ids=() if encodes else tuple(dict.fromkeys(eos)),
        moe=_moe(facts),
        mla=mla,
        quantization=_quantization(facts.part("quantization_config")),
        pooling=("cls" if encodes else "last") if embeds else None,
        normalizes=embeds,
        source=source,
    )


def _architecture(facts: _Facts, *, is_nested: bool) -> tuple[set[str], str]:
    kind = facts.word("model_type")
    if kind not in _ARCHITECTURES:
        raise facts.unsupported(f"the model type {kind[:80]!r} is not known")
    stem, traits = _ARCHITECTURES[kind]
    tails = ("Model", "ForMaskedLM") if "encoder" in traits else ("ForCausalLM", "Model")
    architecture = str((facts.items("architectures") or [stem + tails[0]])[0])
    if not is_nested and architecture not in (stem + tails[0], stem + tails[1]):
        raise facts.unsupported(f"the architecture {architecture[:80]!r} of model type {kind!r} is not known")
    if facts.word("position_embedding_type", default="absolute") != "absolute" or facts.flag("is_decoder"):
        raise facts.unsupported("an encoder with relative positions or causal attention")
    window = (
        facts.values.get("sliding_window") if facts.flag("use_sliding_window", default="windowed" in traits) else None
    )
    if window is not None or any(layer != "full_attention" for layer in facts.items("layer_types")):
        raise facts.unsupported("layers that attend to a sliding window or not at all")
    return traits, architecture


def _heads(facts: _Facts, *, has_groups: bool) -> tuple[int, int, int]:
    """Query heads, key/value heads and the width of a head."""
    num_heads, hidden = facts.count("num_attention_heads"), facts.count("hidden_size")
    num_kv_heads = facts.count("num_key_value_heads", default=num_heads) if has_groups else num_heads
    head_dim = facts.count("head_dim", default=hidden // num_heads)
    if num_heads % num_kv_heads or (hidden % num_heads and facts.values.get("head_dim") is None):
        raise facts.invalid(f"{num_heads} heads do not divide hidden_size {hidden} or share {num_kv_heads} keys evenly")
    return num_heads, num_kv_heads, head_dim


def _max_model_len(facts: _Facts, rope: _Facts, offset: int) -> int:
    """As vLLM derives it: linear and dynamic scaling stretch the positions, others are written stretched."""
    stretch = rope.number("factor", 1) if rope.word("rope_type", "type") in ("linear", "dynamic") else 1
    positions = int((facts.count("max_position_embeddings") - offset) * stretch)
    if positions < 1:
        raise facts.invalid("no position is left for a token")
    return positions


def _dtype(facts: _Facts, stored: str) -> str:
    dtype = facts.word("dtype", "torch_dtype", default=stored).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise facts.invalid(f"dtype {dtype[:40]!r} is none of {', '.join(_DTYPES)}")
    return dtype


def _token_ids(config: JsonValue) -> list[int]:
    value = config.get("eos_token_id") if isinstance(config, dict) else None
    listed = value if isinstance(value, list) else [value]
    return [token for token in listed if type(token) is int and 0 <= token < _LIMIT]


def _moe(facts: _Facts) -> MoeShape | None:
    aliases = ("n_routed_experts", "num_experts", "num_local_experts")
    if all(facts.values.get(alias) is None for alias in aliases):
        return None
    if any(facts.values.get(step) not in (None, 1) for step in ("moe_layer_freq", "decoder_sparse_step")):
        raise facts.unsupported("layers that alternate between dense and sparse")
    moe = MoeShape(
        num_experts=facts.count(*aliases),
        num_active=facts.count("num_experts_per_tok"),
        num_shared=facts.count("n_shared_experts", default=0, minimum=0),
        expert_intermediate=facts.count("moe_intermediate_size", "intermediate_size"),
        num_dense_layers=facts.count("first_k_dense_replace", default=len(facts.items("mlp_only_layers")), minimum=0),
    )
    if moe.num_active > moe.num_experts or moe.num_dense_layers > facts.count("num_hidden_layers"):
        raise facts.invalid("more experts per token than experts, or more dense layers than layers")
    return moe


def _mla(facts: _Facts) -> MlaShape:
    layers = facts.count("num_hidden_layers")
    index_heads = facts.count("index_n_heads", default=0, minimum=0)
    own_indexers = sum(kind == "full" for kind in facts.items("indexer_types")[:layers]) or layers
    return MlaShape(
        q_rank=facts.count("q_lora_rank") if facts.values.get("q_lora_rank") is not None else None,
        kv_rank=facts.count("kv_lora_rank"),
        nope_dim=facts.count("qk_nope_head_dim", minimum=0),
        rope_dim=facts.count("qk_rope_head_dim"),
        v_dim=facts.count("v_head_dim"),
        index_heads=index_heads,
        index_dim=facts.count("index_head_dim", default=0, minimum=0),
        num_indexers=own_indexers if index_heads else 0,
    )


def _quantization(facts: _Facts) -> str:
    """The word of `ModelSpec.quantization`; compressed-tensors and ModelOpt say the format in their own fields."""
    method = facts.word("quant_method", default="none").lower().removesuffix("_marlin")
    if method == "compressed-tensors":
        groups = facts.part("config_groups")
        group = groups.part(*groups.values)
        weights = group.part("weights")
        int8 = "w8a8" if group.part("input_activations").values else "w8a16"
        forms = {"float8": "fp8", "int8": int8, "int4": "w4a16", "float4": "nvfp4"}
        return forms.get(f"{weights.word('type')}{weights.values.get('num_bits')}", method)
    return facts.word("quant_algo", default=method).lower() if method == "modelopt" else method

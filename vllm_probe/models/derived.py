"""Keys of a config that follow from others, by model type."""

from collections.abc import Callable

from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import Facts
from vllm_probe.models.hybrids import HYBRIDS
from vllm_probe.models.keys import RENAMED


def renamed(kind: str, config: dict[str, JsonValue], source: str) -> dict[str, JsonValue]:
    """`config` of the model type `kind` in the keys of later configs.

    Raises:
        InvalidModel: a key that the shape follows from has another value than a number of layers or a width.
    """
    names = RENAMED.get(kind, {})
    found = {**config, **{names[key]: value for key, value in config.items() if key in names}}
    return found | _FOLLOWING[kind](Facts(found, source)) if kind in _FOLLOWING else found


def _fourfold(facts: Facts) -> dict[str, JsonValue]:
    """A feed-forward of four widths unless another is stated, and one key/value head of a GPT-BigCode."""
    shares = facts.flag("multi_query", default=facts.word("model_type") == "gpt_bigcode")
    heads = {"num_key_value_heads": 1} if shares else {}
    ratio = facts.count("expansion_ratio", default=4)
    return {"intermediate_size": facts.maybe("intermediate_size") or ratio * facts.count("hidden_size"), **heads}


def _falcon(facts: Facts) -> dict[str, JsonValue]:
    """One key/value head, or one a query head, unless it is of the newer kind (configuration_falcon.py)."""
    heads: dict[str, JsonValue] = {}
    if not facts.flag("new_decoder_architecture"):
        many = facts.values.get("num_attention_heads")
        heads["num_key_value_heads"] = 1 if facts.flag("multi_query", default=True) else many
    width = facts.maybe("intermediate_size") or 4 * facts.count("hidden_size")
    return {"intermediate_size": width, **heads}


def _ernie(facts: Facts) -> dict[str, JsonValue]:
    """Experts in every so many layers from one to another (configuration_ernie4_5_moe.py)."""
    layers, every = facts.count("num_hidden_layers"), facts.count("moe_layer_interval", default=1)
    first, end = facts.count("moe_layer_start_index", default=1, minimum=0), facts.values.get("moe_layer_end_index", -1)
    last = layers - 1 if end == -1 else min(facts.count("moe_layer_end_index", minimum=0), layers - 1)
    return {"num_dense_layers": layers - max(0, (last + 1) // every - first // every)}


def _llama_4(facts: Facts) -> dict[str, JsonValue]:
    """Experts in every so many layers, wider feed-forwards in the others (configuration_llama4.py)."""
    every = facts.count("interleave_moe_layer_step", default=1)
    if every == 1 or "intermediate_size_mlp" not in facts.values:
        return {}
    layers, width = facts.count("num_hidden_layers"), facts.count("intermediate_size")
    return {
        "interleave_moe_layer_step": 1,
        "num_dense_layers": layers - layers // every,
        "intermediate_size": facts.count("intermediate_size_mlp"),
        "moe_intermediate_size": width,
        "parallel_intermediate_size": width,
    }


def _gemma_4(facts: Facts) -> dict[str, JsonValue]:
    """Of the smaller ones: tables for each layer, wider feed-forwards where keys are shared (modeling_gemma4.py)."""
    if not facts.values.get("hidden_size_per_layer_input") or "use_double_wide_mlp" not in facts.values:
        return {}
    shared = facts.count("num_kv_shared_layers", default=0, minimum=0)
    return {"has_layer_inputs": True, "num_wide_layers": shared if facts.flag("use_double_wide_mlp") else 0}


def _rotated(facts: Facts) -> dict[str, JsonValue]:
    """Positions of the GTE encoders, which are known rotated only."""
    stated = facts.word("position_embedding_type", default="rope")
    return {"position_embedding_type": "absolute" if stated == "rope" else "learned"}


def _jina(facts: Facts) -> dict[str, JsonValue]:
    """An XLM-RoBERTa whose positions are rotated, as that of Jina v3; its biases stay (JinaRobertaModelConfig)."""
    if facts.word("position_embedding_type") != "rotary":
        return {}
    base = facts.number("rotary_emb_base", 1e4)
    rotated: dict[str, JsonValue] = {"is_rotated": True, "linear_bias": True, "is_plain": True}
    return {"position_embedding_type": None, "rope_theta": base, **rotated}


def _nomic(facts: Facts) -> dict[str, JsonValue]:
    """Without SwiGLU its linears have biases and no gates, and every so many layers experts (NomicBertModelConfig)."""
    plain = facts.word("activation_function", default="swiglu") != "swiglu"
    found: dict[str, JsonValue] = {"is_plain": plain, "linear_bias": plain and facts.flag("qkv_proj_bias")}
    if not facts.values.get("num_experts"):
        return found | {"num_experts": None}
    layers, every = facts.count("num_hidden_layers"), facts.count("moe_every_n_layers")
    active = facts.count("moe_top_k", default=1)
    return found | {"num_experts_per_tok": active, "num_dense_layers": layers - layers // every}


def _hunyuan(facts: Facts) -> dict[str, JsonValue]:
    """Values that are listed for each layer, where all are alike."""
    found = {key: facts.items(key) for key in ("moe_intermediate_size", "num_experts_per_tok", "n_shared_experts")}
    uneven = next((key for key, values in found.items() if any(value != values[0] for value in values)), None)
    if uneven:
        raise facts.invalid(f"layers differ in {uneven}")
    return {key: values[0] for key, values in found.items() if values}


def _qwen(facts: Facts) -> dict[str, JsonValue]:
    """The first Qwen: a feed-forward of half the stated width, and the shorter of two lengths (modeling_qwen.py)."""
    lengths = [facts.count(key) for key in ("max_position_embeddings", "seq_length") if key in facts.values]
    return {"intermediate_size": facts.count("intermediate_size") // 2, "max_position_embeddings": min(lengths)}


def _dbrx(facts: Facts) -> dict[str, JsonValue]:
    """Heads and experts, which stand in objects of their own (configuration_dbrx.py)."""
    heads, experts = facts.part("attn_config"), facts.part("ffn_config")
    return {
        "num_key_value_heads": heads.count("kv_n_heads", default=1),
        "rope_theta": heads.number("rope_theta", 1e4),
        "intermediate_size": experts.count("ffn_hidden_size", default=3584),
        "num_experts": experts.count("moe_num_experts", default=4),
        "num_experts_per_tok": experts.count("moe_top_k", default=1),
    }


def _bailing(facts: Facts) -> dict[str, JsonValue]:
    """The width of all shared experts together, of which one may have another width than the routed ones."""
    width, many = facts.maybe("shared_expert_width"), facts.maybe("n_shared_experts")
    return {"shared_expert_intermediate_size": width * many} if width and many else {}


_FOLLOWING: dict[str, Callable[[Facts], dict[str, JsonValue]]] = {
    "falcon": _falcon,
    "llama4_text": _llama_4,
    "gemma4_text": _gemma_4,
    "ernie4_5_moe": _ernie,
    "hunyuan_v1_moe": _hunyuan,
    "qwen": _qwen,
    "dbrx": _dbrx,
    "bailing_moe": _bailing,
    "bailing_moe_v2": _bailing,
    "xlm-roberta": _jina,
    "nomic_bert": _nomic,
    "new": _rotated,
    "gte": _rotated,
    **HYBRIDS,
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj", "bloom", "mpt"), _fourfold),
}
"""By model type, keys that follow from others."""

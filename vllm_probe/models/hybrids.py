"""Model types with layers that keep a state instead of keys and values, in the keys of linear attention.

Keys and defaults: the configuration classes of transformers 5.24; what a state takes: the `*_state_shape` and
`*_state_dtype` functions of vLLM 0.32, vllm/model_executor/layers/mamba/mamba_utils.py.
"""

from collections.abc import Callable

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import MAX_LAYERS, Facts

_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
_HEADS = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim", "conv_kernel_dim")
_MAMBA_2 = ("mamba_n_groups", "mamba_d_state", "mamba_n_heads", "mamba_d_head", "mamba_d_conv")
_NEMOTRON = ("n_groups", "ssm_state_size", "mamba_num_heads", "mamba_head_dim", "conv_kernel")
_PURE_2 = ("n_groups", "state_size", "num_heads", "head_dim", "conv_kernel")
_BLOCKS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_WORDS = {"mamba": "linear_attention", "conv": "linear_attention", "attention": "full_attention"}
_NO_HEADS: dict[str, JsonValue] = {"num_attention_heads": 0, "num_key_value_heads": 0, "head_dim": 0}


def granite(facts: Facts) -> dict[str, JsonValue]:
    """Granite 4: Mamba 2 or attention, each with experts and a shared one, which is all there is without experts."""
    kinds = _kinds(facts, ["linear_attention"] * _layers(facts))
    found = _position(facts) | {"layer_types": kinds}
    if "linear_attention" in kinds:
        found |= _mamba_2(facts, _MAMBA_2)
    if not facts.values.get("num_local_experts"):
        width = facts.count("shared_intermediate_size", "intermediate_size")
        found |= {"num_local_experts": None, "intermediate_size": width, "shared_intermediate_size": None}
    return found


def bamba(facts: Facts) -> dict[str, JsonValue]:
    """Bamba: attention where `attn_layer_indices` says so, else Mamba 2."""
    attends, layers = facts.items("attn_layer_indices"), _layers(facts)
    kinds = ["full_attention" if layer in attends else "linear_attention" for layer in range(layers)]
    return _mamba_2(facts, _MAMBA_2) | {"layer_types": _kinds(facts, kinds)}


def falcon_h1(facts: Facts) -> dict[str, JsonValue]:
    """Falcon-H1: Mamba 2 beside attention in every layer."""
    return _mamba_2(facts, _MAMBA_2) | {"linear_beside": True}


def nemotron_h(facts: Facts) -> dict[str, JsonValue]:
    """Nemotron-H: every layer is a Mamba 2, attention, a feed-forward or experts, as a pattern of letters says.

    Raises:
        InvalidModel: a pattern that does not describe every layer.
        UnsupportedModel: experts between narrower projections.
    """
    if facts.values.get("moe_latent_size"):
        reason = f"{facts.source}: experts in a latent space (moe_latent_size)"
        raise UnsupportedModel(reason, hint="report its config; Nemotron-H without them can be read")
    listed = [_BLOCKS.get(letter, letter) for letter in facts.word("hybrid_override_pattern")]
    listed = listed or _kinds(facts, [])
    layers = facts.count("num_hidden_layers", default=len(listed))
    kinds = listed[:layers]
    if len(kinds) < layers:
        raise facts.invalid(f"hybrid_override_pattern describes {len(kinds)} of {layers} layers")
    alone = [layer for layer, kind in enumerate(kinds) if kind in ("mlp", "moe")]
    dense, sparse = kinds.count("mlp"), kinds.count("moe")
    found = _mamba_2(facts, _NEMOTRON) | {
        "num_hidden_layers": layers,
        "layer_types": kinds,
        "feed_forward_layers": alone,
        "num_dense_layers": dense,
        "hidden_act": facts.word("mlp_hidden_act", default="relu2"),
        "linear_state_width": _WIDTHS.get(facts.word("mamba_ssm_cache_dtype"), 4),
    }
    shared = facts.maybe("moe_shared_expert_intermediate_size") if facts.values.get("n_shared_experts") else None
    none = {"n_routed_experts": None, "n_shared_experts": None}
    return found | ({"shared_expert_intermediate_size": shared} if sparse else none)


def jamba(facts: Facts) -> dict[str, JsonValue]:
    """Jamba: attention in one layer of so many, else Mamba 1; experts in every other layer."""
    layers = _layers(facts)
    attends = _periodic(facts, "attn_layer", 8, 4)
    kinds = ["full_attention" if attends(layer) else "linear_attention" for layer in range(layers)]
    found = _mamba_1(facts, "mamba_d_state", "mamba_d_conv", "mamba_dt_rank", facts.count("mamba_expand", default=2))
    found["layer_types"] = _kinds(facts, kinds)
    if facts.count("num_experts", default=16) == 1:
        return found | {"num_experts": None}
    sparse = sum(map(_periodic(facts, "expert_layer", 2, 1), range(layers)))
    return found | {"num_dense_layers": layers - sparse}


def mamba(facts: Facts) -> dict[str, JsonValue]:
    """Mamba 1 in every layer, without attention and feed-forwards."""
    found = _mamba_1(facts, "state_size", "conv_kernel", "time_step_rank", facts.count("expand", default=2))
    return found | _pure(facts)


def mamba_2(facts: Facts) -> dict[str, JsonValue]:
    """Mamba 2 in every layer, without attention and feed-forwards."""
    return _mamba_2(facts, _PURE_2) | _pure(facts)


def lfm_2(facts: Facts) -> dict[str, JsonValue]:
    """LFM2: attention, or a short convolution between two gates; the width of the feed-forward is rounded."""
    width = facts.count("block_ff_dim", "intermediate_size", default=12288)
    if facts.word("model_type") == "lfm2" and facts.flag("block_auto_adjust_ff_dim", default=True):
        step = facts.count("block_multiple_of", default=256)
        width = -(-int(facts.number("block_ffn_dim_multiplier", 1) * (2 * width // 3)) // step) * step
    layers = _layers(facts)
    attends = facts.items("full_attn_idxs") or range(layers)
    kinds = ["full_attention" if layer in attends else "linear_attention" for layer in range(layers)]
    values = (0, 1, facts.count("hidden_size"), 1, facts.count("conv_L_cache", default=3))
    return _state("convolution", values, 0) | {
        "intermediate_size": width,
        "layer_types": _kinds(facts, kinds),
    }


def _mamba_2(facts: Facts, names: tuple[str, ...]) -> dict[str, JsonValue]:
    groups, state, heads, width, taps = names
    count = facts.count(heads)
    inner = facts.count("hidden_size") * facts.count("mamba_expand", "expand", default=2)
    stated = facts.count(width) if facts.values.get(width, "auto") != "auto" else facts.maybe("mamba_d_ssm") or inner
    each = stated if facts.values.get(width, "auto") != "auto" else stated // count
    values = (facts.count(groups, default=1), facts.count(state), count, each, facts.count(taps, default=4))
    return _state("mamba2", values, 2)


def _mamba_1(facts: Facts, state: str, taps: str, rank: str, expand: int) -> dict[str, JsonValue]:
    inner = expand * facts.count("hidden_size")
    steps = -(-facts.count("hidden_size") // 16) if facts.values.get(rank, "auto") == "auto" else facts.count(rank)
    values = (0, facts.count(state, default=16), inner, 1, facts.count(taps, default=4))
    return _state("mamba1", values, 2) | {"linear_rank": steps}


def _state(kind: str, values: tuple[int, ...], width: int) -> dict[str, JsonValue]:
    keys = {f"linear_{name}": value for name, value in zip(_HEADS, values, strict=True)}
    return {**keys, "linear_kind": kind, "linear_state_width": width}


def _pure(facts: Facts) -> dict[str, JsonValue]:
    kinds = ["linear_attention"] * _layers(facts)
    return {**_NO_HEADS, "layer_types": kinds, "feed_forward_layers": [], "intermediate_size": 0}


def _kinds(facts: Facts, kinds: list[str]) -> list[JsonValue]:
    """The kinds of layers in the words of transformers 5, `kinds` where the config lists none."""
    listed = facts.items("layers_block_type", "layer_types") or kinds
    return [_WORDS.get(kind, kind) if isinstance(kind, str) else kind for kind in listed]


def _layers(facts: Facts) -> int:
    layers = facts.count("num_hidden_layers")
    if layers > MAX_LAYERS:
        raise facts.invalid(f"num_hidden_layers is over {MAX_LAYERS}")
    return layers


def _periodic(facts: Facts, name: str, period: int, offset: int) -> Callable[[int], bool]:
    """Whether a layer is one of every `NAME_period`, from `NAME_offset` on."""
    every = facts.count(f"{name}_period", default=period)
    first = facts.count(f"{name}_offset", default=offset, minimum=0)
    return lambda layer: layer % every == first


def _position(facts: Facts) -> dict[str, JsonValue]:
    """Rotation where `position_embedding_type` is `rope`, none at all where it is not."""
    return {"position_embedding_type": None, "is_unrotated": facts.word("position_embedding_type") != "rope"}


HYBRIDS: dict[str, Callable[[Facts], dict[str, JsonValue]]] = {
    "granitemoehybrid": granite,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "jamba": jamba,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba_2,
    "lfm2": lfm_2,
    "lfm2_moe": lfm_2,
}
"""By model type, the keys that follow from its own."""

"""What the metadata of a GGUF file says about its layers and heads, in the keys of a Hugging Face config."""

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import Facts

_FULL_EVERY = 4  # where full_attention_interval is not stated (llama.cpp, src/llama-model.cpp)
_MAIN = ("sliding_attention", "full_attention")  # the kind whose heads the config states for the model
_PATTERN = "attention.sliding_window_pattern"
_KV_HEADS = "attention.head_count_kv"
_WIDTH = "feed_forward_length"
_SSM = ("conv_kernel", "state_size", "group_count", "time_step_rank")
_MAMBA_2 = ("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads", "mamba_d_head")
_STATES = {
    "falcon_h1": _MAMBA_2,
    "granitemoehybrid": _MAMBA_2,
    "nemotron_h": ("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads", "mamba_head_dim"),
}
"""By model type, its keys for those of `_SSM` and for the width of a head."""


def layer_config(facts: Facts, layers: int, kind: JsonValue) -> dict[str, JsonValue]:
    """Kinds of the layers of a model type, their heads and widths; a number for each layer becomes one for each kind.

    Raises:
        InvalidModel: an array that does not describe every layer.
        UnsupportedModel: layers of one kind that differ.
    """
    if kind in ("mamba", "mamba2"):
        return _pure(facts, is_second=kind == "mamba2")
    config = _states(facts, layers, str(kind)) if kind in _STATES else _kinds(facts, layers)
    kinds = config.get("layer_types") or ["full_attention"] * layers
    main = next((kind for kind in _MAIN if kind in kinds), kinds[0])
    heads = _by_kind(facts, "attention.head_count", kinds)
    kv_heads = _by_kind(facts, _KV_HEADS, kinds) or heads
    widths = _by_kind(facts, _WIDTH, ["any"] * layers)
    config["num_attention_heads"] = heads.get(main)
    config["num_key_value_heads"] = kv_heads.get(main)
    config["intermediate_size"] = widths.get("any")
    if any(count != heads.get(main) for count in heads.values()):
        raise _differing(facts, "attention.head_count")
    if kv_heads.get("full_attention", kv_heads.get(main)) != kv_heads.get(main):
        config["num_global_key_value_heads"] = kv_heads.get("full_attention")
    if facts.values.get("attention.kv_lora_rank"):
        return config | _latent(facts)
    count = heads.get(main)
    return config | _head_widths(facts, facts.count("embedding_length") // count if count else None)


def _states(facts: Facts, layers: int, kind: str) -> dict[str, JsonValue]:
    """Layers of attention have keys, those of a feed-forward alone have its width, the rest keep the states of a Mamba.

    Every layer of a Falcon-H1 has all three.

    Raises:
        InvalidModel: an array that does not describe every layer.
    """
    values = [facts.count(f"ssm.{key}") for key in _SSM]
    sizes = dict(zip(_STATES[kind], (*values, facts.count("ssm.inner_size") // values[-1]), strict=True))
    if kind == "falcon_h1":
        return {**sizes}
    keys, widths = (facts.items(key)[:layers] for key in (_KV_HEADS, _WIDTH))
    for key, listed in ((_KV_HEADS, keys), (_WIDTH, widths or keys)):
        if len(listed) < layers:
            raise facts.invalid(f"{key} lists {len(listed)} of {layers} layers")
    alone = "moe" if facts.values.get("expert_count") else "mlp"
    besides = [alone if width else "linear_attention" for width in widths] or ["linear_attention"] * layers
    found = ["full_attention" if heads else beside for heads, beside in zip(keys, besides, strict=True)]
    return {"layer_types": list(found), **sizes}


def _pure(facts: Facts, *, is_second: bool) -> dict[str, JsonValue]:
    """The states of a model that has nothing else, in the keys of a Mamba 1 or 2."""
    inner, rank = facts.count("ssm.inner_size"), facts.count("ssm.time_step_rank")
    config: dict[str, JsonValue] = {
        "conv_kernel": facts.count("ssm.conv_kernel"),
        "state_size": facts.count("ssm.state_size"),
        "expand": inner // facts.count("embedding_length"),
    }
    second = {"n_groups": facts.count("ssm.group_count", default=1), "num_heads": rank, "head_dim": inner // rank}
    return config | (second if is_second else {"time_step_rank": rank})


def _kinds(facts: Facts, layers: int) -> dict[str, JsonValue]:
    """The kinds of the layers; those of an LFM2 that have no keys are convolutions, and its widths are final."""
    if taps := facts.maybe("shortconv.l_cache"):
        keys = facts.items(_KV_HEADS)[:layers] or [1] * layers
        kinds = ["full_attention" if heads else "linear_attention" for heads in keys]
        return {"layer_types": kinds, "conv_L_cache": taps, "block_auto_adjust_ff_dim": False}
    if facts.values.get("ssm.inner_size"):
        every = facts.count("full_attention_interval", default=_FULL_EVERY)
        linear = ["full_attention" if (layer + 1) % every == 0 else "linear_attention" for layer in range(layers)]
        return {"layer_types": linear}
    if slides := facts.items(_PATTERN)[:layers]:
        if len(slides) < layers:
            raise facts.invalid(f"{_PATTERN} lists {len(slides)} of {layers} layers")
        return {"layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides]}
    every = facts.count(_PATTERN, default=0, minimum=0) if _PATTERN in facts.values else 0
    return {"sliding_window_pattern": every} if every else {}


def _by_kind(facts: Facts, key: str, kinds: list[str]) -> dict[str, int]:
    """The number under `key` of each kind of layer; kinds whose number is 0 have none."""
    listed = facts.items(key)[: len(kinds)]
    if not listed:
        return dict.fromkeys(kinds, count) if (count := facts.maybe(key)) else {}
    if len(listed) < len(kinds) or not all(type(count) is int and count >= 0 for count in listed):
        raise facts.invalid(f"{key} lists {len(listed)} of {len(kinds)} layers")
    found: dict[str, int] = {}
    for kind, count in zip(kinds, listed, strict=True):
        if count and found.setdefault(kind, count) != count:
            raise _differing(facts, key)
    return found


def _head_widths(facts: Facts, usual: int | None) -> dict[str, JsonValue]:
    """Width of a head, `usual` where none is stated, and that in full layers where sliding ones have another."""
    wide, narrow = facts.maybe("attention.key_length") or usual, facts.maybe("attention.key_length_swa")
    if facts.values.get("attention.value_length", wide) != wide:
        raise UnsupportedModel(f"{facts.source}: values of another width than keys", hint="report its metadata")
    if narrow and narrow != wide:
        return {"head_dim": narrow, "global_head_dim": wide}
    return {"head_dim": wide}


def _latent(facts: Facts) -> dict[str, JsonValue]:
    """Widths of multi-head latent attention; newer files state those behind decompression beside the latent ones."""
    rope = facts.count("rope.dimension_count")
    return {
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": facts.count("attention.key_length_mla", "attention.key_length", minimum=rope) - rope,
        "v_head_dim": facts.count("attention.value_length_mla", "attention.value_length"),
    }


def _differing(facts: Facts, key: str) -> UnsupportedModel:
    return UnsupportedModel(f"{facts.source}: {key} differs between layers of one kind", hint="report its metadata")

"""What the layers of a Hugging Face config attend to, and with which heads."""

from collections import Counter
from dataclasses import replace

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import AttentionGroup, AttentionKind, LinearKind, LinearShape, MlaShape
from vllm_probe.models.facts import Facts

_INDEXED_COMPRESSION = 4  # DeepSeek-V4 indexes its finer cache only (transformers modeling_deepseek_v4.py)
_ALONE = ("mlp", "moe")
_LETTERS = {"L", "G"}
_KINDS: dict[str, AttentionKind | None] = {
    "full_attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    **dict.fromkeys(_ALONE),
}
"""Words of `layer_types`; null is a layer that is a feed-forward alone."""

_LINEAR: dict[str, LinearKind] = {
    "delta": "delta",
    "mamba1": "mamba1",
    "mamba2": "mamba2",
    "convolution": "convolution",
}


def read_heads(facts: Facts, mla: MlaShape | None, *, has_groups: bool) -> tuple[int, int, int]:
    """Query heads, key/value heads and the width of a head."""
    num_heads, hidden = facts.count("num_attention_heads", minimum=0), facts.count("hidden_size")
    if not num_heads and "linear_num_value_heads" in facts.values:
        return 0, 0, 0
    num_heads = facts.count("num_attention_heads")
    if mla:
        return num_heads, num_heads, mla.nope_dim + mla.rope_dim
    num_kv_heads = facts.count("num_key_value_heads", default=num_heads) if has_groups else num_heads
    head_dim = facts.count("head_dim", default=hidden // num_heads)
    if num_heads % num_kv_heads or (hidden % num_heads and "head_dim" not in facts.values):
        raise facts.invalid(f"{num_heads} heads do not divide hidden_size {hidden} or share {num_kv_heads} keys evenly")
    return num_heads, num_kv_heads, head_dim


def read_latent(facts: Facts) -> MlaShape:
    """Latent attention; of DeepSeek-V4 the latent is the head itself, its rotated end included."""
    layers, rope_dim = facts.count("num_hidden_layers"), facts.count("qk_rope_head_dim")
    groups, index_heads = facts.maybe("o_groups") or 0, facts.maybe("index_n_heads") or 0
    whole = facts.count("head_dim", minimum=rope_dim + 1) if groups else 0
    inner = whole - rope_dim if groups else None
    ratios = facts.items("compress_ratios")[:layers]
    indexers = ratios.count(_INDEXED_COMPRESSION) or facts.items("indexer_types")[:layers].count("full") or layers
    return MlaShape(
        q_rank=facts.maybe("q_lora_rank"),
        kv_rank=facts.count("kv_lora_rank", default=inner),
        nope_dim=facts.count("qk_nope_head_dim", default=inner, minimum=0),
        rope_dim=rope_dim,
        v_dim=facts.count("v_head_dim", default=whole),
        index_heads=index_heads,
        index_dim=facts.count("index_head_dim", default=0, minimum=0),
        num_indexers=indexers if index_heads else 0,
        o_groups=groups,
        o_rank=facts.count("o_lora_rank") if groups else 0,
    )


def read_groups(facts: Facts) -> tuple[AttentionGroup, ...]:
    """The groups of layers by their first layer; none when every layer attends to everything with the model's heads.

    Raises:
        UnsupportedModel: a kind of layer that is not known, or layers that reuse the keys and values of others.
        InvalidModel: a kind is not stated for every layer.
    """
    layers = _layers(facts)
    if shared := facts.count("num_kv_shared_layers", default=0, minimum=0):
        if not facts.flag("has_layer_inputs") or shared >= len(layers):
            raise UnsupportedModel(f"{facts.source}: layers that share keys and values", hint="report its config")
        layers[-shared:] = [replace(group, reuses_cache=True) for group in layers[-shared:]]
    counts = Counter(layers)
    if facts.flag("linear_beside"):
        counts[AttentionGroup(kind="linear", num_layers=1)] = facts.count("num_hidden_layers")
    groups = tuple(replace(group, num_layers=count) for group, count in counts.items())
    plain = AttentionGroup(kind="full", num_layers=facts.count("num_hidden_layers"))
    return () if groups == (plain,) else groups


def _layers(facts: Facts) -> list[AttentionGroup]:
    """A group for each layer."""
    layers, window = facts.count("num_hidden_layers"), _window(facts)
    top = facts.maybe("index_topk")
    if ratios := facts.items("compress_ratios")[:layers]:
        if len(ratios) < layers or not all(type(ratio) is int and ratio >= 0 for ratio in ratios) or window is None:
            raise facts.invalid("compress_ratios and sliding_window do not describe every layer")
        local = AttentionGroup(kind="sliding", num_layers=1, window=window)
        wide = replace(local, kind="compressed")
        indexed = {_INDEXED_COMPRESSION: top}
        return [replace(wide, compression=n, index_top=indexed.get(n)) if n else local for n in ratios]
    chunk = facts.maybe("attention_chunk_size")
    full = AttentionGroup(
        kind="full",
        num_layers=1,
        index_top=top,
        num_kv_heads=facts.maybe("num_global_key_value_heads"),
        head_dim=facts.maybe("global_head_dim"),
        ties_values=facts.flag("attention_k_eq_v"),
    )
    by_kind = {
        "full": full,
        "sliding": AttentionGroup(kind="sliding", num_layers=1, window=window),
        "chunked": AttentionGroup(kind="chunked", num_layers=1, window=chunk),
        "linear": AttentionGroup(kind="linear", num_layers=1),
    }
    kinds = _kinds(facts, layers, "chunked" if chunk else "sliding" if window else "full")
    needed = {"sliding": window, "chunked": chunk, "linear": facts.maybe("linear_num_value_heads")}
    lacking = next((kind for kind in kinds if kind and kind in needed and needed[kind] is None), None)
    if lacking:
        raise facts.invalid(f"{lacking} layers without their window or heads")
    return [by_kind[kind] for kind in kinds if kind]


def _window(facts: Facts) -> int | None:
    """The sliding window, if the config uses it; a list of kinds says so by itself."""
    uses = facts.flag("use_sliding_window", default=bool(facts.items("layer_types", "compress_ratios")))
    return facts.maybe("sliding_window") if uses else None


def _kinds(facts: Facts, layers: int, local: AttentionKind) -> list[AttentionKind | None]:
    """What each layer attends to: as listed, else `local` with a full layer at the end of every so many.

    Qwen2 begins with full layers (transformers configuration_qwen2.py); Llama 4 has a full layer without rotation after
    every three, Gemma 3 one in six, Qwen3-Next one in four between linear ones; EXAONE 4 may write the pattern in
    letters, `L` for local and `G` for global.
    """
    if stated := facts.items("layer_types")[:layers]:
        words = _KINDS if "feed_forward_layers" in facts.values else _KINDS.keys() - _ALONE
        unknown = next((str(kind) for kind in stated if not isinstance(kind, str) or kind not in words), None)
        if unknown is not None:
            raise UnsupportedModel(
                f"{facts.source}: layers of {unknown[:80]!r}",
                hint=f"known are {', '.join(_KINDS)}",
            )
        if len(stated) < layers:
            raise facts.invalid(f"layer_types lists {len(stated)} of {layers} layers")
        return [_KINDS[kind] for kind in stated]
    if letters := facts.word("sliding_window_pattern"):
        if not set(letters) <= _LETTERS:
            raise facts.invalid(f"sliding_window_pattern {letters[:40]!r} is neither a number nor of L and G")
        return [local if letters[index % len(letters)] == "L" else "full" for index in range(layers)]
    local = "linear" if "full_attention_interval" in facts.values else local
    every = facts.count(
        "full_attention_interval", "sliding_window_pattern", "no_rope_layer_interval", default=layers + 1
    )
    first = facts.count("max_window_layers", default=0, minimum=0)
    return ["full" if index < first or (index + 1) % every == 0 else local for index in range(layers)]


def read_linear(facts: Facts) -> LinearShape | None:
    """The linear attention of the config, null without one."""
    if "linear_num_value_heads" not in facts.values:
        return None
    return LinearShape(
        num_key_heads=facts.count("linear_num_key_heads", minimum=0),
        num_value_heads=facts.count("linear_num_value_heads"),
        key_dim=facts.count("linear_key_head_dim"),
        value_dim=facts.count("linear_value_head_dim"),
        conv_width=facts.count("linear_conv_kernel_dim"),
        kind=_LINEAR.get(facts.word("linear_kind"), "delta"),
        rank=facts.count("linear_rank", default=0, minimum=0),
        state_width=facts.count("linear_state_width", default=4, minimum=0),
    )

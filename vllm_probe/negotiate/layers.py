"""Every linear of a model and what stands beside them, from its shape."""

from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.model import AttentionGroup, LinearShape, MlaShape, ModelSpec, MoeShape, StatedLinear
from vllm_probe.negotiate.gemm import Gemm, Part


def groups_of(spec: ModelSpec) -> tuple[AttentionGroup, ...]:
    """The groups of layers, one of full attention where the model states none."""
    return spec.attention_groups or (AttentionGroup(kind="full", num_layers=spec.num_layers),)


def linears(spec: ModelSpec) -> tuple[Gemm, ...]:
    """Every linear of `spec`: as its graph states them, else by its shape.

    Shapes: transformers 5.24, one modeling file for each architecture of the catalogue.
    """
    if spec.linears:
        return tuple(_stated(linear, spec) for linear in spec.linears)
    attention = _latent_attention(spec, spec.mla) if spec.mla else _attention(spec)
    feed_forward = _experts(spec, spec.moe) if spec.moe else _feed_forward(spec, _feed_forwards(spec))
    return (*attention, *feed_forward, *_layer_inputs(spec), *_output(spec))


def vector_parameters(spec: ModelSpec, gemms: tuple[Gemm, ...]) -> int:
    """Norms, biases, convolutions and router corrections.

    Left out, under 0.02 % of any catalogue model: further norms and scales of Gemma, attention sinks, the
    hyper-connections and position biases of DeepSeek-V4.
    """
    hidden, layers, inner = spec.hidden_size, spec.num_layers, [gemm for gemm in gemms if gemm.name != "lm_head"]
    queries, keys = spec.num_heads * spec.head_dim, 2 * spec.num_kv_heads * spec.head_dim
    has_layer_norms = spec.num_positions > 0
    norms = 2 * layers + 1 if spec.feed_forward_layers is None else layers + 1
    total = (2 * norms if has_layer_norms else norms) * hidden
    total += sum(gemm.n * gemm.stored for gemm in inner) if spec.has_bias else 0
    per_layer = queries + keys if spec.has_qkv_bias else 0
    per_layer += 2 * spec.head_dim if spec.has_qk_norm else 0
    per_layer += (spec.mla.q_rank or 0) + spec.mla.kv_rank if spec.mla else 0
    recurrent = sum(group.num_layers for group in groups_of(spec) if group.kind == "linear")
    total += recurrent * _state_vectors(spec.linear) if spec.linear else 0
    experts = (_feed_forwards(spec) - spec.moe.num_dense_layers) * spec.moe.num_experts if spec.moe and spec.mla else 0
    return total + layers * per_layer + experts


def _state_vectors(linear: LinearShape) -> int:
    """Convolution, decay, skip and norm of one layer (MambaMixer, MambaMixer2 and ShortConv of vLLM, as transformers).

    A Mamba's convolution has a bias; the decay of a Mamba 1 is as large as its state.
    """
    heads, taps = linear.num_value_heads, linear.conv_width * conv_channels(linear)
    if linear.kind == "mamba1":
        return taps + conv_channels(linear) + heads * (linear.key_dim + 2)
    if linear.kind == "mamba2":
        return taps + conv_channels(linear) + heads * (3 + linear.value_dim)
    return taps + (2 * heads + linear.value_dim if linear.kind == "delta" else 0)


def _feed_forwards(spec: ModelSpec) -> int:
    """Layers with a feed-forward, dense or sparse."""
    return spec.num_layers if spec.feed_forward_layers is None else len(spec.feed_forward_layers)


def _linear(name: str, k: int, n: int, layers: int, *, part: Part = "attention", replicated: bool = False) -> Gemm:
    return Gemm(name=name, k=k, n=n, stored=layers, active=layers, part=part, replicated=replicated)


def _stated(linear: StatedLinear, spec: ModelSpec) -> Gemm:
    return Gemm(
        name=linear.name,
        k=linear.k,
        n=linear.n,
        stored=linear.stored,
        active=linear.active,
        part=linear.part,
        most_shards=spec.num_kv_heads if linear.name in ("k", "v") else None,
    )


def _keys(name: str, spec: ModelSpec, kv_heads: int, head_dim: int, layers: int) -> Gemm:
    """Keys or values: ranks beyond the heads repeat them."""
    linear = _linear(name, spec.hidden_size, kv_heads * head_dim, layers)
    return replace(linear, most_shards=kv_heads)


def _attention(spec: ModelSpec) -> Iterator[Gemm]:
    """Projections, once for layers of one shape; shapes after the first are named after their kind."""
    shapes: dict[tuple[int, int, bool, bool], tuple[str, int]] = {}
    for group in groups_of(spec):
        if group.kind == "linear" and spec.linear:
            yield from _linear_attention(spec, spec.linear, group.num_layers)
            continue
        heads, head_dim = group.num_kv_heads or spec.num_kv_heads, group.head_dim or spec.head_dim
        shape = (heads, head_dim, group.ties_values, group.reuses_cache)
        prefix = f"{group.kind}_{'reusing_' if group.reuses_cache else ''}"
        kind, layers = shapes.get(shape, (prefix if shapes else "", 0))
        shapes[shape] = (kind, layers + group.num_layers)
    for (kv_heads, head_dim, ties_values, reuses_cache), (prefix, layers) in shapes.items():
        hidden, queries = spec.hidden_size, spec.num_heads * head_dim
        yield _linear(f"{prefix}q", hidden, queries * (2 if spec.has_output_gate else 1), layers)
        if not reuses_cache:
            yield _keys(f"{prefix}k", spec, kv_heads, head_dim, layers)
        if not reuses_cache and not ties_values:
            yield _keys(f"{prefix}v", spec, kv_heads, head_dim, layers)
        yield _linear(f"{prefix}o", queries, hidden, layers)


def conv_channels(linear: LinearShape) -> int:
    """Queries, keys and values that pass through the convolution; of a Mamba 1 and a convolution the values alone."""
    return 2 * linear.num_key_heads * linear.key_dim + linear.num_value_heads * linear.value_dim


def _linear_attention(spec: ModelSpec, linear: LinearShape, layers: int) -> Iterator[Gemm]:
    hidden, values = spec.hidden_size, linear.num_value_heads * linear.value_dim
    if linear.kind == "delta":
        yield _linear("linear_qkv", hidden, conv_channels(linear), layers)
        yield _linear("linear_gate", hidden, values, layers)
        yield _linear("linear_decay", hidden, 2 * linear.num_value_heads, layers, part="kept")
    elif linear.kind == "convolution":
        yield _linear("linear_in", hidden, 3 * values, layers)
    else:
        steps = linear.num_value_heads if linear.kind == "mamba2" else 0
        yield _linear("linear_in", hidden, values + conv_channels(linear) + steps, layers)
    if linear.rank:
        yield _linear("linear_x", values, linear.rank + 2 * linear.key_dim, layers)
        yield _linear("linear_steps", linear.rank, values, layers)
    yield _linear("linear_o", values, hidden, layers)


def _latent_attention(spec: ModelSpec, mla: MlaShape) -> Iterator[Gemm]:
    hidden, layers, queries = spec.hidden_size, spec.num_layers, spec.num_heads * (mla.nope_dim + mla.rope_dim)
    if mla.q_rank:
        yield _linear("q_a", hidden, mla.q_rank, layers, replicated=True)
    yield _linear("q_b" if mla.q_rank else "q", mla.q_rank or hidden, queries, layers)
    yield _linear("kv_a", hidden, mla.kv_rank + mla.rope_dim, layers, replicated=True)
    values = spec.num_heads * mla.v_dim
    if mla.o_groups:
        yield _linear("o_a", values // mla.o_groups, mla.o_rank, layers * mla.o_groups)
        yield _linear("o_b", mla.o_groups * mla.o_rank, hidden, layers)
    else:
        yield _linear("kv_b", mla.kv_rank, spec.num_heads * (mla.nope_dim + mla.v_dim), layers)
        yield _linear("o", values, hidden, layers)
    if mla.num_indexers:
        count, wide = mla.num_indexers, mla.index_heads * mla.index_dim
        yield _linear("index_q", mla.q_rank or hidden, wide, count, replicated=True)
        yield _linear("index_k", hidden, mla.index_dim, count, part="kept", replicated=True)
        yield _linear("index_w", hidden, mla.index_heads, count, part="kept", replicated=True)
    yield from _compressors(spec, mla)


def _compressors(spec: ModelSpec, mla: MlaShape) -> Iterator[Gemm]:
    """DeepSeek-V4: values and gates of the cache entries of older tokens; the finer cache overlaps two of them."""
    for group in groups_of(spec):
        if group.kind == "compressed":
            overlap = 2 if group.index_top else 1
            width = 2 * overlap * (mla.kv_rank + mla.rope_dim)
            name = f"compress_{group.compression}"
            yield _linear(name, spec.hidden_size, width, group.num_layers, part="kept", replicated=True)


def _feed_forward(spec: ModelSpec, layers: int) -> Iterator[Gemm]:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    wide = min(spec.num_wide_layers, layers)
    for prefix, width, count in (("", inner, layers - wide), ("wide_", 2 * inner, wide)):
        if count:
            for name in ("gate", "up") if spec.is_gated else ("up",):
                yield _linear(f"{prefix}{name}", hidden, width, count, part="feed_forward")
            yield _linear(f"{prefix}down", width, hidden, count, part="feed_forward")


def _layer_inputs(spec: ModelSpec) -> Iterator[Gemm]:
    """Gemma 4: the stream to the inputs of every layer, and in each a gate and the way back (modeling_gemma4.py)."""
    if spec.layer_inputs:
        hidden, width, layers = spec.hidden_size, spec.layer_inputs.width, spec.num_layers
        yield _linear("layer_inputs", hidden, layers * width, 1, part="kept")
        yield _linear("input_gate", hidden, width, layers, part="kept")
        yield _linear("input_projection", width, hidden, layers, part="kept")


def _experts(spec: ModelSpec, moe: MoeShape) -> Iterator[Gemm]:
    hidden, inner, layers = spec.hidden_size, moe.expert_intermediate, _feed_forwards(spec) - moe.num_dense_layers
    if moe.num_dense_layers:
        yield from _feed_forward(spec, moe.num_dense_layers)
    yield _linear("router", hidden, moe.num_experts, layers, part="kept", replicated=True)
    parts: tuple[tuple[str, Part, int, int], ...] = (
        ("expert", "experts", moe.num_experts, moe.num_active),
        ("shared", "feed_forward", moe.num_shared, moe.num_shared),
    )
    for prefix, part, stored, active in parts:
        for name, k, n in (("gate", hidden, inner), ("up", hidden, inner), ("down", inner, hidden)):
            if stored and (spec.is_gated or name != "gate"):
                yield Gemm(name=f"{prefix}_{name}", k=k, n=n, stored=stored * layers, active=active * layers, part=part)


def _output(spec: ModelSpec) -> Iterator[Gemm]:
    if spec.task == "generate":
        stored = 0 if spec.ties_embeddings else 1
        yield Gemm(name="lm_head", k=spec.hidden_size, n=spec.vocab_size, stored=stored, active=1, part="lm_head")
    width = spec.hidden_size
    for index, projection in enumerate(spec.projections):
        yield _linear(f"projection_{index}", width, projection, 1, part="kept")
        width = projection

"""The linears of a decoder by the names of a Hugging Face checkpoint, with their weights."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from vllm_probe.core.model import ModelSpec

_SHARED = ("mlp.shared_experts", "mlp.shared_expert", "feed_forward.shared_expert", "mixer.shared_experts")
_Linear: TypeAlias = tuple[str, tuple[str, ...], int]
"""Part, names and weights of a linear, the names behind its layer."""


@dataclass(frozen=True, slots=True)
class Module:
    """A linear of one layer, or all alike experts of it.

    Attributes:
        part: `attention`, `feed_forward` or `experts`.
        names: what it may be called, from `layers.N` on; experts by the first.
        weights: stored weights.
    """

    part: str
    names: tuple[str, ...]
    weights: int


def modules(spec: ModelSpec, linear_layers: Container[int]) -> Iterator[Module]:
    """Every linear that a quantization method may cover, layer by layer; `linear_layers` have linear attention."""
    attention, linear, dense = list(_attention(spec)), list(_linear_attention(spec)), list(_dense(spec))
    sparse = list(_experts(spec)) if spec.moe else dense
    num_dense = spec.moe.num_dense_layers if spec.moe else spec.num_layers
    beside = sum(group.num_layers for group in spec.attention_groups) > spec.num_layers
    alone = spec.feed_forward_layers
    for layer in range(spec.num_layers):
        near = linear + (attention if beside else []) if layer in linear_layers else attention
        behind = dense if layer < num_dense else sparse
        if alone is not None:
            near, behind = ([], sparse) if layer in alone else (near, [])
        for part, names, weights in (*near, *behind):
            yield Module(part, tuple(f"layers.{layer}.{name}" for name in names), weights)


def _attention(spec: ModelSpec) -> Iterator[_Linear]:
    for name, weights in _latent(spec) if spec.mla else _grouped(spec):
        fused = ("self_attn.qkv_proj",) if name in ("q_proj", "k_proj", "v_proj") else ()
        yield "attention", (f"self_attn.{name}", f"mixer.{name}", *fused), weights


def _linear_attention(spec: ModelSpec) -> Iterator[_Linear]:
    linear = spec.linear
    if linear is None:
        return
    keys, values = linear.num_key_heads * linear.key_dim, linear.num_value_heads * linear.value_dim
    if linear.kind == "delta":
        widths = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "out_proj": values}
        for name, width in widths.items():
            fused = ("linear_attn.in_proj_qkvz",) if name.startswith("in_") else ()
            yield "attention", (f"linear_attn.{name}", *fused), width * spec.hidden_size
        return
    inputs = {"convolution": 3 * values, "mamba1": 2 * values}
    width = inputs.get(linear.kind, 2 * (keys + values) + linear.num_value_heads)
    weights = {"in_proj": width * spec.hidden_size, "out_proj": values * spec.hidden_size}
    if linear.rank:
        weights |= {"x_proj": values * (linear.rank + 2 * linear.key_dim), "dt_proj": linear.rank * values}
    for name, count in weights.items():
        yield "attention", tuple(f"{place}.{name}" for place in ("mamba", "mixer", "conv")), count


def _grouped(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    queries, keys = (heads * spec.head_dim * spec.hidden_size for heads in (spec.num_heads, spec.num_kv_heads))
    yield "q_proj", queries * (2 if spec.has_output_gate else 1)
    yield "k_proj", keys
    yield "v_proj", keys
    yield "o_proj", queries


def _latent(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    mla, hidden, heads = spec.mla, spec.hidden_size, spec.num_heads
    assert mla is not None
    queries = heads * (mla.nope_dim + mla.rope_dim)
    if mla.q_rank:
        yield "q_a_proj", hidden * mla.q_rank
    yield "q_b_proj" if mla.q_rank else "q_proj", (mla.q_rank or hidden) * queries
    yield "kv_a_proj_with_mqa", hidden * (mla.kv_rank + mla.rope_dim)
    if mla.o_groups:
        yield "o_a_proj", heads * mla.v_dim * mla.o_rank
        yield "o_b_proj", mla.o_groups * mla.o_rank * hidden
        return
    yield "kv_b_proj", mla.kv_rank * heads * (mla.nope_dim + mla.v_dim)
    yield "o_proj", heads * mla.v_dim * hidden


def _dense(spec: ModelSpec) -> Iterator[_Linear]:
    for name in ("gate_proj", "up_proj", "down_proj") if spec.is_gated else ("up_proj", "down_proj"):
        fused = () if name == "down_proj" else ("mlp.gate_up_proj",)
        yield (
            "feed_forward",
            (f"mlp.{name}", f"feed_forward.{name}", f"mixer.{name}", *fused),
            spec.hidden_size * spec.intermediate_size,
        )


def _experts(spec: ModelSpec) -> Iterator[_Linear]:
    assert spec.moe is not None
    one = spec.hidden_size * spec.moe.expert_intermediate
    for name, short in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
        if name == "gate_proj" and not spec.is_gated:
            continue
        numbered = tuple(f"{place}.experts.0.{name}" for place in ("mlp", "feed_forward", "mixer"))
        places = (*numbered, f"block_sparse_moe.experts.0.{short}", f"feed_forward.experts.{name}")
        yield "experts", places, one * spec.moe.num_experts
        if spec.moe.num_shared:
            shared = tuple(f"{place}.{name}" for place in _SHARED)
            fused = f"shared_mlp.{'output' if name == 'down_proj' else 'input'}_linear"
            yield "feed_forward", (*shared, fused), one * spec.moe.num_shared

"""Qwen3 as a stack of states: Qwen3ForCausalLM without its head, and Qwen3Model.

Pre-norm decoder with rotary positions, grouped queries and a norm on each query and key head
(https://arxiv.org/abs/2505.09388), as in
https://github.com/huggingface/transformers/blob/main/src/transformers/models/qwen3/modeling_qwen3.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.primitive import Linear
from vllm_probe.core.progress import Progress
from vllm_probe.runtime.modeling.context import Context
from vllm_probe.runtime.modeling.loading import Attention, Loader

ARCHITECTURES = ("Qwen3ForCausalLM", "Qwen3Model")
ANCHOR = "embed_tokens.weight"

Norm = Callable[[torch.Tensor], torch.Tensor]
Rope = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One transformer layer, prepared for its device.

    Attributes:
        input_norm: norm before attention.
        qkv: query, key and value heads of one token behind one another.
        head_norm: norm of the query and key heads, [tokens, num_heads + num_kv_heads, head_dim].
        output: heads to residual.
        output_norm: norm before the feed-forward.
        gate_up: gate and up projection behind one another.
        down: feed-forward to residual.
    """

    input_norm: Norm
    qkv: Linear[torch.Tensor]
    head_norm: Norm
    output: Linear[torch.Tensor]
    output_norm: Norm
    gate_up: Linear[torch.Tensor]
    down: Linear[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A loaded decoder.

    Attributes:
        words: token embedding, [vocab, hidden].
        cosines: of the angles of each position, [positions, head_dim / 2].
        sines: as `cosines`.
        layers: transformer layers.
        norm: final norm.
        num_heads: query heads.
        num_kv_heads: key heads, and as many value heads.
        attention: causal attention on packed heads.
        rope: rotation of packed heads.
    """

    words: torch.Tensor
    cosines: torch.Tensor
    sines: torch.Tensor
    layers: tuple[Layer, ...]
    norm: Norm
    num_heads: int
    num_kv_heads: int
    attention: Attention
    rope: Rope

    def forward(
        self, token_ids: torch.Tensor, lengths: tuple[int, ...], rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Normed states behind the last layer, as `loading.Model`."""
        return self._run(token_ids, lengths, rows, None)

    def context(self, num_tokens: int) -> Context:
        """As `loading.CausalModel`."""
        shape = (len(self.layers), 2, self.num_kv_heads, num_tokens, 2 * self.cosines.shape[1])
        return Context(self.words.new_empty(shape))

    def extend(self, token_ids: torch.Tensor, context: Context) -> torch.Tensor:
        """Normed state of the last token, as `loading.CausalModel`."""
        last = token_ids.new_tensor([len(token_ids) - 1])
        state = self._run(token_ids, (len(token_ids),), last, context)
        context.advance(len(token_ids))
        return state

    def _run(
        self, token_ids: torch.Tensor, lengths: tuple[int, ...], rows: torch.Tensor | None, context: Context | None
    ) -> torch.Tensor:
        begin = context.num_tokens if context else 0
        seen = (begin + len(token_ids),) if context else lengths
        cosines, sines = (
            torch.cat([table[begin : begin + length] for length in lengths]) for table in (self.cosines, self.sines)
        )
        states = functional.embedding(token_ids, self.words)
        for index, layer in enumerate(self.layers):
            query, key, value = self._heads(layer, states, cosines, sines)
            if context:
                key, value = context.extend(index, key, value)
            attended = self.attention(query, key, value, seen).flatten(1)
            if rows is not None and layer is self.layers[-1]:
                attended, states = attended[rows], states[rows]
            states = layer.output(attended).add_(states)
            gate, up = layer.gate_up(layer.output_norm(states)).chunk(2, dim=-1)
            states = layer.down(functional.silu(gate).mul_(up)).add_(states)
        return self.norm(states)

    def _heads(
        self, layer: Layer, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value heads, [tokens, heads, head_dim] each."""
        num_rotated = self.num_heads + self.num_kv_heads
        heads = layer.qkv(layer.input_norm(states)).view(len(states), num_rotated + self.num_kv_heads, -1)
        rotated = self.rope(layer.head_norm(heads[:, :num_rotated]), cosines, sines)
        return rotated[:, : self.num_heads], rotated[:, self.num_heads :], heads[:, num_rotated:]


def load_decoder(loader: Loader, progress: Progress) -> Decoder:
    """The decoder that `loader` brings, layer by layer.

    Raises:
        UnsupportedModel: a variant of the architecture that is not computed here.
        InvalidModel: weights that contradict the spec.
    """
    spec = loader.spec
    if reasons := _variants(spec):
        message = f"{spec.name}: the bundled engine computes plain Qwen3 only, this one has {' and '.join(reasons)}"
        raise UnsupportedModel(message, hint="use --engine vllm")
    progress("loading embeddings", 0, spec.num_layers + 1)
    words = loader.tensor(
        ANCHOR, spec.vocab_size, spec.hidden_size
    )  # first, because two of it are held while it is copied
    angles, layers = _angles(spec), []
    for index in range(spec.num_layers):
        progress(f"loading layer {index + 1} of {spec.num_layers}", index + 1, spec.num_layers + 1)
        layers.append(_layer(loader, f"layers.{index}"))
    return Decoder(
        words=words,
        cosines=loader.device(angles.cos()),
        sines=loader.device(angles.sin()),
        layers=tuple(layers),
        norm=_norm(loader, loader.tensor("norm.weight", spec.hidden_size)),
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        attention=loader.attention(causal=True),
        rope=partial(loader.adapter.rope, implementation=loader.numerics.implementations["rope"]),
    )


def _variants(spec: ModelSpec) -> list[str]:
    """What this model has beside a plain Qwen3, in words."""
    found = {
        f"the activation {spec.activation}": spec.activation != "silu",
        f"{spec.rope_type} rotary positions": spec.rope_type != "default",
        "windows of attention": bool(spec.attention_groups),
        "biases": spec.has_qkv_bias or spec.has_bias,
        "linears behind pooling": bool(spec.projections),
    }
    return [name for name, holds in found.items() if holds]


def _layer(loader: Loader, name: str) -> Layer:
    spec = loader.spec
    hidden, inner, head = spec.hidden_size, spec.intermediate_size, spec.head_dim
    queries, keys = spec.num_heads * head, spec.num_kv_heads * head
    attention = f"{name}.self_attn"
    query_norm = loader.tensor(f"{attention}.q_norm.weight", head).expand(spec.num_heads, head)
    key_norm = loader.tensor(f"{attention}.k_norm.weight", head).expand(spec.num_kv_heads, head)
    parts = tuple(f"{attention}.{part}_proj" for part in "qkv")
    return Layer(
        input_norm=_norm(loader, loader.tensor(f"{name}.input_layernorm.weight", hidden)),
        qkv=loader.linear(*parts, widths=(queries, keys, keys), inputs=hidden),
        head_norm=_norm(loader, torch.cat((query_norm, key_norm))),
        output=loader.linear(f"{attention}.o_proj", widths=(hidden,), inputs=queries),
        output_norm=_norm(loader, loader.tensor(f"{name}.post_attention_layernorm.weight", hidden)),
        gate_up=loader.linear(f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj", widths=(inner, inner), inputs=hidden),
        down=loader.linear(f"{name}.mlp.down_proj", widths=(hidden,), inputs=inner),
    )


def _norm(loader: Loader, weight: torch.Tensor) -> Norm:
    normalize, epsilon = loader.adapter.rms_norm, loader.spec.norm_eps
    implementation = loader.numerics.implementations["rms_norm"]
    return lambda rows: normalize(rows, weight, epsilon, implementation=implementation)


def _angles(spec: ModelSpec) -> torch.Tensor:
    """Position times theta ** (-2 pair / head_dim), in the order of transformers' products, [positions, pairs]."""
    assert spec.rope_theta is not None
    frequencies = 1.0 / spec.rope_theta ** (torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim)
    return torch.arange(spec.max_model_len, dtype=torch.float32)[:, None] * frequencies

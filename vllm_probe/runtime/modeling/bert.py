"""Encoders of the BERT family: BertModel, RobertaModel and XLMRobertaModel.

Post-norm transformer with learned absolute positions (https://arxiv.org/abs/1810.04805), as in
https://github.com/huggingface/transformers/blob/main/src/transformers/models/bert/modeling_bert.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.primitive import Linear
from vllm_probe.core.progress import Progress
from vllm_probe.runtime.modeling.loading import Attention, Loader

ARCHITECTURES = ("BertModel", "RobertaModel", "XLMRobertaModel")
ANCHOR = "embeddings.word_embeddings.weight"

Norm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One transformer layer, prepared for its device."""

    qkv: Linear[torch.Tensor]
    output: Linear[torch.Tensor]
    attention_norm: Norm
    up: Linear[torch.Tensor]
    down: Linear[torch.Tensor]
    output_norm: Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A loaded encoder.

    Attributes:
        words: token embedding, [vocab, hidden].
        positions: position embedding with that of token type 0 added, row 0 for the first token.
        norm: embedding norm.
        layers: transformer layers.
        num_heads: attention heads.
        attention: attention on packed [tokens, heads, head_dim] and lengths.
    """

    words: torch.Tensor
    positions: torch.Tensor
    norm: Norm
    layers: tuple[Layer, ...]
    num_heads: int
    attention: Attention

    def forward(
        self, token_ids: torch.Tensor, lengths: tuple[int, ...], rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """States behind the last layer, as `loading.Model`."""
        positions = torch.cat([self.positions[:length] for length in lengths])
        states = self.norm(functional.embedding(token_ids, self.words) + positions)
        for layer in self.layers:
            query, key, value = layer.qkv(states).view(len(states), 3, self.num_heads, -1).unbind(1)
            context = self.attention(query, key, value, lengths).reshape(states.shape)
            if rows is not None and layer is self.layers[-1]:
                context, states = context[rows], states[rows]
            states = layer.attention_norm(layer.output(context).add_(states))
            states = layer.output_norm(layer.down(functional.gelu(layer.up(states))).add_(states))
        return states


def load_encoder(loader: Loader, progress: Progress) -> Encoder:
    """The encoder that `loader` brings, layer by layer.

    Raises:
        UnsupportedModel: a variant of the architecture that is not computed here.
        InvalidModel: weights that contradict the spec.
    """
    spec, hidden = loader.spec, loader.spec.hidden_size
    if spec.activation != "gelu" or spec.projections:
        variant = "linears behind pooling" if spec.projections else repr(spec.activation)
        message = f"{spec.name}: the bundled engine computes plain gelu encoders only, this one has {variant}"
        raise UnsupportedModel(message, hint="use --engine vllm")
    layers = []
    for index in range(spec.num_layers):
        progress(f"loading layer {index + 1} of {spec.num_layers}", index, spec.num_layers + 1)
        layers.append(_layer(loader, f"encoder.layer.{index}"))
    progress("loading embeddings", spec.num_layers, spec.num_layers + 1)
    positions = loader.weights.tensor("embeddings.position_embeddings.weight", spec.num_positions, hidden)
    types = loader.weights.tensor("embeddings.token_type_embeddings.weight", spec.num_token_types, hidden)
    return Encoder(
        words=loader.tensor(ANCHOR, spec.vocab_size, hidden),
        positions=loader.device((positions.float() + types[0].float())[spec.position_offset :]),
        norm=_norm(loader, "embeddings.LayerNorm"),
        layers=tuple(layers),
        num_heads=spec.num_heads,
        attention=loader.attention(causal=False),
    )


def _layer(loader: Loader, name: str) -> Layer:
    hidden, inner = loader.spec.hidden_size, loader.spec.intermediate_size
    attention = f"{name}.attention"
    parts = tuple(f"{attention}.self.{part}" for part in ("query", "key", "value"))
    return Layer(
        qkv=loader.linear(*parts, widths=(hidden,) * 3, inputs=hidden, has_bias=True),
        output=loader.linear(f"{attention}.output.dense", widths=(hidden,), inputs=hidden, has_bias=True),
        attention_norm=_norm(loader, f"{attention}.output.LayerNorm"),
        up=loader.linear(f"{name}.intermediate.dense", widths=(inner,), inputs=hidden, has_bias=True),
        down=loader.linear(f"{name}.output.dense", widths=(hidden,), inputs=inner, has_bias=True),
        output_norm=_norm(loader, f"{name}.output.LayerNorm"),
    )


def _norm(loader: Loader, name: str) -> Norm:
    hidden, epsilon = loader.spec.hidden_size, loader.spec.norm_eps
    weight, bias = (loader.tensor(f"{name}.{part}", hidden) for part in ("weight", "bias"))
    return lambda states: functional.layer_norm(states, (hidden,), weight, bias, epsilon)

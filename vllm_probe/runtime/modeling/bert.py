"""Encoders of the BERT family: BertModel, RobertaModel and XLMRobertaModel.

Post-norm transformer with learned absolute positions (https://arxiv.org/abs/1810.04805), as in
https://github.com/huggingface/transformers/blob/main/src/transformers/models/bert/modeling_bert.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from vllm_probe.core.adapter import Linear
from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.progress import Progress
from vllm_probe.runtime.modeling.weights import Checkpoint
from vllm_probe.vendors.torchbase import DTYPES, TorchAdapter

ARCHITECTURES = ("BertModel", "RobertaModel", "XLMRobertaModel")
_ANCHOR = "embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How a model computes.

    Attributes:
        dtype: number format of weights and activations, a capability word.
        linear: the adapter's implementation of linear.
        attention: the adapter's implementation of attention.
    """

    dtype: str
    linear: str
    attention: str


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
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Sequence[int]], torch.Tensor]

    def forward(self, token_ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Last hidden states.

        Args:
            token_ids: [sum(lengths)], int64, on the device.
            lengths: tokens of each prompt.

        Returns:
            [sum(lengths), hidden] in the model's number format.
        """
        positions = torch.cat([self.positions[:length] for length in lengths])
        states = self.norm(functional.embedding(token_ids, self.words) + positions)
        for layer in self.layers:
            query, key, value = layer.qkv(states).view(len(states), 3, self.num_heads, -1).unbind(1)
            context = self.attention(query, key, value, lengths).reshape(states.shape)
            states = layer.attention_norm(layer.output(context).add_(states))
            states = layer.output_norm(layer.down(functional.gelu(layer.up(states))).add_(states))
        return states


def load_encoder(spec: ModelSpec, numerics: Numerics, adapter: TorchAdapter, progress: Progress) -> Encoder:
    """The encoder of `spec.weights_path` on the open `adapter`, read layer by layer.

    Raises:
        UnsupportedModel: a variant of the architecture that is not computed here.
        InvalidModel: files that contradict `spec`.
    """
    if spec.activation != "gelu" or spec.projections:
        variant = "linears behind pooling" if spec.projections else repr(spec.activation)
        message = f"{spec.name}: the bundled engine computes plain gelu encoders only, this one has {variant}"
        raise UnsupportedModel(message, hint="use --engine vllm")
    assert spec.weights_path is not None
    with Checkpoint(Path(spec.weights_path), _ANCHOR) as checkpoint:
        loader = _Loader(spec, numerics, adapter, checkpoint)
        layers = []
        for index in range(spec.num_layers):
            progress(f"loading layer {index + 1} of {spec.num_layers}", index, spec.num_layers + 1)
            layers.append(loader.layer(f"encoder.layer.{index}"))
        progress("loading embeddings", spec.num_layers, spec.num_layers + 1)
        return loader.encoder(tuple(layers))


@dataclass(frozen=True, slots=True)
class _Loader:
    """Takes tensors out of a checkpoint and prepares them for the device."""

    spec: ModelSpec
    numerics: Numerics
    adapter: TorchAdapter
    checkpoint: Checkpoint

    def encoder(self, layers: tuple[Layer, ...]) -> Encoder:
        spec, hidden = self.spec, self.spec.hidden_size
        positions = self.checkpoint.tensor("embeddings.position_embeddings.weight", spec.num_positions, hidden)
        types = self.checkpoint.tensor("embeddings.token_type_embeddings.weight", spec.num_token_types, hidden)
        adapter, implementation = self.adapter, self.numerics.attention
        return Encoder(
            words=self._device(self.checkpoint.tensor(_ANCHOR, spec.vocab_size, hidden)),
            positions=self._device((positions.float() + types[0].float())[spec.position_offset :]),
            norm=self._norm("embeddings.LayerNorm"),
            layers=layers,
            num_heads=spec.num_heads,
            attention=lambda query, key, value, lengths: adapter.attention(
                query, key, value, lengths, causal=False, implementation=implementation
            ),
        )

    def layer(self, name: str) -> Layer:
        hidden, inner = self.spec.hidden_size, self.spec.intermediate_size
        attention = f"{name}.attention"
        return Layer(
            qkv=self._linear(*(f"{attention}.self.{part}" for part in ("query", "key", "value")), n=hidden, k=hidden),
            output=self._linear(f"{attention}.output.dense", n=hidden, k=hidden),
            attention_norm=self._norm(f"{attention}.output.LayerNorm"),
            up=self._linear(f"{name}.intermediate.dense", n=inner, k=hidden),
            down=self._linear(f"{name}.output.dense", n=hidden, k=inner),
            output_norm=self._norm(f"{name}.output.LayerNorm"),
        )

    def _linear(self, *names: str, n: int, k: int) -> Linear[torch.Tensor]:
        """Linears of the same input, [n, k] each, as one."""
        weight = torch.cat([self.checkpoint.tensor(f"{name}.weight", n, k) for name in names])
        bias = torch.cat([self.checkpoint.tensor(f"{name}.bias", n) for name in names])
        numerics = self.numerics
        return self.adapter.prepare_linear(self._device(weight), self._device(bias), numerics.dtype, numerics.linear)

    def _norm(self, name: str) -> Norm:
        hidden, epsilon = self.spec.hidden_size, self.spec.norm_eps
        weight, bias = (self._device(self.checkpoint.tensor(f"{name}.{part}", hidden)) for part in ("weight", "bias"))
        return lambda states: functional.layer_norm(states, (hidden,), weight, bias, epsilon)

    def _device(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.adapter.tensor(tensor, DTYPES[self.numerics.dtype])

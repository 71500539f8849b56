"""What every architecture shares on the way from named tensors to prepared operators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from vllm_probe.core.model import ModelSpec
from vllm_probe.core.primitive import Linear
from vllm_probe.runtime.modeling.context import Context
from vllm_probe.vendors.torchbase import DTYPES, TorchAdapter

Attention = Callable[..., torch.Tensor]
"""Query, key and value, each packed [tokens, heads, head_dim], and the lengths to [tokens, heads, head_dim].

The queries of a single causal prompt may be those of its last tokens only."""


class Weights(Protocol):
    """Where tensors come from: a checkpoint, or a generator of random ones."""

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, of `shape`, on the host in any floating format."""
        ...


class Model(Protocol):
    """A loaded transformer."""

    def forward(
        self, token_ids: torch.Tensor, lengths: tuple[int, ...], rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Last hidden states.

        Args:
            token_ids: [sum(lengths)], int64, on the device.
            lengths: tokens of each prompt.
            rows: tokens whose states are wanted, int64, null for all; the last layer skips what others need.

        Returns:
            [len(rows) or sum(lengths), hidden] in the model's number format.
        """
        ...


class CausalModel(Model, Protocol):
    """A loaded transformer in which no token sees a later one, so that a prompt can be computed in chunks."""

    def context(self, num_tokens: int) -> Context:
        """An empty context for a prompt of `num_tokens`."""
        ...

    def extend(self, token_ids: torch.Tensor, context: Context) -> torch.Tensor:
        """Last hidden state of the last of `token_ids`, which follow those of `context` and are added to it.

        Args:
            token_ids: [tokens], int64, on the device.
            context: the tokens of the same prompt before them.

        Returns:
            [1, hidden] in the model's number format.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How a model computes.

    Attributes:
        dtype: number format of weights and activations, a capability word.
        implementations: the adapter's implementation of each primitive.
    """

    dtype: str
    implementations: dict[str, str]


@dataclass(frozen=True, slots=True)
class Loader:
    """Takes tensors from `weights` and prepares them for the device."""

    spec: ModelSpec
    numerics: Numerics
    adapter: TorchAdapter
    weights: Weights

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name` on the device, in the model's number format and in memory of its own."""
        source = self.weights.tensor(name, *shape)
        ready = self.device(source)
        return ready.clone() if ready is source else ready

    def device(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` on the device, in the model's number format."""
        return self.adapter.tensor(tensor, DTYPES[self.numerics.dtype])

    def linear(self, *names: str, widths: tuple[int, ...], inputs: int, has_bias: bool = False) -> Linear[torch.Tensor]:
        """Linears of the same `inputs`, [width, inputs] each, as one."""
        named = tuple(zip(names, widths, strict=True))
        weight = torch.cat([self.weights.tensor(f"{name}.weight", width, inputs) for name, width in named])
        bias = torch.cat([self.weights.tensor(f"{name}.bias", width) for name, width in named]) if has_bias else None
        dtype, implementation = self.numerics.dtype, self.numerics.implementations["linear"]
        ready = None if bias is None else self.device(bias)
        return self.adapter.prepare_linear(self.device(weight), ready, dtype, implementation)

    def attention(self, *, causal: bool) -> Attention:
        """Attention within each prompt."""
        attend, implementation = self.adapter.attention, self.numerics.implementations["attention"]
        return lambda query, key, value, lengths: attend(
            query, key, value, lengths, causal=causal, implementation=implementation
        )

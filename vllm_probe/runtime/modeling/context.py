"""What a decoder keeps of a prompt between two chunks of it."""

import torch


class Context:
    """Keys and values of the tokens of one prompt so far, for every layer.

    Attributes:
        num_tokens: tokens that every layer holds.
    """

    def __init__(self, data: torch.Tensor) -> None:
        """Takes `data`, [layers, 2, kv_heads, tokens of the whole prompt, head_dim], of any content."""
        self.num_tokens = 0
        self._data = data

    def extend(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of `layer` up to the tokens of `key` and `value`, [tokens, kv_heads, head_dim] each.

        A head stands in one piece, which attention reads without a copy.
        """
        end = self.num_tokens + len(key)
        keys, values = self._data[layer, :, :, :end].transpose(1, 2)
        keys[self.num_tokens :], values[self.num_tokens :] = key, value
        return keys, values

    def advance(self, num_tokens: int) -> None:
        """Counts `num_tokens` more, which every layer has been given."""
        self.num_tokens += num_tokens

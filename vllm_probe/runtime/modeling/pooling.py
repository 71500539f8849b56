"""From token states to one vector per prompt."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from vllm_probe.core.model import Pooling


def pool(states: torch.Tensor, lengths: Sequence[int], method: Pooling) -> torch.Tensor:
    """One vector per prompt.

    Args:
        states: [sum(lengths), hidden], any floating format.
        lengths: tokens of each prompt.
        method: mean of all tokens, the first (`cls`) or the last.

    Returns:
        [len(lengths), hidden], float32.
    """
    counts = torch.tensor(lengths, device=states.device)
    if method == "mean":
        owner = torch.arange(len(counts), device=states.device).repeat_interleave(counts)
        sums = states.new_zeros((len(counts), states.shape[1]), dtype=torch.float32)
        return sums.index_add_(0, owner, states.float()) / counts[:, None]
    ends = counts.cumsum(0)
    return states[ends - 1 if method == "last" else ends - counts].float()


def normalize(vectors: torch.Tensor) -> torch.Tensor:
    """`vectors` [n, hidden] scaled to unit length."""
    return functional.normalize(vectors, dim=-1)

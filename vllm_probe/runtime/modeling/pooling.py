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
    if method == "mean":
        return torch.stack([part.float().mean(0) for part in states.split(list(lengths))])
    ends = torch.tensor(lengths, device=states.device).cumsum(0)
    if method == "last":
        return states[ends - 1].float()
    return states[ends - torch.tensor(lengths, device=states.device)].float()


def normalize(vectors: torch.Tensor) -> torch.Tensor:
    """`vectors` [n, hidden] scaled to unit length."""
    return functional.normalize(vectors, dim=-1)

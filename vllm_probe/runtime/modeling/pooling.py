"""From token states to one vector per prompt."""

import torch
from torch.nn import functional

from vllm_probe.core.model import Pooling
from vllm_probe.runtime.modeling.loading import Model


def pooled_states(model: Model, token_ids: torch.Tensor, lengths: tuple[int, ...], method: Pooling) -> torch.Tensor:
    """One vector per prompt.

    Args:
        model: a loaded model.
        token_ids: [sum(lengths)], int64, on the device.
        lengths: tokens of each prompt.
        method: mean of all tokens, the first (`cls`) or the last.

    Returns:
        [len(lengths), hidden], float32.
    """
    counts = torch.tensor(lengths, device=token_ids.device)
    if method == "mean":
        return _mean(model.forward(token_ids, lengths), counts)
    ends = counts.cumsum(0)
    return model.forward(token_ids, lengths, ends - 1 if method == "last" else ends - counts).float()


def _mean(states: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    owner = torch.arange(len(counts), device=states.device).repeat_interleave(counts)
    sums = states.new_zeros((len(counts), states.shape[1]), dtype=torch.float32)
    return sums.index_add_(0, owner, states.float()) / counts[:, None]


def normalize(vectors: torch.Tensor) -> torch.Tensor:
    """`vectors` [n, hidden] scaled to unit length."""
    return functional.normalize(vectors, dim=-1)


def cut(vectors: torch.Tensor, dimensions: int, *, normalizes: bool) -> torch.Tensor:
    """The first `dimensions` of each of `vectors` [n, hidden], of unit length again where it `normalizes`.

    https://arxiv.org/abs/2205.13147, section 3; to normalise before the cut as well changes nothing.
    """
    first = vectors[:, :dimensions]
    return normalize(first) if normalizes else first

"""What a caller gets: the vectors of one request."""

import time
from dataclasses import dataclass, field

import torch

from vllm_probe.runtime.modeling.pooling import cut
from vllm_probe.runtime.sched.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors of one request.

    Attributes:
        data: float32 in the byte order of this machine, `dimensions` values per input, in the order of the inputs.
        dimensions: width of a vector.
        prompt_tokens: tokens that were computed.
        num_truncated: inputs that were cut.
        queue_s: time waited before the first prompt ran.
        compute_s: time from then until all were done.
    """

    data: bytearray = field(repr=False)
    dimensions: int
    prompt_tokens: int
    num_truncated: int
    queue_s: float
    compute_s: float

    @property
    def vectors(self) -> torch.Tensor:
        """The vectors, [inputs, dimensions], float32, sharing memory with `data`."""
        return torch.frombuffer(self.data, dtype=torch.float32).view(-1, self.dimensions)


def collect(request: Request, hidden_size: int, *, normalizes: bool) -> Embeddings:
    """The result of a `request` of which every prompt has its output, cut to the dimensions that it wants."""
    assert request.started_s is not None
    data = bytearray().join(request.outputs[index] for index in range(len(request.prompts)))
    width = request.dimensions or hidden_size
    if width < hidden_size:
        whole = torch.frombuffer(data, dtype=torch.float32).view(-1, hidden_size)
        data = to_bytes(cut(whole, width, normalizes=normalizes))
    return Embeddings(
        data=data,
        dimensions=width,
        prompt_tokens=request.num_tokens,
        num_truncated=request.num_truncated,
        queue_s=request.started_s - request.submitted_s,
        compute_s=time.monotonic() - request.started_s,
    )


def to_bytes(vectors: torch.Tensor) -> bytearray:
    """`vectors`, float32, row after row in the byte order of this machine."""
    data = bytearray(4 * vectors.numel())
    torch.frombuffer(data, dtype=torch.float32).copy_(vectors.flatten())
    return data

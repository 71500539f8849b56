"""What a caller gets: the vectors of one request."""

import sys
import time
from array import array
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

from vllm_probe.core.model import ModelSpec
from vllm_probe.runtime.modeling.pooling import cut
from vllm_probe.runtime.sched.request import Request, RequestError

EmbedDtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
ByteOrder: TypeAlias = Literal["native", "little", "big"]

_DTYPES: dict[EmbedDtype, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


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

    def rows(self, dtype: EmbedDtype = "float32", byte_order: ByteOrder = "native") -> list[memoryview]:
        """The bytes of each vector in a number format and byte order.

        Raises:
            OverflowError: a value is larger than the format goes.
        """
        data = self.data
        if dtype != "float32":
            rounded = self.vectors.to(_DTYPES[dtype])
            if not rounded.isfinite().all():
                raise OverflowError(f"a value is larger than {dtype} goes")
            data = to_bytes(rounded)
        size = len(data) * self.dimensions // (len(self.data) // 4)
        if byte_order not in ("native", sys.byteorder):
            items = array("f" if dtype == "float32" else "H", data)
            items.byteswap()
            data = bytearray(items.tobytes())
        whole = memoryview(data)
        return [whole[start : start + size] for start in range(0, len(whole), size)]


def check_dimensions(spec: ModelSpec, dimensions: int | None) -> None:
    """Passes a width to which vectors of `spec` can be cut, or none.

    Raises:
        RequestError: it has no such width, or was not trained for another than its own.
    """
    width = spec.hidden_size
    if dimensions is not None and not 1 <= dimensions <= width:
        raise RequestError(f"dimensions must be between 1 and {width}, not {dimensions}", "dimensions")
    if dimensions not in (None, width) and not spec.is_matryoshka:
        message = f"{spec.name} has {width} dimensions and was not trained to be cut to {dimensions}"
        raise RequestError(message, "dimensions")


def collect(request: Request, hidden_size: int, *, normalizes: bool) -> Embeddings:
    """The result of a `request` of which every prompt has its pooled state, in the form that it wants.

    Without a word of the request it is of the model's width, and of unit length where it `normalizes`.
    """
    assert request.started_s is not None
    data = bytearray().join(request.outputs[index] for index in range(len(request.prompts)))
    width = request.dimensions or hidden_size
    normalizes = normalizes if request.normalizes is None else request.normalizes
    if normalizes or width < hidden_size:
        pooled = torch.frombuffer(data, dtype=torch.float32).view(-1, hidden_size)
        data = to_bytes(cut(pooled, width, normalizes=normalizes))
    return Embeddings(
        data=data,
        dimensions=width,
        prompt_tokens=request.num_tokens,
        num_truncated=request.num_truncated,
        queue_s=request.started_s - request.submitted_s,
        compute_s=time.monotonic() - request.started_s,
    )


def to_bytes(vectors: torch.Tensor) -> bytearray:
    """`vectors` row after row, in their number format and the byte order of this machine."""
    data = bytearray(vectors.element_size() * vectors.numel())
    torch.frombuffer(data, dtype=vectors.dtype).copy_(vectors.flatten())
    return data

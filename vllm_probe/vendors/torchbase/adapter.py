"""TorchAdapter: everything that a torch backend does alike; a vendor overrides what its device does better."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch

from vllm_probe.core.errors import UnknownName
from vllm_probe.core.primitive import Done, Event, Linear, Primitive, Support
from vllm_probe.core.values import FenceScope
from vllm_probe.vendors.torchbase.attention import ATTENTION
from vllm_probe.vendors.torchbase.compiled import INDUCTOR, CompilingAdapter
from vllm_probe.vendors.torchbase.linear import WEIGHT_ONLY, dense, integer, weight_only_formats
from vllm_probe.vendors.torchbase.rowwise import QUANTIZE, RMS_NORM, ROPE
from vllm_probe.vendors.torchbase.swapping import SWAP

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}
"""Capability word to torch's number format."""

_FLOATING = {
    Primitive.ATTENTION: tuple(ATTENTION),
    Primitive.RMS_NORM: tuple(RMS_NORM),
    Primitive.ROPE: tuple(ROPE),
    Primitive.QUANTIZE: tuple(QUANTIZE),
}
_LINEAR = {"aten": dense, "int_mm": integer}
_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_BLOCK = 1 << 20
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _buffer(nbytes: int, alignment: int, **where: Any) -> torch.Tensor:
    """The aligned part of a larger tensor; torch aligns to 64 bytes on a CPU and to 256 or 512 elsewhere."""
    try:
        buffer = torch.empty(nbytes + alignment, dtype=torch.int8, **where)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise MemoryError(f"{nbytes} bytes: {str(error).partition(chr(10))[0]}") from error
    skip = -buffer.data_ptr() % alignment
    return buffer[skip : skip + nbytes]


class TorchAdapter(CompilingAdapter):
    """A device that torch knows by the name `torch_device`."""

    torch_device: ClassVar[str]
    held_formats = tuple(DTYPES)
    kernels = MappingProxyType({"read": "aten::sum", "copy": "aten::copy_", "triad": "aten::add.out"})

    linears: ClassVar[dict[str, tuple[str, ...]]] = {
        "fp32": ("aten",),
        "bf16": ("aten",),
        "fp16": ("aten",),
        "int8": ("int_mm",),
    }
    """Number format to the implementations of linear, the preferred one first."""

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:  # noqa: ARG002
        if self.implementations(primitive, dtype):
            return Support(ok=True)
        return Support(ok=False, reason=f"torch has no {primitive} in {dtype} on {self.torch_device}")

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """Linear: `aten` (torch's own), `int_mm` (int8 to int32); attention: `sdpa` (fused), `bmm` (scores stored).

        RMS norm: `eager` (operator by operator), `aten` (torch's own); rope: `eager` (by halves, in place), `blocked`
        (whole heads, in parts that a cache holds), `naive` (as models are written); quantize: `eager`, `blocked`; swap,
        in any format: `gathered` (one transfer), `blocks` (one for each). With a `compile_folder` the last of rope, RMS
        norm and quantize is `inductor`, which is compiled when it is first used and runs as another until then.
        """
        if primitive is Primitive.LINEAR:
            return self.linears.get(dtype, ())
        if primitive is Primitive.SWAP:
            return tuple(SWAP)
        names = _FLOATING.get(primitive, ()) if dtype in {"fp32", "bf16", "fp16"} else ()
        return (*names, INDUCTOR) if names and self.compiles(primitive) else names

    def tensor(self, data: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        """`data` (a tensor, array or nested sequence) on the device, not copied if it is there already."""
        return torch.as_tensor(data, dtype=dtype, device=self.torch_device)

    def _copy(self, source: torch.Tensor, target: torch.Tensor, *, non_blocking: bool, queue: int) -> Event:  # noqa: ARG002
        target.copy_(source, non_blocking=non_blocking)
        return Done()

    def _read(self, source: torch.Tensor) -> torch.Tensor:
        return source.sum()

    def _triad(self, b: torch.Tensor, c: torch.Tensor, scale: float, out: torch.Tensor) -> None:
        torch.add(b, c, alpha=scale, out=out)

    def _fence(self, scope: FenceScope) -> None:
        """Waits for the device, which is as strong as any scope."""
        if scope != "none":
            self._synchronize()

    def _synchronize(self) -> None:
        torch.get_device_module(self.torch_device).synchronize()

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Wall seconds."""
        self._synchronize()
        begin = time.perf_counter()
        for call in calls:
            call()
        self._synchronize()
        return time.perf_counter() - begin

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around the loading of weights, which stay, where what a step allocates comes again in the next."""
        yield

    def software(self) -> dict[str, str]:
        """The version of torch."""
        return {"torch": str(torch.__version__)}

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: Sequence[int],
        causal: bool,
        implementation: str | None,
    ) -> torch.Tensor:
        """Sequences of one length share a call without padding; neighbours of one length are not even copied."""
        attend = self._chosen(ATTENTION, Primitive.ATTENTION, query, implementation)
        starts_of: dict[int, list[int]] = {}
        for start, length in zip(accumulate(lengths, initial=0), lengths, strict=False):
            if length:
                starts_of.setdefault(length, []).append(start)
        out = torch.empty_like(query)
        for length, starts in starts_of.items():
            rows = self._rows(starts, length)
            q, k, v = (part[rows].unflatten(0, (len(starts), -1)).transpose(1, 2) for part in (query, key, value))
            attended = attend(q, k, v, causal=causal).transpose(1, 2).flatten(0, 1)
            if len(attended) == len(query):
                return attended
            out[rows] = attended
        return out

    def _rms_norm(
        self, rows: torch.Tensor, weight: torch.Tensor, epsilon: float, implementation: str | None
    ) -> torch.Tensor:
        return self._chosen(RMS_NORM, Primitive.RMS_NORM, rows, implementation)(rows, weight, epsilon)

    def _rope(
        self,
        heads: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        implementation: str | None,
    ) -> torch.Tensor:
        return self._chosen(ROPE, Primitive.ROPE, heads, implementation)(heads, cosines, sines)

    def _quantize(self, rows: torch.Tensor, implementation: str | None) -> tuple[torch.Tensor, torch.Tensor]:
        return self._chosen(QUANTIZE, Primitive.QUANTIZE, rows, implementation)(rows)

    def _chosen(
        self, known: dict[str, _Function], primitive: Primitive, operand: torch.Tensor, implementation: str | None
    ) -> _Function:
        """The one named, else the preferred one for the format of `operand`."""
        name = implementation or self._first(primitive, _WORDS[operand.dtype])
        if name == INDUCTOR and self.compiles(primitive):
            return self._compiled(primitive)  # type: ignore[return-value]  # takes and gives what the others do
        if name not in known:
            raise UnknownName(f"{primitive} has no implementation {name!r}", hint="see implementations()")
        return known[name]

    def _rows(self, starts: list[int], length: int) -> slice | torch.Tensor:
        """Where sequences of `length` stand: a slice when they are neighbours, else indices [len(starts) * length]."""
        end = starts[0] + length * len(starts)
        if starts == list(range(starts[0], end, length)):
            return slice(starts[0], end)
        return (torch.tensor(starts)[:, None] + torch.arange(length)).flatten().to(self.torch_device)

    def _allocate(self, nbytes: int, alignment: int) -> torch.Tensor:
        return _buffer(nbytes, alignment, device=self.torch_device)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> torch.Tensor:
        """Page-locked by torch where the device is another than the host."""
        return _buffer(nbytes, alignment, pin_memory=pinned and self.torch_device != "cpu")

    def _at(self, tensor: torch.Tensor, places: Sequence[Sequence[int]]) -> list[Any]:
        return [tensor[tuple(place)].tolist() for place in places]

    def _part(self, tensor: torch.Tensor, offset: int, nbytes: int) -> torch.Tensor:
        return tensor.view(torch.int8)[offset : offset + nbytes]

    def _address(self, tensor: torch.Tensor) -> int:
        return int(tensor.data_ptr())

    def _from_host(self, values: Sequence[Any], dtype: str) -> torch.Tensor:
        return self.tensor(values, self._format(dtype))

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
        """Values repeat after 2**20 elements: drawing is serial, copying lets all threads touch the memory first."""
        out = torch.empty(shape, dtype=self._format(dtype), device=self.torch_device)
        generator = torch.Generator().manual_seed(seed)
        size = (min(out.numel(), _BLOCK),)
        if dtype == "int8":
            block = torch.randint(-128, 128, size, dtype=torch.int8, generator=generator)
        else:
            block = torch.randn(size, generator=generator)
        block = block.to(out.device, out.dtype)
        blocks, rest = divmod(out.numel(), _BLOCK)
        out.view(-1)[: blocks * _BLOCK].unflatten(0, (blocks, _BLOCK)).copy_(block) if blocks else None
        out.view(-1)[blocks * _BLOCK :].copy_(block[:rest])
        return out

    def _prepare_linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: str, implementation: str
    ) -> Linear[torch.Tensor]:
        prepare = _LINEAR.get(implementation)
        if prepare is None:
            raise UnknownName(
                f"linear in {dtype} has no implementation {implementation!r}", hint="see implementations()"
            )
        weight = weight.to(self.torch_device, self._format(dtype))
        kind = torch.int32 if dtype == "int8" else weight.dtype
        return prepare(weight, None if bias is None else bias.to(weight.device, kind))

    def _weight_only_formats(self) -> tuple[str, ...]:
        return weight_only_formats(torch.device(self.torch_device).type)

    def _prepare_weight_only(self, weight: torch.Tensor, dtype: str) -> Linear[torch.Tensor]:
        return WEIGHT_ONLY[dtype](weight)

    def _swap(
        self,
        pool: torch.Tensor,
        blocks: Sequence[int],
        host: torch.Tensor,
        block_bytes: int,
        to_device: bool,
        implementation: str | None,
    ) -> None:
        self._chosen(SWAP, Primitive.SWAP, pool, implementation)(pool, blocks, host, block_bytes, to_device)

    def _format(self, dtype: str) -> torch.dtype:
        """What holds a number in the format that a capability calls `dtype`."""
        return DTYPES[dtype]

"""An adapter that keeps its own clock, so that whatever times it is exact and instant."""

import math
import operator
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.primitive import Done, Event, Linear, MemoryReading, Primitive, Support, Telemetry
from vllm_probe.core.system import Host
from vllm_probe.core.values import FenceScope
from vllm_probe.core.version import __version__
from vllm_probe.vendors.null.probe import load_script

_BITS = {"fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8_e4m3": 8, "int8": 8, "int4": 4, "int32": 32}


@dataclass(slots=True, eq=False)
class NullTensor:
    """An array; where its elements are all the same it takes no memory.

    Attributes:
        shape: sizes.
        dtype: capability word, or `int32`.
        value: every element, or all of them in order.
        address: where it would be.
        host: `pinned` or `pageable` for memory of the host, null for the device's.
    """

    shape: tuple[int, ...]
    dtype: str
    value: float | list[float] = 0
    address: int = 0
    host: Literal["pinned", "pageable"] | None = None

    @property
    def elements(self) -> list[float]:
        """All elements in order."""
        return self.value if isinstance(self.value, list) else [self.value] * math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * _BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class Arrival:
    """The event of a transfer.

    Attributes:
        adapter: whose clock it waits by.
        at_s: when the transfer is over.
    """

    adapter: "NullAdapter"
    at_s: float

    def wait(self) -> None:
        """Lets the clock go on until then."""
        self.adapter.clock_s = max(self.adapter.clock_s, self.at_s)


class NullAdapter(HardwareAdapter[NullTensor]):
    """The scripted device. Every call advances `clock_s` by what the script makes it cost."""

    memory_fence_scope = "device"

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.script = load_script(host)
        self.clock_s = 0.0
        self._noise = random.Random(self.script.seed)  # noqa: S311 - not a secret
        self._next_address = 1
        self.copy_queues = self.script.copy_queues
        self._free_at: dict[str | int, float] = {}

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """One, `scripted`: linear in the formats of the script."""
        return ("scripted",) if primitive is Primitive.LINEAR and dtype in self.script.rates_gflops else ()

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:  # noqa: ARG002
        if self.implementations(primitive, dtype):
            return Support(ok=True)
        return Support(ok=False, reason=f"the script has no {primitive} in {dtype}")

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        target.value = source.value
        if source.host is target.host is None:
            self._move("copy", 2 * source.nbytes)
            return Done()
        self._spend("copy", 0.0)
        event = Arrival(self, self._transfer(source, target, queue))
        if not non_blocking:
            event.wait()
        return event

    def _transfer(self, source: NullTensor, target: NullTensor, queue: int) -> float:
        """When the transfer is over: it waits for its queue, and shares its way of the link with the others."""
        script, pageable = self.script, "pageable" in (source.host, target.host)
        way = "d2h" if target.host else "h2d"
        start = max(self.clock_s, self._free_at.get(queue, 0.0))
        rate = min(script.queue_gb_s, script.pageable_gb_s) if pageable else script.queue_gb_s
        link = max(start, self._free_at.get(way, 0.0)) + source.nbytes / (script.link_gb_s * 1e9)
        self._free_at[way] = link
        self._free_at[queue] = max(start + source.nbytes / (rate * 1e9), link)
        return self._free_at[queue]

    def _read(self, source: NullTensor) -> NullTensor:
        self._move("read", source.nbytes)
        value = source.value
        return NullTensor((), source.dtype, sum(value) if isinstance(value, list) else value * math.prod(source.shape))

    def _triad(self, b: NullTensor, c: NullTensor, scale: float, out: NullTensor) -> None:
        self._move("triad", b.nbytes + c.nbytes + out.nbytes)
        if isinstance(b.value, list) or isinstance(c.value, list):
            out.value = [x + scale * y for x, y in zip(b.elements, c.elements, strict=True)]
        else:
            out.value = b.value + scale * c.value

    def _fence(self, scope: FenceScope) -> None:
        """Nothing is ever out of order, and `system` waits for the transfers."""
        if scope == "system":
            self._synchronize()

    def _synchronize(self) -> None:
        """Waits for the transfers; nothing else is ever queued."""
        self.clock_s = max(self.clock_s, *self._free_at.values()) if self._free_at else self.clock_s

    def _clock(self) -> float:
        return self.clock_s

    def _telemetry(self) -> Telemetry:
        return Telemetry(clock_mhz=self._clock_mhz())

    def _clock_mhz(self) -> float:
        after = self.script.throttle_s
        return self.script.clock_mhz if after is None or self.clock_s < after else self.script.throttled_mhz

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Seconds by which `calls` advance the clock, with the script's noise."""
        begin = self.clock_s
        for call in calls:
            call()
        seconds = (self.clock_s - begin) * (1 + self.script.noise_pct / 100 * self._noise.uniform(-1, 1))
        self.clock_s = begin + seconds
        return seconds

    def software(self) -> dict[str, str]:
        """The version of vllm-probe."""
        return {"null": __version__}

    def _open(self) -> None: ...

    def _close(self) -> None: ...

    def _memory(self) -> MemoryReading:
        return MemoryReading(total_bytes=self.script.memory_bytes, free_bytes=self.script.memory_bytes)

    def _allocate(self, nbytes: int, alignment: int) -> NullTensor:
        self._spend("allocate", 0.0)
        if nbytes > self.script.memory_bytes:
            raise MemoryError(f"{nbytes} of {self.script.memory_bytes} bytes")
        address = -(-self._next_address // alignment) * alignment
        self._next_address = address + nbytes + 1
        return NullTensor((nbytes,), "int8", address=address)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> NullTensor:
        tensor = self._allocate(nbytes, alignment)
        tensor.host = "pinned" if pinned else "pageable"
        return tensor

    def _part(self, tensor: NullTensor, offset: int, nbytes: int) -> NullTensor | None:
        """Of elements that differ, those of a byte each are shown, as they are now."""
        value = tensor.value
        if isinstance(value, list):
            if tensor.dtype != "int8":
                return None
            value = value[offset : offset + nbytes]
        return NullTensor((nbytes,), "int8", value, tensor.address + offset)

    def _address(self, tensor: NullTensor) -> int:
        return tensor.address

    def _from_host(self, values: Sequence[Any], dtype: str) -> NullTensor:
        shape, elements = [len(values)], list(values)
        while elements and isinstance(elements[0], Sequence):
            shape.append(len(elements[0]))
            elements = [*chain.from_iterable(elements)]
        return NullTensor(tuple(shape), dtype, elements)

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> NullTensor:
        """One small integer from `seed`, everywhere."""
        tensor = NullTensor(shape, dtype, random.Random(seed).randint(1, 7))  # noqa: S311 - not a secret
        tensor.address = self._allocate(tensor.nbytes, self.alignment_bytes).address
        return tensor

    def _to_host(self, tensor: NullTensor) -> list[Any]:
        values: list[Any] = tensor.elements
        for size in reversed(tensor.shape[1:]):
            values = [[*row] for row in zip(*[iter(values)] * size, strict=True)]
        return values

    def _at(self, tensor: NullTensor, places: Sequence[Sequence[int]]) -> list[Any]:
        """Of what is all the same only as much is made as is asked for."""
        if isinstance(tensor.value, list):
            return super()._at(tensor, places)
        return [
            self._to_host(NullTensor((1, *tensor.shape[len(place) :]), tensor.dtype, tensor.value))[0]
            for place in places
        ]

    def _prepare_linear(
        self,
        weight: NullTensor,
        bias: NullTensor | None,
        dtype: str,
        implementation: str,  # noqa: ARG002 - there is one
    ) -> Linear[NullTensor]:
        curve = self.script.rates_gflops[dtype]

        def linear(rows: NullTensor) -> NullTensor:
            rate = max((pair for pair in curve if pair[0] <= rows.shape[0]), default=curve[0])[1]
            rate *= self._clock_mhz() / self.script.clock_mhz
            self._spend(f"linear.{dtype}", 2 * rows.shape[0] * math.prod(weight.shape) / (rate * 1e9))
            shape = (rows.shape[0], weight.shape[0])
            return NullTensor(shape, "int32" if dtype == "int8" else dtype, _product(rows, weight, bias))

        return linear

    def _move(self, call: str, nbytes: int) -> None:
        self._spend(call, nbytes / (self.script.bandwidth_gb_s * 1e9))

    def _spend(self, call: str, seconds: float) -> None:
        if self.script.faults.get(call) == "hang":
            threading.Event().wait()
        if call in self.script.faults:
            raise RuntimeError(self.script.faults[call])
        self.clock_s += seconds + self.script.launch_us * 1e-6


def _product(rows: NullTensor, weight: NullTensor, bias: NullTensor | None) -> float | list[float]:
    """`rows` [m, k] times `weight` [n, k] transposed plus `bias` [n], worked out where the elements differ."""
    n, k = weight.shape
    added = bias.value if bias else 0.0
    if not any(isinstance(value, list) for value in (rows.value, weight.value, added)):
        return k * rows.value * weight.value + added  # type: ignore[operator]  # numbers, as was just seen
    x, w, b = rows.elements, weight.elements, bias.elements if bias else [0.0] * n
    return [
        sum(map(operator.mul, x[i : i + k], w[j * k : j * k + k])) + b[j] for i in range(0, len(x), k) for j in range(n)
    ]

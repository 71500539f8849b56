"""What a result is compared with and how: operands of one case, and how far a format may be from the reference."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from vllm_probe.vendors.conformance import reference
from vllm_probe.vendors.conformance.outcome import Adapter

TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8_e4m3": 3e-1, "int8": 0.0}
"""Number format to the largest error allowed, relative to the value, or to the root mean square where that is more.

Operands are those of the format, so what is left is the rounding of intermediate values and of the result: with 8
bits (bf16) half a unit is 0.4 %, and some primitives round several times. fp32 leaves room for another order of sums.
"""


def values(shape: Sequence[int], dtype: str, seed: int) -> list[Any]:
    """Nested lists of standard normal numbers, of small whole ones for int8; the same for the same arguments."""
    source = random.Random(f"{seed} {shape} {dtype}")  # noqa: S311 - not a secret

    def draw(sizes: Sequence[int]) -> Any:
        if not sizes:
            return source.randint(-128, 127) if dtype == "int8" else source.gauss(0.0, 1.0)
        return [draw(sizes[1:]) for _ in range(sizes[0])]

    drawn: list[Any] = draw(shape)
    return drawn


@cache
def operand(shape: tuple[int, ...], dtype: str, seed: int, scale: float = 1.0) -> list[Any]:
    """`values` times `scale`, drawn once."""
    drawn = values(shape, dtype, seed)
    return drawn if scale == 1.0 else scaled(drawn, scale)


def scaled(nested: Any, scale: float) -> Any:
    """Nested lists with every number times `scale`."""
    return [scaled(inner, scale) for inner in nested] if isinstance(nested, list) else nested * scale


def samples(count: int, stride: int) -> list[int]:
    """Every `stride`-th of `count` places, the last, and both sides of where tiles of a power of two meet or end."""
    powers = [1 << bit for bit in range(count.bit_length())]
    seams = {end for power in powers for end in (power, count // power * power)}
    ends = {place for seam in seams for place in (seam - 1, seam)}
    return sorted({*range(0, count, stride), count - 1, *(place for place in ends if 0 <= place < count)})


def flat(nested: Any) -> Iterator[float]:
    """The numbers of nested lists in order."""
    if isinstance(nested, list):
        for inner in nested:
            yield from flat(inner)
    else:
        yield nested


def difference(got: Sequence[float], want: Sequence[float], dtype: str, allowed: float | None = None) -> str | None:
    """How `got` is wrong, null when it is within `allowed`, by default the tolerance of `dtype`."""
    if len(got) != len(want):
        return f"gives {len(got)} values, not {len(want)}"
    if bad := sum(not math.isfinite(x) for x in got):
        return f"{bad} of {len(got)} values are not finite"
    root = math.sqrt(reference.dot(want, want) / len(want)) or 1.0
    off = max(abs(g - w) / max(abs(w), root) for g, w in zip(got, want, strict=True))
    limit = TOLERANCE[dtype] if allowed is None else allowed
    return None if off <= limit else f"off by {off:.2g}, {limit:g} is allowed in {dtype}"


class Operands:
    """Operands of one case on the device, and their values there, which the reference takes."""

    def __init__(self, adapter: Adapter, dtype: str) -> None:
        self._adapter, self._dtype = adapter, dtype
        self._made: list[tuple[Any, list[Any]]] = []

    def put(self, nested: list[Any]) -> tuple[Any, list[Any]]:
        """The tensor of `nested`, and its values once rounded to the format."""
        tensor = self._adapter.from_host(nested, self._dtype)
        self._made.append((tensor, self._adapter.to_host(tensor)))
        return self._made[-1]

    def kept(self, call: Callable[[Any], Any], given: Any) -> Any:
        """What `call` gave for `given`, between two calls for another operand.

        The later one may not overwrite it. The earlier one leaves its own result in memory that is handed out again,
        where an earlier check may have left the right one, for a call that does not write all of it.
        """
        other = self._adapter.random(tuple(given.shape), self._dtype, seed=9)
        call(other)
        result = call(given)
        call(other)
        return result

    def changed(self) -> str | None:
        """Whether an operand is not what it was."""
        for number, (tensor, before) in enumerate(self._made):
            if self._adapter.to_host(tensor) != before:
                return f"changes operand {number}"
        return None

    def judge(
        self,
        result: Any,
        shape: Sequence[int],
        want: list[float],
        take: Callable[[Any], Any] = lambda host: host,
        allowed: float | None = None,
    ) -> str | None:
        """Why `result` is not a new tensor of `shape` with the values `want` where `take` looks."""
        if tuple(result.shape) != tuple(shape):
            return f"gives {[*result.shape]}, not {[*shape]}"
        got = [*flat(take(self._adapter.to_host(result)))]
        return difference(got, want, self._dtype, allowed) or self.changed()

"""The numerics gate: whether an implementation of a primitive agrees with the reference at shapes that are not tidy."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

from vllm_probe.core.primitive import Primitive
from vllm_probe.vendors.conformance import reference
from vllm_probe.vendors.conformance.outcome import Adapter, describe

TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8_e4m3": 3e-1, "int8": 0.0}
"""Number format to the largest error allowed, relative to the value, or to the root mean square where that is more.

Operands are those of the format, so what is left is the rounding of intermediate values and of the result: with 8
bits (bf16) half a unit is 0.4 %, and some primitives round several times. fp32 leaves room for another order of sums.
"""

_EPSILON = 1e-6
_LINEARS = (
    *((1, 64, 48), (5, 33, 7), (33, 130, 65), (32, 256, 256), (70, 512, 24)),
    *((3, 1030, 40), (2, 48, 1031), (150, 64, 16)),
)
"""Those behind the first five are large in one size only, so that the reference, in plain Python, stays quick."""
_NORMS = (((1, 128), (128,)), ((7, 33), (33,)), ((5, 3, 16), (3, 16)), ((2, 1024), (1024,)), ((2, 4099), (4099,)))
_HEADS = ((1, 1, 16), (5, 3, 64), (33, 2, 10), (3, 2, 128))
_ATTENTIONS = (
    ((1,), 1, 1, 16),
    ((7,), 2, 2, 64),
    ((5, 1, 12, 3), 4, 2, 16),
    ((3, 3, 3), 6, 1, 32),
    ((9, 300), 2, 1, 32),
    ((3, 5), 2, 1, 128),
)
"""Lengths of the sequences, heads, key heads, head dimension."""
_CHUNKS = ((5, 12), (40, 300))
"""Last tokens of a causal sequence whose attention is computed, and its length."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a primitive.

    Attributes:
        name: its shape, for people.
        shape: what `supports` is asked about.
        fault: why the implementation is wrong here, null when it is right.
    """

    name: str
    shape: tuple[int, ...]
    fault: Callable[[Adapter, str], str | None]


def gate(
    adapter: Adapter,
    primitive: Primitive,
    dtype: str,
    implementation: str,
    *,
    group_width: int | None = None,
    most: int | None = None,
) -> str | None:
    """Why `implementation` may not be used for `primitive` in `dtype`, with the number; null when it is right.

    Runs it at every shape of the suite that the adapter says it supports, or at `most` of them, from tidy to untidy. A
    linear can be launched with a group width.
    """
    cases = [c for c in _cases(primitive, dtype, group_width) if adapter.supports(primitive, dtype, c.shape).ok]
    if most and len(cases) > most:
        cases = [cases[i * (len(cases) - 1) // (most - 1)] for i in range(most)]
    if not cases:
        return "supports none of the shapes that are checked"
    for case in cases:
        try:
            fault = case.fault(adapter, implementation)
        except Exception as error:  # noqa: BLE001 - isolation point: the other implementations are still tried
            fault = describe(error)
        if fault:
            return f"{case.name}: {fault}"
    return None


def values(shape: Sequence[int], dtype: str, seed: int) -> list[Any]:
    """Nested lists of standard normal numbers, of small whole ones for int8; the same for the same arguments."""
    source = random.Random(f"{seed} {shape} {dtype}")  # noqa: S311 - not a secret

    def draw(sizes: Sequence[int]) -> Any:
        if not sizes:
            return source.randint(-128, 127) if dtype == "int8" else source.gauss(0.0, 1.0)
        return [draw(sizes[1:]) for _ in range(sizes[0])]

    drawn: list[Any] = draw(shape)
    return drawn


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


def _cases(primitive: Primitive, dtype: str, group_width: int | None) -> Iterator[Case]:
    match primitive:
        case Primitive.LINEAR:
            yield from _linears(dtype, group_width)
        case Primitive.ATTENTION:
            yield from _attentions(dtype)
        case Primitive.RMS_NORM:
            for shape, weight in _NORMS:
                yield Case(f"rows {[*shape]}", shape, partial(_rms_norm, shape, weight, dtype))
        case Primitive.ROPE:
            for heads in _HEADS:
                yield Case(f"heads {[*heads]}", heads, partial(_rope, heads, dtype))
        case Primitive.QUANTIZE:
            for rows_shape in ((1, 64), (5, 33)):
                yield Case(f"rows {[*rows_shape]}", rows_shape, partial(_quantize, rows_shape, dtype))
        case Primitive.SWAP:
            for block_bytes in (64, 4096):
                yield Case(f"blocks of {block_bytes} bytes", (8 * block_bytes,), partial(_swap, block_bytes))


def _linears(dtype: str, group_width: int | None) -> Iterator[Case]:
    for (m, k, n), biased in product(_LINEARS, (False,) if dtype == "int8" else (False, True)):
        name = f"[{m}, {k}] x [{n}, {k}]^T" + " + bias" * biased
        yield Case(name, (m, k, n), partial(_linear, (m, k, n), dtype, biased, group_width))


def _attentions(dtype: str) -> Iterator[Case]:
    for (lengths, heads, kv_heads, depth), causal in product(_ATTENTIONS, (False, True)):
        name = f"lengths {[*lengths]}, {heads}/{kv_heads} heads of {depth}" + ", causal" * causal
        sizes = (sum(lengths), lengths, heads, kv_heads, depth)
        yield Case(name, (sum(lengths), heads, depth), partial(_attention, sizes, dtype, causal))
    for tokens, length in _CHUNKS:
        run = partial(_attention, (tokens, (length,), 4, 2, 16), dtype, True)
        yield Case(f"the last {tokens} of {length} tokens, 4/2 heads of 16, causal", (tokens, 4, 16), run)


@cache
def _operand(shape: tuple[int, ...], dtype: str, seed: int) -> list[Any]:
    return values(shape, dtype, seed)


class _Operands:
    """Operands of one case on the device, and their values there, which the reference takes."""

    def __init__(self, adapter: Adapter, dtype: str) -> None:
        self._adapter, self._dtype = adapter, dtype
        self._made: list[tuple[Any, list[Any]]] = []

    def put(self, nested: list[Any]) -> tuple[Any, list[Any]]:
        """The tensor of `nested`, and its values once rounded to the format."""
        tensor = self._adapter.from_host(nested, self._dtype)
        self._made.append((tensor, self._adapter.to_host(tensor)))
        return self._made[-1]

    def kept(self, call: Callable[[Any], Any], operand: Any) -> Any:
        """What `call` gave for `operand`, after a call for another, which may not overwrite it."""
        result = call(operand)
        call(self._adapter.random(tuple(operand.shape), self._dtype, seed=9))
        return result

    def changed(self) -> str | None:
        """Whether an operand is not what it was."""
        for number, (tensor, before) in enumerate(self._made):
            if self._adapter.to_host(tensor) != before:
                return f"changes operand {number}"
        return None

    def judge(
        self, result: Any, shape: Sequence[int], want: list[float], take: Callable[[Any], Any] = lambda host: host
    ) -> str | None:
        """Why `result` is not a new tensor of `shape` with the values `want` where `take` looks."""
        if tuple(result.shape) != tuple(shape):
            return f"gives {[*result.shape]}, not {[*shape]}"
        return difference([*flat(take(self._adapter.to_host(result)))], want, self._dtype) or self.changed()


def _linear(
    sizes: tuple[int, int, int],
    dtype: str,
    biased: bool,
    group_width: int | None,
    adapter: Adapter,
    implementation: str,
) -> str | None:
    """Every value of small products, every seventh row and fifth column of large ones."""
    m, k, n = sizes
    operands = _Operands(adapter, dtype)
    x, rows = operands.put(_operand((m, k), dtype, 1))
    w, weight = operands.put(_operand((n, k), dtype, 2))
    b, bias = operands.put(_operand((n,), dtype, 3)) if biased else (None, None)
    operator = adapter.prepare_linear(w, b, dtype, implementation, group_width=group_width)
    sparse = m * n > 1000
    points = [*product(range(0, m, 7 if sparse else 1), range(0, n, 5 if sparse else 1))]
    want = reference.linear(rows, weight, bias, points)
    return operands.judge(operands.kept(operator, x), (m, n), want, lambda host: [host[i][j] for i, j in points])


def _attention(
    sizes: tuple[int, tuple[int, ...], int, int, int], dtype: str, causal: bool, adapter: Adapter, implementation: str
) -> str | None:
    """Every token of short sequences, every 29th and the last of long ones."""
    queries, lengths, heads, kv_heads, depth = sizes
    total = sum(lengths)
    operands = _Operands(adapter, dtype)
    q, query = operands.put(_operand((queries, heads, depth), dtype, 1))
    k, key = operands.put(_operand((total, kv_heads, depth), dtype, 2))
    v, value = operands.put(_operand((total, kv_heads, depth), dtype, 3))

    def attend(q: Any) -> Any:
        return adapter.attention(q, k, v, lengths, causal=causal, implementation=implementation)

    result = operands.kept(attend, q)
    tokens = [*range(0, queries, 29 if queries > 64 else 1), queries - 1]
    want = reference.attention(query, key, value, lengths, tokens, causal=causal)
    return operands.judge(result, (queries, heads, depth), want, lambda host: [host[t] for t in tokens])


def _rms_norm(
    shape: tuple[int, ...], weight_shape: tuple[int, ...], dtype: str, adapter: Adapter, implementation: str
) -> str | None:
    """The last of several rows is zeros, which only the epsilon keeps from a division by zero."""
    operands = _Operands(adapter, dtype)
    drawn = _operand(shape, dtype, 1)
    x, rows = operands.put([*drawn[:-1], [0.0] * shape[1]] if len(shape) == 2 and shape[0] > 1 else drawn)
    w, weight = operands.put(_operand(weight_shape, dtype, 2))
    result = operands.kept(lambda x: adapter.rms_norm(x, w, _EPSILON, implementation=implementation), x)
    rows = rows if len(shape) == 2 else [row for group in rows for row in group]
    want = reference.rms_norm(rows, weight if len(weight_shape) == 2 else [weight], _EPSILON)
    return operands.judge(result, shape, want)


def _rope(shape: tuple[int, int, int], dtype: str, adapter: Adapter, implementation: str) -> str | None:
    tokens, _, depth = shape
    half = depth // 2
    angles = [[position * 10_000.0 ** (-i / half) for i in range(half)] for position in range(tokens)]
    operands = _Operands(adapter, dtype)
    x, heads = operands.put(_operand(shape, dtype, 1))
    c, cosines = operands.put([[math.cos(angle) for angle in row] for row in angles])
    s, sines = operands.put([[math.sin(angle) for angle in row] for row in angles])
    result = operands.kept(lambda x: adapter.rope(x, c, s, implementation=implementation), x)
    return operands.judge(result, shape, reference.rope(heads, cosines, sines))


def _quantize(shape: tuple[int, int], dtype: str, adapter: Adapter, implementation: str) -> str | None:
    """The last row is zeros. A value may be rounded either way where it is within a thousandth of the middle."""
    operands = _Operands(adapter, dtype)
    x, rows = operands.put([*_operand(shape, dtype, 1), [0.0] * shape[1]])
    quantized, scales = adapter.quantize(x, implementation=implementation)
    got, got_scales = adapter.to_host(quantized), adapter.to_host(scales)
    if fault := difference([*flat(got_scales)], reference.scales(rows), "fp32"):
        return f"scales {fault}"
    if len(got) != len(rows) or any(len(row) != shape[1] for row in got):
        return f"gives {[*quantized.shape]}, not {[len(rows), shape[1]]}"
    exact = (
        (x / scale, q)
        for row, out, scale in zip(rows, got, got_scales, strict=True)
        for x, q in zip(row, out, strict=True)
    )
    off = max(abs(x - q) for x, q in exact)
    return operands.changed() if off <= 0.501 else f"off by {off:.3g} steps, half of one is allowed"


def _swap(block_bytes: int, adapter: Adapter, implementation: str) -> str | None:
    """Three of eight blocks out, others into their place; blocks that are not named stay."""
    blocks = (5, 0, 2)
    pool, host = adapter.allocate(8 * block_bytes), adapter.allocate_pinned(len(blocks) * block_bytes)
    try:
        before, other = (values((count * block_bytes,), "int8", count) for count in (8, len(blocks)))
        adapter.copy(adapter.from_host(before, "int8"), pool).wait()
        run = partial(adapter.swap, pool, blocks, host, block_bytes=block_bytes, implementation=implementation)
        run(to_device=False)
        if adapter.to_host(host) != [x for b in blocks for x in before[b * block_bytes : (b + 1) * block_bytes]]:
            return "what came to the host is not what the blocks held"
        adapter.copy(adapter.from_host(other, "int8"), host).wait()
        run(to_device=True)
        for i, b in enumerate(blocks):
            before[b * block_bytes : (b + 1) * block_bytes] = other[i * block_bytes : (i + 1) * block_bytes]
        return None if adapter.to_host(pool) == before else "what came to the blocks is not what the host held"
    finally:
        adapter.release(host)

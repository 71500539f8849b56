"""One run of each primitive against the reference."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from vllm_probe.vendors.conformance import reference
from vllm_probe.vendors.conformance.numerics import Operands, difference, flat, operand, samples, values
from vllm_probe.vendors.conformance.outcome import Adapter

_MOST = 127
"""Of int8, in the first row and column of a product: 1041 of their squares are more than fp32 counts one by one."""

_NORMED = {"bf16": 2.1 * 2**-8, "fp16": 2.1 * 2**-11}
"""Errors allowed of an RMS norm that rounds twice, half a unit each, as the contract says."""

_LOUD = 12.0
"""Scores of 12 * 12 * head_dim / sqrt(head_dim), which are whole numbers of few bits and beyond what exp reaches."""


def linear(
    sizes: tuple[int, int, int],
    dtype: str,
    biased: bool,
    group_width: int | None,
    adapter: Adapter,
    implementation: str,
) -> str | None:
    """Every value of small products, every seventh row and fifth column of large ones and the ends of tiles."""
    m, k, n = sizes
    operands = Operands(adapter, dtype)
    drawn_x, drawn_w = operand((m, k), dtype, 1), operand((n, k), dtype, 2)
    if dtype == "int8":
        drawn_x, drawn_w = [[_MOST] * k, *drawn_x[1:]], [[_MOST] * k, *drawn_w[1:]]
    x, rows = operands.put(drawn_x)
    w, weight = operands.put(drawn_w)
    b, bias = operands.put(operand((n,), dtype, 3)) if biased else (None, None)
    operator = adapter.prepare_linear(w, b, dtype, implementation, group_width=group_width)
    points = points_of(m, n)
    want = reference.linear(rows, weight, bias, points)
    return operands.judge(operands.kept(operator, x), (m, n), want, lambda host: [host[i][j] for i, j in points])


def points_of(m: int, n: int) -> list[tuple[int, int]]:
    """Rows and columns of a product [m, n] that are looked at."""
    sparse = m * n > 1000
    return [*product(samples(m, 7 if sparse else 1), samples(n, 5 if sparse else 1))]


def attention(
    sizes: tuple[int, tuple[int, ...], int, int, int],
    dtype: str,
    causal: bool,
    is_loud: bool,
    adapter: Adapter,
    implementation: str,
) -> str | None:
    """Every token of short sequences, of long ones every 29th and the ends of tiles.

    Where it `is_loud` all scores are one large number or its negative, the same in every format and order of sums.
    """
    queries, lengths, heads, kv_heads, depth = sizes
    total = sum(lengths)
    operands = Operands(adapter, dtype)
    shapes = (queries, heads, depth), (total, kv_heads, depth)
    draws = [_loud(shape, 2 + i) if is_loud else operand(shape, dtype, 1 + i) for i, shape in enumerate(shapes)]
    (q, query), (k, key) = map(operands.put, draws)
    v, value = operands.put(operand((total, kv_heads, depth), dtype, 3))

    def attend(q: Any) -> Any:
        return adapter.attention(q, k, v, lengths, causal=causal, implementation=implementation)

    result = operands.kept(attend, q)
    tokens = samples(queries, 29 if queries > 64 else 1)
    want = reference.attention(query, key, value, lengths, tokens, causal=causal)
    return operands.judge(result, (queries, heads, depth), want, lambda host: [host[t] for t in tokens])


def _loud(shape: tuple[int, int, int], period: int) -> list[Any]:
    """`_LOUD` in every place of a head, negative in every `period`-th from the first on."""
    tokens, heads, depth = shape
    return [[[_LOUD if (t + h) % period else -_LOUD] * depth for h in range(heads)] for t in range(tokens)]


def rms_norm(
    sizes: tuple[tuple[int, ...], tuple[int, ...], float, float], dtype: str, adapter: Adapter, implementation: str
) -> str | None:
    """The last of several rows is zeros, which only the epsilon keeps from a division by zero."""
    shape, weight_shape, scale, epsilon = sizes
    operands = Operands(adapter, dtype)
    drawn = operand(shape, dtype, 1, scale)
    x, rows = operands.put([*drawn[:-1], [0.0] * shape[1]] if len(shape) == 2 and shape[0] > 1 else drawn)
    w, weight = operands.put(operand(weight_shape, dtype, 2))
    result = operands.kept(lambda x: adapter.rms_norm(x, w, epsilon, implementation=implementation), x)
    rows = rows if len(shape) == 2 else [row for group in rows for row in group]
    want = reference.rms_norm(rows, weight if len(weight_shape) == 2 else [weight], epsilon)
    return operands.judge(result, shape, want, allowed=_NORMED.get(dtype))


def rope(shape: tuple[int, int, int], dtype: str, adapter: Adapter, implementation: str) -> str | None:
    """Positions from 0 on."""
    tokens, _, depth = shape
    half = depth // 2
    angles = [[position * 10_000.0 ** (-i / half) for i in range(half)] for position in range(tokens)]
    operands = Operands(adapter, dtype)
    x, heads = operands.put(operand(shape, dtype, 1))
    c, cosines = operands.put([[math.cos(angle) for angle in row] for row in angles])
    s, sines = operands.put([[math.sin(angle) for angle in row] for row in angles])
    result = operands.kept(lambda x: adapter.rope(x, c, s, implementation=implementation), x)
    return operands.judge(result, shape, reference.rope(heads, cosines, sines))


def quantize(shape: tuple[int, int], scale: float, dtype: str, adapter: Adapter, implementation: str) -> str | None:
    """The last row is zeros. A value may be rounded either way where it is within a thousandth of the middle."""
    operands = Operands(adapter, dtype)
    x, rows = operands.put([*operand(shape, dtype, 1, scale), [0.0] * shape[1]])
    quantized, scales = operands.kept(lambda x: adapter.quantize(x, implementation=implementation), x)
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


def swap(block_bytes: int, count: int, blocks: Sequence[int], adapter: Adapter, implementation: str) -> str | None:
    """`blocks` of `count` out, others into their place; blocks that are not named stay."""
    pool, host = adapter.allocate(count * block_bytes), adapter.allocate_pinned(len(blocks) * block_bytes)
    try:
        before, other = (values((number * block_bytes,), "int8", number) for number in (count, len(blocks)))
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

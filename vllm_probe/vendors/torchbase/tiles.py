"""A linear in Triton whose tiles are launched with a chosen number of lanes, for the sweep of group widths."""

from typing import Any

import torch
import triton
import triton.language as tl

from vllm_probe.core.primitive import Linear

_ROWS, _COLUMNS, _DEPTH = 64, 64, 32
_RESULT = {torch.int8: torch.int32}


def _tiles(  # noqa: PLR0913, PLR0917 - a kernel's operands
    x: Any,
    weight: Any,
    bias: Any,
    out: Any,
    m: Any,
    n: Any,
    k: Any,
    biased: tl.constexpr,
    sums: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """One tile [height, width] of x [m, k] times weight [n, k] transposed plus bias [n], all of them contiguous."""
    rows = (tl.program_id(0) * height + tl.arange(0, height)).to(tl.int64)[:, None]
    columns = (tl.program_id(1) * width + tl.arange(0, width)).to(tl.int64)[None, :]
    total = tl.zeros((height, width), dtype=sums)
    for begin in range(0, k, depth):
        inner = begin + tl.arange(0, depth)
        left = tl.load(x + rows * k + inner[None, :], mask=(rows < m) & (inner[None, :] < k), other=0)
        right = tl.load(weight + columns * k + inner[:, None], mask=(columns < n) & (inner[:, None] < k), other=0)
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=sums)
    if biased:
        total += tl.load(bias + columns, mask=columns < n, other=0).to(sums)
    tl.store(out + rows * n + columns, total.to(out.dtype.element_ty), mask=(rows < m) & (columns < n))


_KERNEL: Any = triton.jit(_tiles)


def tiled(weight: torch.Tensor, bias: torch.Tensor | None, num_warps: int) -> Linear[torch.Tensor]:
    """The linear of `weight` [n, k], in int8 with sums in int32, `num_warps` groups of lanes to a tile."""
    weight = weight.contiguous()
    n, k = weight.shape
    result = _RESULT.get(weight.dtype, weight.dtype)
    sums = tl.int32 if result is torch.int32 else tl.float32

    def linear(rows: torch.Tensor) -> torch.Tensor:
        m = len(rows)
        out = torch.empty((m, n), dtype=result, device=rows.device)
        grid = (triton.cdiv(m, _ROWS), triton.cdiv(n, _COLUMNS))
        shape = {"height": _ROWS, "width": _COLUMNS, "depth": _DEPTH}
        operands = (rows.contiguous(), weight, out if bias is None else bias, out, m, n, k)
        _KERNEL[grid](*operands, biased=bias is not None, sums=sums, num_warps=num_warps, **shape)
        return out

    return linear

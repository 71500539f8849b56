"""Row-wise operations of torch: rotary positions, RMS norm and quantization, each in several ways."""

from collections.abc import Callable

import torch
from torch.nn import functional

_CACHED = 1 << 19
"""Elements of a block whose operands stay in a CPU's second-level cache: 1 MiB of bf16."""


def in_halves(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions in four operators that write each half in place: least memory, least launches."""
    first, second = heads.chunk(2, dim=-1)
    cosines, sines, out = cosines[:, None], sines[:, None], torch.empty_like(heads)
    out_first, out_second = out.chunk(2, dim=-1)
    torch.mul(first, cosines, out=out_first).addcmul_(second, sines, value=-1)
    torch.mul(second, cosines, out=out_second).addcmul_(first, sines)
    return out


def in_blocks(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions over whole heads beside the same with halves exchanged, the sign in the table of sines.

    A CPU's vector loops then run over a head and not over half of one. A part at a time stays in its cache; what is
    one part is turned in halves.
    """
    if heads.numel() <= _CACHED:
        return in_halves(heads, cosines, sines)
    half, out = heads.shape[-1] // 2, torch.empty_like(heads)
    rows = max(1, _CACHED // heads[0].numel()) if heads.is_cpu else len(heads)
    cosines, sines = torch.cat((cosines, cosines), -1)[:, None], torch.cat((-sines, sines), -1)[:, None]
    parts = (tensor.split(rows) for tensor in (heads, cosines, sines, out))
    for block, cosine, sine, target in zip(*parts, strict=True):
        torch.mul(block, cosine, out=target).addcmul_(block.roll(half, -1), sine)
    return out


def naive(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions as models are written, which is what others are measured against.

    `rotate_half` of https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama/modeling_llama.py.
    """
    cosines, sines = (torch.cat((table, table), -1)[:, None] for table in (cosines, sines))
    first, second = heads.chunk(2, dim=-1)
    return heads * cosines + torch.cat((-second, first), dim=-1) * sines


def turned(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions as one expression without joins, which a compiler turns into one loop over vectors."""
    pairs = heads.unflatten(-1, (2, -1)).float()  # [tokens, heads, 2, head_dim / 2]
    cosines, sines = cosines.float()[:, None, None], sines.float()[:, None, None]
    signed = torch.cat((-sines, sines), -2)
    return (pairs * cosines + pairs.flip(-2) * signed).to(heads.dtype).flatten(-2)


def by_operators(rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm, on a CPU up to six times as fast as torch's own, which sums squares without vectors."""
    exact = rows.to(torch.float32, copy=True)
    squares = torch.linalg.vector_norm(exact, dim=-1, keepdim=True).square_()
    return exact.mul_(squares.div_(rows.shape[-1]).add_(epsilon).rsqrt_()).to(rows.dtype).mul_(weight)


def by_torch(rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm by torch's own operator, which is one kernel on CUDA and ROCm."""
    return functional.rms_norm(rows, rows.shape[-1:], eps=epsilon).mul_(weight)


def normed(rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm as one expression, for a compiler."""
    exact = rows.float()
    return (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + epsilon)).to(rows.dtype) * weight


def quantized(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 rows and their scales: divided, not multiplied by an inverse, so that every value is exactly rounded."""
    exact = rows.to(torch.float32, copy=True)
    scales = exact.abs().amax(-1, keepdim=True).div_(127)
    scales.masked_fill_(scales == 0, 1)
    return exact.div_(scales).round_().to(torch.int8), scales.squeeze(-1)


def quantized_in_blocks(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `quantized`, a part at a time, so that what is between its operators stays in cache."""
    parts = [quantized(block) for block in rows.split(max(1, _CACHED // max(1, rows.shape[-1])))]
    out, scales = zip(*parts, strict=True)
    return torch.cat(out), torch.cat(scales)


ROPE: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "eager": in_halves,
    "blocked": in_blocks,
    "naive": naive,
}
"""Name to an implementation of `HardwareAdapter.rope`."""

RMS_NORM: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "eager": by_operators,
    "aten": by_torch,
}
"""Name to an implementation of `HardwareAdapter.rms_norm`."""

QUANTIZE: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "eager": quantized,
    "blocked": quantized_in_blocks,
}
"""Name to an implementation of `HardwareAdapter.quantize`."""

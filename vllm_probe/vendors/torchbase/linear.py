"""Linear operators of torch, prepared for one weight."""

from collections.abc import Callable

import torch
from torch.nn import functional

from vllm_probe.core.errors import UnknownName
from vllm_probe.core.primitive import Linear
from vllm_probe.vendors.torchbase.rowwise import quantized

_GROUP = 32
"""Neighbours in a row of an int4 weight that share a scale and a zero."""


def dense(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear[torch.Tensor]:
    """The linear of torch itself."""
    return lambda rows: functional.linear(rows, weight, bias)


def integer(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear[torch.Tensor]:
    """Rows times `weight`, both int8, in int32; oneDNN wants the transposed weight stored as it is read, others not."""
    columns, multiply = weight.t(), torch._int_mm  # noqa: SLF001 - has no public name
    columns = columns.contiguous() if weight.is_cpu else columns
    if bias is None:
        return lambda rows: multiply(rows, columns)
    return lambda rows: multiply(rows, columns).add_(bias)


def narrow_int8(weight: torch.Tensor) -> Linear[torch.Tensor]:
    """`weight` [n, k] in int8 with a scale for each row, widened inside the kernel."""
    kept, scales = quantized(weight)
    scales, multiply = scales.bfloat16(), torch._weight_int8pack_mm  # noqa: SLF001 - has no public name
    return lambda rows: multiply(rows, kept, scales)


def narrow_int4(weight: torch.Tensor) -> Linear[torch.Tensor]:
    """`weight` [n, k] in int4 with a scale and a zero for each `_GROUP` of a row: (q - 8) * scale + zero.

    The layout is that of `_group_quantize_tensor` in torch's tests (test/test_linalg.py). A CPU takes n in multiples of
    16, CUDA n in multiples of 8 and k in multiples of 128.
    """
    n, k = weight.shape
    if n % (16 if weight.is_cpu else 8) or k % (_GROUP if weight.is_cpu else 128):
        raise UnknownName(f"no int4 kernel takes a weight of [{n}, {k}]", hint="keep it in int8")
    groups = weight.float().unflatten(-1, (-1, _GROUP))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp_(min=torch.finfo(torch.bfloat16).tiny).bfloat16().float()
    zero = (low + 8 * scale).bfloat16().float()
    quants = ((groups - zero) / scale + 8).round_().clamp_(0, 15).to(torch.int32).flatten(-2)
    table = torch.stack((scale, zero), -1).squeeze(-2).transpose(0, 1).contiguous().bfloat16()  # [k / group, n, 2]
    if weight.is_cpu:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(quants, 1)  # noqa: SLF001 - registered operators
        on_cpu = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001
        return lambda rows: on_cpu(rows, packed, _GROUP, table)
    pairs = (quants[:, ::2] << 4 | quants[:, 1::2]).to(torch.uint8)
    packed = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)  # noqa: SLF001
    elsewhere = torch.ops.aten._weight_int4pack_mm  # noqa: SLF001
    return lambda rows: elsewhere(rows, packed, _GROUP, table)


_OPERATORS = {"int8": ("_weight_int8pack_mm",) * 2, "int4": ("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu")}

WEIGHT_ONLY: dict[str, Callable[[torch.Tensor], Linear[torch.Tensor]]] = {"int8": narrow_int8, "int4": narrow_int4}
"""Format that a weight is kept in to what prepares it."""


def weight_only_formats(device_type: str) -> tuple[str, ...]:
    """Formats of `WEIGHT_ONLY` for which this build of torch has a kernel on `device_type`."""
    key = device_type.upper()
    return tuple(
        word
        for word, (general, on_cpu) in _OPERATORS.items()
        if has_kernel(on_cpu if device_type == "cpu" else general, key)
    )


def has_kernel(operator: str, key: str) -> bool:
    """Whether this build of torch has `operator` at the dispatch key `key`, such as `CUDA`."""
    known = getattr(torch.ops.aten, operator, None)
    return known is not None and bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key)  # noqa: SLF001 - has no public name
    )

"""Primitives that are right at small and tidy shapes, at ordinary numbers, in the first call or by the right name."""

import math
import struct
from collections.abc import Callable
from typing import Any

from tests.vendors.scripted import Complete
from vllm_probe.core.primitive import Compiled, CompileHints, Primitive
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor

Hooks = dict[str, Callable[..., Any]]
_EXP_REACHES = 88.0  # in fp32


def linear_with(change: Callable[[list[list[float]]], None]) -> Callable[..., Any]:
    """The linear whose result [m][n] is changed in place."""

    def linear(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
        right = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

        def wrong(rows: Any) -> NullTensor:
            result = right(rows)
            lines = self.to_host(result)
            change(lines)
            return NullTensor(result.shape, result.dtype, [value for line in lines for value in line])

        return wrong

    return linear


def _no_last_row_of_many(lines: list[list[float]]) -> None:
    if len(lines) > 32:
        lines[-1] = [0.0] * len(lines[-1])


def _no_last_row_of_a_tile_that_begins(lines: list[list[float]]) -> None:
    if len(lines) % 32 == 1 and len(lines) > 1:
        lines[-1] = [0.0] * len(lines[-1])


def _no_column_behind_a_tile(lines: list[list[float]]) -> None:
    if len(lines[0]) % 64 == 1:
        for line in lines:
            line[-1] = 0.0


def _no_rows_beyond(count: int) -> Callable[[list[list[float]]], None]:
    def change(lines: list[list[float]]) -> None:
        lines[count:] = [[0.0] * len(line) for line in lines[count:]]

    return change


def _quantize_with(change: Callable[[list[list[float]]], None]) -> Callable[..., Any]:
    def quantize(self: Complete, rows: Any, name: str | None) -> Any:
        quantized, scales = Complete._quantize(self, rows, name)
        lines = self.to_host(quantized)
        change(lines)
        return NullTensor(rows.shape, "int8", [value for line in lines for value in line]), scales

    return quantize


def _no_columns_from_64_on(lines: list[list[float]]) -> None:
    for line in lines:
        line[64:] = [0.0] * len(line[64:])


def _quantizing_into_one_buffer(self: Complete, rows: Any, name: str | None) -> Any:
    fresh = Complete._quantize(self, rows, name)
    kept = self.__dict__.setdefault("kept", {}).setdefault(rows.shape, fresh)
    for old, new in zip(kept, fresh, strict=True):
        old.value = new.value
    return kept


def _turning_33_tokens(self: Complete, heads: Any, cosines: Any, sines: Any, name: str | None) -> NullTensor:
    turned = Complete._rope(self, heads, cosines, sines, name)
    end = 33 * math.prod(heads.shape[1:])
    return NullTensor(heads.shape, heads.dtype, [*turned.elements[:end], *heads.elements[end:]])


def _swapping_three(self: Complete, pool: Any, blocks: Any, *rest: Any) -> None:
    if len(blocks) <= 3:
        Complete._swap(self, pool, blocks, *rest)


def _unshifted(self: Complete, query: Any, key: Any, value: Any, *rest: Any) -> NullTensor:
    result = Complete._attention(self, query, key, value, *rest)
    q, k = (max(map(abs, tensor.elements)) for tensor in (query, key))
    if q == k and q * k * math.sqrt(query.shape[2]) > _EXP_REACHES and len({*map(abs, query.elements)}) == 1:
        return NullTensor(result.shape, result.dtype, math.nan)
    return result


def _squaring_in_fp16(self: Complete, rows: Any, weight: Any, epsilon: float, name: str | None) -> NullTensor:
    if max(map(abs, rows.elements)) ** 2 > 65504:
        return NullTensor(rows.shape, rows.dtype, 0.0)
    return Complete._rms_norm(self, rows, weight, epsilon, name)


def _bf16(number: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    rounded: float = struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]
    return rounded


def _norm_in_bf16(self: Complete, rows: Any, weight: Any, epsilon: float, name: str | None) -> NullTensor:
    if rows.dtype != "bf16":
        return Complete._rms_norm(self, rows, weight, epsilon, name)
    n, out = rows.shape[-1], list[float]()
    for at in range(0, len(rows.elements), n):
        row, first = rows.elements[at : at + n], at % len(weight.elements)
        mean = _bf16(sum(_bf16(x * x) for x in row) / n)
        root = _bf16(1 / math.sqrt(_bf16(mean + epsilon)))
        out += [_bf16(_bf16(x * root) * w) for x, w in zip(row, weight.elements[first : first + n], strict=True)]
    return NullTensor(rows.shape, "bf16", out)


def _fixed_epsilon(self: Complete, rows: Any, weight: Any, _: float, name: str | None) -> NullTensor:
    return Complete._rms_norm(self, rows, weight, 1e-6, name)


def _narrow(change: Callable[[NullAdapter, Any, Any, NullTensor], NullTensor]) -> Hooks:
    """The weight-only linear with its result changed by `change`, which gets adapter, rows, weight and the result."""

    def prepare(self: Complete, weight: Any, dtype: str) -> Any:
        right = Complete._prepare_weight_only(self, weight, dtype)
        return lambda rows: change(self, rows, weight, right(rows))

    return {"_prepare_weight_only": prepare}


def _small_only(self: NullAdapter, rows: Any, weight: Any, right: NullTensor) -> NullTensor:
    small = rows.shape[0] <= 5 and weight.shape[1] <= 64
    return right if small else NullTensor(right.shape, "bf16", 0.0)


def _in_one_buffer(self: NullAdapter, rows: Any, weight: Any, right: NullTensor) -> NullTensor:
    kept: NullTensor = self.__dict__.setdefault("kept", {}).setdefault(right.shape, right)
    kept.value = right.value
    return kept


def _zeros(tensor: NullTensor) -> NullTensor:
    return NullTensor(tensor.shape, tensor.dtype, 0.0)


def _right_once(self: Complete, function: Any, hints: CompileHints) -> Compiled:
    calls = list[None]()

    def compiled(rows: Any) -> NullTensor:
        calls.append(None)
        result: NullTensor = function(rows)
        return result if len(calls) == 1 else _zeros(result)

    return Compiled(function=compiled, backend="magic", reason="magic")


def _right_until_settled(self: Complete, function: Any, hints: CompileHints) -> Compiled:
    def compiled(rows: Any) -> NullTensor:
        result: NullTensor = function(rows)
        return _zeros(result) if self.__dict__.get("is_settled") else result

    return Compiled(function=compiled, backend="magic", reason="magic")


def _settled(self: Complete, timeout_s: float) -> bool:
    self.__dict__["is_settled"] = True
    return True


def _by_any_name(primitive: Primitive) -> Hooks:
    """The public method, which hands its operands on whatever name it gets."""

    def method(self: Complete, *operands: Any, implementation: str | None = None, **named: Any) -> Any:
        return getattr(self, f"_{primitive}")(*operands, *named.values(), implementation)

    return {str(primitive): method}


PRIMITIVE_FAULTS: dict[str, tuple[Hooks, str, str]] = {
    "a linear without its last row where there are many": (
        {"_prepare_linear": linear_with(_no_last_row_of_many)},
        "linear: fp32",
        r"\[33, 130\] x \[65, 130\]\^T: off by 1",
    ),
    "a linear without the one row of its last tile": (
        {"_prepare_linear": linear_with(_no_last_row_of_a_tile_that_begins)},
        "linear: fp32",
        r"\[33, 130\] x \[65, 130\]\^T: off by 1",
    ),
    "a linear without the one column of its last tile": (
        {"_prepare_linear": linear_with(_no_column_behind_a_tile)},
        "linear: fp32",
        r"\[33, 130\] x \[65, 130\]\^T: off by 1",
    ),
    "a linear of 150 rows": (
        {"_prepare_linear": linear_with(_no_rows_beyond(150))},
        "linear: fp32",
        r"\[1031, 16\] x \[8, 16\]\^T: off by 1",
    ),
    "a linear of 512 rows": (
        {"_prepare_linear": linear_with(_no_rows_beyond(512))},
        "linear: fp32",
        r"\[1031, 16\] x \[8, 16\]\^T: off by 1",
    ),
    "quantizing 64 columns": (
        {"_quantize": _quantize_with(_no_columns_from_64_on)},
        "quantize",
        r"rows \[3, 1100\]: off by 127 steps",
    ),
    "quantizing six rows": ({"_quantize": _quantize_with(_no_rows_beyond(6))}, "quantize", r"rows \[257, 24\]: off by"),
    "quantizing into one buffer": ({"_quantize": _quantizing_into_one_buffer}, "quantize", "scales off by"),
    "a rotation of 33 tokens": ({"_rope": _turning_33_tokens}, "rope", r"heads \[257, 2, 16\]: off by"),
    "a swap of three blocks": (
        {"_swap": _swapping_three},
        "swap",
        "70 of 101 blocks of 48 bytes: what came to the host",
    ),
    "attention that does not take the maximum off": (
        {"_attention": _unshifted},
        "attention",
        "large scores: 3136 of 3136 values are not finite",
    ),
    "a norm that squares in fp16": ({"_rms_norm": _squaring_in_fp16}, "rms_norm: fp32", r"\] times 300: off by"),
    "a norm that rounds each step to bf16": ({"_rms_norm": _norm_in_bf16}, "rms_norm: bf16", "off by 0.0.*, 0.0082"),
    "a norm with an epsilon of its own": ({"_rms_norm": _fixed_epsilon}, "rms_norm: fp32", "epsilon 1e-05: off by"),
    "a narrow weight for few rows": (_narrow(_small_only), "over an int8 weight", r"\[257, 128\].*: off by 1"),
    "a narrow weight that gives the same memory each time": (
        _narrow(_in_one_buffer),
        "over an int8 weight",
        r"\[5, 64\] x \[48, 64\]\^T: off by",
    ),
    "a compiler whose code is right once": ({"_compile_model": _right_once}, "compile_model", "magic: off by 1"),
    "a compiler whose code is wrong": (
        {"_compile_model": _right_until_settled, "_settle": _settled},
        "compile_model",
        "magic once compiled: off by 1",
    ),
    **{
        f"a {primitive} by any name": (
            _by_any_name(primitive),
            "unknown names",
            f"{primitive} with an unknown implementation does not raise UnknownName",
        )
        for primitive in Primitive
        if primitive is not Primitive.LINEAR
    },
}
"""As `faults.FAULTS`."""

"""Whether what is timed does all of its work: a few values of the result, at the timed size, in plain Python.

A result that is wrong has no rate, however fast it came. The numerics gate looks at every value of small operands; here
the operands are those that are timed, of which only as much is fetched as is looked at.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.vendors.conformance import reference
from vllm_probe.vendors.conformance.numerics import difference, flat

_LOOKS = 8
_OTHER_SEED = 1000
_STEP = 0.501
"""Most steps that a quantized value may be off: half of one, and its rounding."""

_MARKS = (2.0**40, 2.0**41, 2.0**42)
"""Each so large that it changes what any reduction of random numbers and the marks before it gives."""

_FP32_BYTES, _NOTICED = 4, 0.1
_UNSEEN = "whether reading takes every value could not be looked at"

Columns = Mapping[int, Sequence[float]]
"""Some rows of a weight [n, k] by number, kept from before it is packed."""


def spread(size: int, looks: int = _LOOKS) -> list[int]:
    """Places from the first to the last of `size`, evenly."""
    return [i * (size - 1) // (looks - 1) for i in range(looks)]


def columns_of(adapter: HardwareAdapter[Any], weight: Any) -> Columns:
    """What a product with `weight` is checked against later."""
    places = spread(weight.shape[0])
    return dict(zip(places, adapter.at(weight, [(place,) for place in places]), strict=True))


def require_linear(
    adapter: HardwareAdapter[Any], dtype: str, x: Any, columns: Columns, result: Any, *, allowed: float | None = None
) -> None:
    """Compares a few values of `result`, of `x` [rows, k] times a weight [n, k] transposed.

    Raises:
        ArithmeticError: it has another shape, or a value is off by more than `allowed`, usual in `dtype` by default.
    """
    rows, width = x.shape[0], max(columns) + 1
    _require_shape(result, (rows, width))
    turned = [*columns][3:] + [*columns][:3]  # so that neither half of rows nor half of columns goes unseen
    places = [(row, column) for row, column in zip(spread(rows, len(turned)), turned, strict=True)]
    operands = adapter.at(x, [(row,) for row, _ in places])
    want = [reference.dot(row, columns[column]) for row, (_, column) in zip(operands, places, strict=True)]
    _require(difference(adapter.at(result, places), want, dtype, allowed), result)


def require_other_linear(
    adapter: HardwareAdapter[Any],
    dtype: str,
    x: Any,
    columns: Columns,
    linear: Callable[[Any], Any],
    *,
    allowed: float | None = None,
) -> None:
    """Draws other values into `x`, which was multiplied before, and looks at their product as `require_linear` does.

    Raises:
        ArithmeticError: it is wrong, as what was kept of an earlier product is.
    """
    adapter.copy(adapter.random(x.shape, dtype, _OTHER_SEED), x)
    require_linear(adapter, dtype, x, columns, linear(x), allowed=allowed)


def require_read(adapter: HardwareAdapter[Any], array: Any) -> str | None:
    """Changes values of `array` fp32 [n] in the middle and at the end, each of which must change what reading gives.

    Afterwards the array is as it was.

    Returns:
        A doubt where the adapter cannot change single values.

    Raises:
        ArithmeticError: a value makes no difference.
    """
    count = array.shape[0]
    places = [(count // 3,), (count // 2,), (count - 1,)]
    parts = [adapter.part(array, _FP32_BYTES * place, _FP32_BYTES) for (place,) in places]
    if any(part is None or part.nbytes != _FP32_BYTES for part in parts):
        return _UNSEEN
    kept, before = adapter.at(array, places), _reduced(adapter, array)
    try:
        for (place,), part, mark in zip(places, parts, _MARKS, strict=True):
            if not _put(adapter, array, place, part, mark):
                return _UNSEEN
            after = _reduced(adapter, array)
            noticed = abs(after - before) > _NOTICED * max(abs(after), abs(before))
            _require(None if noticed else f"reading does not notice that value {place} changed", array)
            before = after
    finally:
        for (place,), part, value in zip(places, parts, kept, strict=True):
            _put(adapter, array, place, part, value)
    return None


def _put(adapter: HardwareAdapter[Any], array: Any, place: int, part: Any, value: float) -> bool:
    """Whether `array` holds `value` at `place` once it is in `part`, the four bytes there."""
    adapter.copy(adapter.from_host(struct.unpack("4b", struct.pack("=f", value)), "int8"), part)
    adapter.synchronize()
    return bool(adapter.at(array, [(place,)]) == [value])


def _reduced(adapter: HardwareAdapter[Any], array: Any) -> float:
    (value,) = flat(adapter.to_host(adapter.read(array)))
    return float(value)


def require_same(adapter: HardwareAdapter[Any], source: Any, target: Any) -> None:
    """Compares a few values of a copy with what was copied.

    Raises:
        ArithmeticError: they differ.
    """
    require_values(adapter, target, lambda places: adapter.at(source, places))


def require_triad(adapter: HardwareAdapter[Any], b: Any, c: Any, scale: float, out: Any) -> None:
    """Compares a few values of `b` + `scale` * `c` in fp32.

    Raises:
        ArithmeticError: they differ.
    """

    def added(places: list[tuple[int]]) -> list[float]:
        return [x + scale * y for x, y in zip(adapter.at(b, places), adapter.at(c, places), strict=True)]

    require_values(adapter, out, added, dtype="fp32")


def require_values(
    adapter: HardwareAdapter[Any],
    result: Any,
    wanted: Callable[[list[tuple[int]]], Sequence[float]],
    dtype: str | None = None,
) -> None:
    """Compares a vector with what is wanted at a few places, exactly where it has no format to round in.

    Raises:
        ArithmeticError: they differ.
    """
    places = [(place,) for place in spread(result.shape[0], 4 * _LOOKS)]
    got, want = adapter.at(result, places), wanted(places)
    wrong = sum(g != w for g, w in zip(got, want, strict=True))
    if dtype:
        _require(difference(got, want, dtype), result)
    elif wrong:
        _require(f"{wrong} of {len(want)} values are not what was copied", result)


def require_attention(
    adapter: HardwareAdapter[Any], dtype: str, operands: Sequence[Any], length: int, out: Any
) -> None:
    """Compares the last head of a token of the first sequence, and of the last token, in causal sequences of `length`.

    Raises:
        ArithmeticError: they are wrong.
    """
    query, key, value = operands
    _require_shape(out, query.shape)
    (tokens, heads, _), group = query.shape, key.shape[1] - 1
    for token in dict.fromkeys((length // 2, tokens - 1)):
        seen = [(t, group) for t in range(token - token % length, token + 1)]
        keys, values = ([[row] for row in adapter.at(each, seen)] for each in (key, value))
        (asked, got) = (adapter.at(each, [(token, heads - 1)])[0] for each in (query, out))
        want = reference.attention([[asked]], keys, values, [len(seen)], [0], causal=True)
        _require(difference(got, want, dtype), out)


def require_rope(adapter: HardwareAdapter[Any], dtype: str, operands: Sequence[Any], out: Any) -> None:
    """Compares the last head of a few tokens.

    Raises:
        ArithmeticError: they are wrong.
    """
    heads, cosines, sines = operands
    _require_shape(out, heads.shape)
    tokens = spread(heads.shape[0])
    places = [(token, heads.shape[1] - 1) for token in tokens]
    rows = [[row] for row in adapter.at(heads, places)]
    turns = (adapter.at(each, [(token,) for token in tokens]) for each in (cosines, sines))
    _require(difference([*flat(adapter.at(out, places))], reference.rope(rows, *turns), dtype), out)


def require_rms_norm(
    adapter: HardwareAdapter[Any], dtype: str, operands: Sequence[Any], epsilon: float, out: Any
) -> None:
    """Compares a few rows.

    Raises:
        ArithmeticError: they are wrong.
    """
    rows, weight = operands
    _require_shape(out, rows.shape)
    places = [(row,) for row in spread(rows.shape[0])]
    want = reference.rms_norm(adapter.at(rows, places), [adapter.to_host(weight)], epsilon)
    _require(difference([*flat(adapter.at(out, places))], want, dtype), out)


def require_quantized(adapter: HardwareAdapter[Any], rows: Any, out: tuple[Any, Any]) -> None:
    """Compares a few rows with int8 values times the scale of each.

    Raises:
        ArithmeticError: they are wrong.
    """
    quantized, scales = out
    _require_shape(quantized, rows.shape)
    places = [(row,) for row in spread(rows.shape[0])]
    given, got, got_scales = (adapter.at(each, places) for each in (rows, quantized, scales))
    _require(difference(got_scales, reference.scales(given), "fp32"), scales)
    off = max(
        abs(x / scale - q)
        for row, out_row, scale in zip(given, got, got_scales, strict=True)
        for x, q in zip(row, out_row, strict=True)
    )
    _require(f"off by {off:.3g} steps, half of one is allowed" if off > _STEP else None, quantized)


def _require_shape(result: Any, shape: Sequence[int]) -> None:
    if tuple(result.shape) != tuple(shape):
        raise ArithmeticError(f"gives {[*result.shape]}, not {[*shape]}")


def _require(fault: str | None, result: Any) -> None:
    if fault:
        raise ArithmeticError(f"the timed result {[*result.shape]}: {fault}")

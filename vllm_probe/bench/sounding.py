"""The first look at an open device: how large its tests may be, and what all of its values are to be doubted for."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from vllm_probe.bench.doubt import checked, describe, doubt_of_data, doubt_of_events
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.primitive import Primitive

_CALL_S = 0.25
"""Longest call that a test is planned with."""

_TELLING_S = 0.02
"""So long a call tells the rate, whatever it costs to issue it."""

_TRIES = 40
_ROWS, _SIDES = 32, (32, 128, 512, 1024)
_SMALLEST_SIDE = 64
_COPY_BYTES, _SMALLEST_ARRAY = 1 << 20, 1 << 20


def sounded(plan: BenchPlan, adapter: HardwareAdapter[Any]) -> BenchPlan:
    """`plan` with arrays and products that the device handles in a quarter of a second, and with what is wrong with it.

    A device that cannot be sounded keeps the plan; its tests will tell why.
    """
    shrinks = cache(partial(_shrink, adapter, plan))
    try:
        array_bytes = _array_bytes(adapter, plan.array_bytes)
        data = doubt_of_data(adapter)
        timer = doubt_of_events(adapter, [_triad(adapter, array_bytes)])
    except Exception as error:  # noqa: BLE001 a device that gives nothing back still has its other tests
        said = f"its data and its timer could not be looked at: {describe(error)}"
        return replace(plan, shrink=shrinks, doubts=(*plan.doubts, said))
    return replace(
        plan,
        shrink=shrinks,
        array_bytes=array_bytes,
        doubts=(*plan.doubts, data) if data else plan.doubts,
        timer_doubts=(timer,) if timer else (),
    )


def _array_bytes(adapter: HardwareAdapter[Any], most: int) -> int:
    """`most`, halved until a copy of as much takes no longer than a call may."""
    source, target = (adapter.random((_COPY_BYTES,), "int8", seed) for seed in range(2))
    seconds = _least_s(adapter, partial(adapter.copy, source, target))
    halvings = math.ceil(math.log2(max(seconds * most / _COPY_BYTES / _CALL_S, 1.0)))
    return max(most >> halvings, min(most, _SMALLEST_ARRAY))


def _triad(adapter: HardwareAdapter[Any], array_bytes: int) -> Callable[[], object]:
    elements = min(array_bytes, 16 << 20) // 4
    a, b, c = (adapter.random((elements,), "fp32", seed) for seed in range(3))
    return partial(adapter.triad, b, c, 0.5, a)


def _shrink(adapter: HardwareAdapter[Any], plan: BenchPlan, dtype: str) -> int:
    """Power of two to divide K and N of the products in `dtype` by, so that one at `point_rows` is no longer than that.

    Products grow until one is fast enough in spite of what issuing it costs, or so long that it tells the rate.
    """
    operations = 2.0 * plan.point_rows * plan.depth * plan.width
    most = max(1, plan.depth // _SMALLEST_SIDE)
    expected_s = 0.0
    for side, seconds in _products(adapter, dtype):
        expected_s = seconds * operations / (2 * _ROWS * side * side)
        if expected_s <= _CALL_S or seconds >= _TELLING_S:
            break
    return min(1 << math.ceil(math.log2(max(expected_s / _CALL_S, 1.0)) / 2), most)


def _products(adapter: HardwareAdapter[Any], dtype: str) -> Iterator[tuple[int, float]]:
    """K and N with the seconds of one product, smallest first."""
    for side in _SIDES if adapter.implementations(Primitive.LINEAR, dtype) else ():
        x = adapter.random((_ROWS, side), dtype, 0)
        run = adapter.prepare_linear(adapter.random((side, side), dtype, 1), None, dtype)
        yield side, _least_s(adapter, partial(run, x))


def _least_s(adapter: HardwareAdapter[Any], call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls, of which the first warms up, and others may be held up by other work."""
    seconds: list[float] = []
    while len(seconds) < _TRIES and math.fsum(seconds) < _CALL_S:
        seconds.append(checked(adapter.time_batch([call]), 1))
    return min(seconds)

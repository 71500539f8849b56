"""`python -m vllm_probe.bench.child ORDER`: times matrix products in a process whose width is limited."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.sounding import sounded
from vllm_probe.bench.timing import Case, Stopwatch, Work
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Measurement
from vllm_probe.core.device import Device
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.values import Count, Rate
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.registry import PortableDeviceManager

ROWS, DEPTH, WIDTH = 128, 1024, 2048
"""0.54 GFLOP, so that many fit in a short time."""

FEW_ROWS = 1
"""So few that the weight is read and hardly computed with."""

_SETS = 8
_ROUND_S = 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child is to time.

    Attributes:
        device: the device.
        lanes: width that the process is limited to.
        threads: thread counts to try, one after another.
        formats: number formats to time with each.
    """

    device: Device
    lanes: Count
    threads: tuple[Count, ...]
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One timed setting.

    Attributes:
        lanes: width of the process.
        threads: threads that computed, null where the device has none.
        dtype: number format.
        rows: activation rows of the product.
        gflops: rate, null when it could not be measured.
        measurement: how it was obtained.
    """

    lanes: Count
    threads: Count | None
    dtype: str
    gflops: Rate | None
    measurement: Measurement
    rows: Count = ROWS


def time_points(order: Order, adapter_for: Callable[[Device], HardwareAdapter[Any]]) -> tuple[Point, ...]:
    """The points of an order, of a process that has not computed yet.

    Raises:
        RuntimeError: the width cannot be limited here.
    """
    points: list[Point] = []
    for threads in order.threads:
        device = replace(order.device, details=order.device.details | {"threads": threads})
        adapter = adapter_for(device)
        if not points and not adapter.limit_width(order.lanes):
            raise RuntimeError(f"the libraries do not keep to {order.lanes} lanes")
        adapter.open()
        plan = sounded(make_plan(device, quick=True, only=frozenset()), adapter)
        plan = replace(plan, batch_s=0.0, round_s=_ROUND_S)
        cases = [_case(adapter, plan, dtype) for dtype in order.formats]
        for case, (rate, about) in Stopwatch(adapter, plan).run(cases, lambda _: None):
            dtype = case.key[0]
            points.append(Point(lanes=order.lanes, threads=threads, dtype=dtype, gflops=rate, measurement=about))
        adapter.close()
    return tuple(points)


def _case(adapter: HardwareAdapter[Any], plan: BenchPlan, dtype: str) -> Case:
    return Case(key=(dtype, ROWS), title=dtype, unit="GFLOP/s", prepare=partial(products, adapter, plan, dtype))


def products(
    adapter: HardwareAdapter[Any],
    plan: BenchPlan,
    dtype: str,
    divisor: int,
    rows: int = ROWS,
    launch: tuple[str, int] | None = None,
) -> Work:
    """Small products in `dtype` by the preferred implementation, or by the one of `launch`, so many lanes wide."""
    name, lanes = launch or (adapter.implementations(Primitive.LINEAR, dtype)[0], None)
    depth, width = DEPTH // plan.shrink(dtype), WIDTH // plan.shrink(dtype)
    weights = [adapter.random((width, depth), dtype, seed) for seed in range(1, _SETS // divisor + 1)]
    operators = [adapter.prepare_linear(weight, None, dtype, name, group_width=lanes) for weight in weights]
    x = adapter.random((rows, depth), dtype, seed=0)
    spot.require_linear(adapter, dtype, x, spot.columns_of(adapter, weights[0]), operators[0](x))
    return Work(
        calls=[partial(operator, x) for operator in operators],
        amount=2.0 * rows * depth * width,
        method=f"[{rows}, {depth}] x [{width}, {depth}]^T, each product timed, {len(operators)} weights in turn",
        implementation=name,
    )


def main(argv: list[str]) -> int:
    """Prints the points of the order in `argv` as JSON."""
    import json

    order = codec.from_json(Order, json.loads(argv[0]))
    manager = PortableDeviceManager.discover(LocalHost())
    print(json.dumps(codec.to_json(time_points(order, manager.adapter_for))))  # noqa: T201 - the parent reads it
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

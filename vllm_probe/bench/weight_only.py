"""Section of the weight-only linears: bf16 activations over a weight that is kept in int8 or int4."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.doubt import doubt_of_operands, doubt_of_values
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section, summary
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.vendors.conformance.execution import WEIGHT_ONLY_ERROR

FORMATS = {"int8": 1.0, "int4": 0.5}
"""Weight format to bytes of a value; scales are not counted."""

ROWS = (1, 16, 64, 256)
_MOST_SETS = 64


class WeightOnlySection(Section):
    """`/weight_only`. It multiplies in bf16, so that its rates are no compute rates of the weight's format."""

    name = "weight-only"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self._formats = [dtype for dtype in FORMATS if dtype in adapter.weight_only_formats()]
        self._operators: dict[str, list[Callable[[Any], Any]]] = {}
        self._columns: spot.Columns = {}

    def total(self) -> int:
        """Every row count of every format."""
        return len(self._formats) * len(ROWS)

    def batches(self) -> Iterator[Sequence[Case]]:
        """After the curves of the matrix products and the primitives."""
        yield ()
        yield ()
        yield [self._case(dtype, rows) for dtype in self._formats for rows in ROWS]

    def write(self, sheet: Sheet) -> None:
        """Rows, weight GB/s and GFLOP/s of what was read; the rates of a point follow from one time."""
        for dtype in FORMATS:
            base = f"/weight_only/{dtype}/curve"
            found = [(rows, self.readings[key]) for rows in ROWS if (key := _key(dtype, rows)) in self.readings]
            curve = [(rows, rate, about) for rows, (rate, about) in found if rate is not None]
            if not curve:
                gap = next((reading for _, reading in found), self.pending)
                if dtype not in self._formats:
                    gap = absent("unsupported", f"the adapter has no linear over an {dtype} weight")
                sheet.put(base, [], gap.measurement)
                continue
            points = [[rows, _weight_gb_s(dtype, rows, rate), rate] for rows, rate, _ in curve]
            about = summary(curve[0][2], {f"{rows} rows": reading for rows, reading in found})
            sheet.put(base, points, replace(about, unit="rows, GB/s of weights, GFLOP/s"))
            for index, (_, _, each) in enumerate(curve):
                sheet.measurements[f"{base}/{index}"] = each

    def restore(self, partial: Capability) -> None:
        """Points of the curves."""
        for dtype, unit in partial.weight_only.items():
            for index, (rows, _, rate) in enumerate(unit.curve):
                if measurement := partial.measurements.get(f"/weight_only/{dtype}/curve/{index}"):
                    self.readings[_key(dtype, rows)] = Reading(rate, measurement)

    def _case(self, dtype: str, rows: int) -> Case:
        return Case(
            key=_key(dtype, rows),
            title=f"{dtype} weights {rows} rows",
            unit="GFLOP/s",
            prepare=partial(self._prepare, dtype, rows),
            expected=self.plan.expectations.compute("bf16"),
            optional=True,
            share=0.5,
        )

    def _prepare(self, dtype: str, rows: int, divisor: int) -> Work:
        plan, adapter = self.plan, self.adapter
        depth, width = plan.product("bf16")
        weight_bytes = int(depth * width * FORMATS[dtype])
        if dtype not in self._operators:
            sets = max(min(math.ceil(plan.operand_bytes / weight_bytes) + 1, _MOST_SETS) // divisor, 1)
            weights = (adapter.random((width, depth), "bf16", seed) for seed in range(sets))
            self._operators[dtype] = [adapter.prepare_weight_only(weight, dtype) for weight in weights]
            self._columns = spot.columns_of(adapter, adapter.random((width, depth), "bf16", 0))
        operators, x = self._operators[dtype], adapter.random((rows, depth), "bf16", seed=100)
        error = WEIGHT_ONLY_ERROR[dtype]
        spot.require_linear(adapter, "bf16", x, self._columns, operators[0](x), allowed=error)
        alike = doubt_of_operands(adapter, x) or doubt_of_values(self._columns.values())
        again = partial(spot.require_other_linear, adapter, "bf16", x, self._columns, operators[0], allowed=error)
        turning = len(operators) * weight_bytes
        cold = plan.cache_known and turning >= 3 * plan.cache_bytes
        return Work(
            calls=[partial(operator, x) for operator in operators],
            amount=2.0 * rows * depth * width,
            method=(
                f"bf16 [{rows}, {depth}] x {dtype} [{width}, {depth}]^T, 2 FLOP per multiply-add, "
                f"{FORMATS[dtype]:g} bytes a weight without scales, {len(operators)} in turn ({turning >> 20} MiB)"
            ),
            doubts=(*((alike,) if alike else ()), *(() if cold else ("weights may be partly cached",))),
            verify=again,
        )


def _key(dtype: str, rows: int) -> tuple[str, int]:
    return f"{dtype} weights", rows


def _weight_gb_s(dtype: str, rows: int, gflops: float) -> float:
    """Each value of the weight takes part in 2 * `rows` operations."""
    return gflops * FORMATS[dtype] / (2 * rows)

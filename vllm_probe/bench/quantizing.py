"""Section of the int8 product as a runtime sees it: activations are quantized by row in every call."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.doubt import doubt_of_operands
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.values import COMPUTE_DTYPES

_POINTER = "/compute_units/{}/quantizing_gflops"
_MOST_SETS = 32


class QuantizingSection(Section):
    """`/compute_units/int8/quantizing_gflops`, which belongs to the matrix products."""

    name = "gemm"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        found = (adapter.supports(Primitive.QUANTIZE, "bf16"), adapter.supports(Primitive.LINEAR, "int8"))
        self._refused = next((support.reason for support in found if not support.ok), None)
        self._key = ("quantizing int8", plan.point_rows)

    def total(self) -> int:
        """One where the adapter has both operators, and none when quick."""
        return 0 if self._refused or self.plan.quick else 1

    def batches(self) -> Iterator[Sequence[Case]]:
        """With the curves."""
        yield ()
        yield [self._case()] * self.total()

    def write(self, sheet: Sheet) -> None:
        """The rate, or what the adapter lacks."""
        gap = absent("skipped", "--quick leaves it out") if self.plan.quick else self.pending
        if self._refused:
            gap = absent("unsupported", self._refused)
        sheet.put(_POINTER.format("int8"), *self.readings.get(self._key, gap))
        for dtype in COMPUTE_DTYPES:
            if dtype != "int8":
                sheet.gap(_POINTER.format(dtype), "unsupported", "activations are quantized to int8 only")

    def restore(self, partial: Capability) -> None:
        """The finished rate."""
        unit, measurement = partial.compute_units.get("int8"), partial.measurements.get(_POINTER.format("int8"))
        if unit and measurement and unit.quantizing_gflops is not None:
            self.readings[self._key] = Reading(unit.quantizing_gflops, measurement)

    def _case(self) -> Case:
        return Case(
            key=self._key,
            title=f"int8 {self.plan.point_rows} rows, quantizing",
            unit="GFLOP/s",
            prepare=self._prepare,
            expected=self.plan.expectations.compute("int8"),
            optional=True,
            share=0.5,
        )

    def _prepare(self, divisor: int) -> Work:
        adapter, plan, rows = self.adapter, self.plan, self.plan.point_rows
        depth, width = plan.product("int8")
        weight_bytes = depth * width
        sets = max(min(math.ceil(plan.operand_bytes / weight_bytes) + 1, _MOST_SETS) // divisor, 1)
        weights = [adapter.random((width, depth), "int8", seed) for seed in range(1, sets + 1)]
        operators = [adapter.prepare_linear(weight, None, "int8") for weight in weights]
        x = adapter.random((rows, depth), "bf16", seed=0)
        alike = doubt_of_operands(adapter, x, *weights)
        first, last = (spot.columns_of(adapter, weights[i]) for i in (0, -1))
        self._require(x, first, operators[0])
        cold = plan.cache_known and sets * weight_bytes >= 3 * plan.cache_bytes
        return Work(
            calls=[partial(self._multiply, operator, x) for operator in operators],
            amount=2.0 * rows * depth * width,
            method=(
                f"bf16 [{rows}, {depth}] quantized by row, then x int8 [{width}, {depth}]^T, in int32, "
                f"2 FLOP per multiply-add of the product, {sets} weights in turn"
            ),
            verify=partial(self._verify, x, last, operators[-1]),
            doubts=(*((alike,) if alike else ()), *(() if cold else ("weights may be partly cached",))),
        )

    def _require(self, x: Any, columns: spot.Columns, operator: Callable[[Any], Any]) -> None:
        quantized = self.adapter.quantize(x)
        spot.require_quantized(self.adapter, x, quantized)
        spot.require_linear(self.adapter, "int8", quantized[0], columns, operator(quantized[0]))

    def _verify(self, x: Any, columns: spot.Columns, operator: Callable[[Any], Any]) -> None:
        """With other activations in the same place."""
        self.adapter.copy(self.adapter.random(x.shape, "bf16", seed=1000), x)
        self._require(x, columns, operator)

    def _multiply(self, operator: Callable[[Any], Any], x: Any) -> Any:
        return operator(self.adapter.quantize(x)[0])

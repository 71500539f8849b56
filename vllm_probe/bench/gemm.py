"""Matrix product per number format: activations [rows, K] times a weight [N, K], transposed."""

import math
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import Case, Work
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.primitive import Linear, Primitive
from vllm_probe.vendors.conformance import gate
from vllm_probe.vendors.mapper import Choice, choose

_ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "int8": 1}
_MOST_SETS = 32
_SHAPES = 4
"""Shapes that an implementation must be right at before it is timed; `adapter check` tries all."""

_CONTEST_SETS, _CONTEST_ROUNDS = 2, 4


class LinearFormat:
    """The linears of one number format, prepared when the first test needs them.

    The implementation chosen then is entered in `choices`; one that stands there is kept.
    """

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan, dtype: str, choices: dict[str, Choice]) -> None:
        self.dtype = dtype
        self._choices = choices
        self._adapter = adapter
        self._plan = plan
        self._cost = adapter.supports(Primitive.LINEAR, dtype).reason
        self._operators: list[Linear[Any]] = []

    def case(self, rows: int) -> Case:
        """The case of this format at `rows` activation rows."""
        return Case(
            key=(self.dtype, rows),
            title=f"{self.dtype} {rows} rows",
            unit="GFLOP/s",
            prepare=partial(self.prepare, rows),
            expected=self._plan.expectations.compute(self.dtype),
            optional=rows != self._plan.point_rows,
            share=0.25 if self._cost else 1.0 if rows == self._plan.point_rows else 0.5,
        )

    def prepare(self, rows: int, divisor: int) -> Work:
        """The linear at `rows` activation rows, with weights that take turns; fewer of them for a higher `divisor`."""
        plan, (depth, width) = self._plan, self._plan.product(self.dtype)
        weight_bytes = depth * width * _ELEMENT_BYTES[self.dtype]
        if not self._operators:
            sets = min(math.ceil(plan.operand_bytes / weight_bytes) + 1, _MOST_SETS)
            self._choose(max(sets // divisor, 1))
        x = self._adapter.random((rows, depth), self.dtype, seed=0)
        turning = len(self._operators) * weight_bytes
        cold = plan.cache_known and turning >= 3 * plan.cache_bytes
        return Work(
            calls=[partial(operator, x) for operator in self._operators],
            amount=2.0 * rows * depth * width,
            method=(
                f"[{rows}, {depth}] x [{width}, {depth}]^T, 2 FLOP per multiply-add, weights prepared "
                f"before, {len(self._operators)} in turn ({turning >> 20} MiB), checked against the reference"
                + (f"; {self._cost}" if self._cost else "")
            ),
            implementation=self._choices[self.dtype].implementation,
            doubts=() if cold else ("weights may be partly cached",),
        )

    def _choose(self, sets: int) -> None:
        """Prepares the fastest implementation that computes correctly, with `sets` weights."""
        adapter = self._adapter
        names = adapter.implementations(Primitive.LINEAR, self.dtype)
        earlier = self._choices.get(self.dtype)
        if earlier and earlier.implementation in names:
            names = (earlier.implementation,)
        refused = {
            name: why for name in names if (why := gate(adapter, Primitive.LINEAR, self.dtype, name, most=_SHAPES))
        }
        choose(names, {}, refused)  # before memory is taken for weights
        choice = choose(names, self._contest([name for name in names if name not in refused]), refused)
        self._operators = [self._operator(seed, choice.implementation) for seed in range(1, sets + 1)]
        if not earlier or len(names) > 1:
            self._choices[self.dtype] = choice

    def _contest(self, names: Sequence[str]) -> dict[str, float]:
        """Seconds by name, from interleaved rounds of which the first warms up."""
        if len(names) == 1:
            return {}
        operators = {name: [self._operator(seed, name) for seed in range(1, _CONTEST_SETS + 1)] for name in names}
        x = self._adapter.random((self._plan.point_rows, self._plan.product(self.dtype)[0]), self.dtype, seed=0)
        seconds: dict[str, list[float]] = {name: [] for name in operators}
        for _ in range(_CONTEST_ROUNDS):
            for name, prepared in operators.items():
                seconds[name].append(self._adapter.time_batch([partial(run, x) for run in prepared]))
        return {name: median(times[1:]) for name, times in seconds.items()}

    def _operator(self, seed: int, implementation: str) -> Linear[Any]:
        depth, width = self._plan.product(self.dtype)
        weight = self._adapter.random((width, depth), self.dtype, seed)
        return self._adapter.prepare_linear(weight, None, self.dtype, implementation)

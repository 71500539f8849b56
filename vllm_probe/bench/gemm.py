"""Matrix product per number format: activations [rows, K] times a weight [N, K], transposed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.contest import Decided, decide
from vllm_probe.bench.doubt import doubt_of_operands, doubt_of_values
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import Case, Reading, Stopwatch, Work, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Measurement
from vllm_probe.core.primitive import Linear, Primitive
from vllm_probe.vendors.conformance import gate
from vllm_probe.vendors.mapper import Choice

_ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "int8": 1}
_MOST_SETS = 32
_SHAPES = 4
"""Shapes that an implementation must be right at before it is timed; `adapter check` tries all."""

_CONTEST_SETS, _CONTEST_SHARE = 2, 0.2


class LinearFormat:
    """The linears of one number format, prepared when the first test needs them.

    The implementation chosen then is entered in `choices`; one that stands there is kept.
    """

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan, dtype: str, choices: dict[str, Decided]) -> None:
        self.dtype = dtype
        self._choices = choices
        self._adapter = adapter
        self._plan = plan
        self._cost = adapter.supports(Primitive.LINEAR, dtype).reason
        self._operators: list[Linear[Any]] = []
        self._columns: dict[int, spot.Columns] = {}

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
        spot.require_linear(self._adapter, self.dtype, x, self._columns[1], self._operators[0](x))
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
            implementation=self._choices[self.dtype].choice.implementation,
            doubts=(*self._doubts(x), *(() if cold else ("weights may be partly cached",))),
            verify=partial(self._verify, x),
        )

    def _doubts(self, x: Any) -> list[str]:
        """Whether the activations, or one of the weights, are not random."""
        weights = (row for seed in range(1, len(self._operators) + 1) for row in self._columns[seed].values())
        return [*filter(None, [doubt_of_operands(self._adapter, x) or doubt_of_values(weights)])]

    def _verify(self, x: Any) -> None:
        """Of the last weight, since the first was looked at before."""
        columns, last = self._columns[len(self._operators)], self._operators[-1]
        spot.require_other_linear(self._adapter, self.dtype, x, columns, last)

    def _choose(self, sets: int) -> None:
        """Prepares the fastest implementation that computes correctly, with `sets` weights."""
        names = self._adapter.implementations(Primitive.LINEAR, self.dtype)
        earlier = self._choices.get(self.dtype)
        if earlier and earlier.choice.implementation in names:
            names = (earlier.choice.implementation,)
        decided = self._alone(names[0]) if len(names) == 1 else self._contest(names)
        implementation = decided.choice.implementation
        self._operators = [self._operator(seed, implementation) for seed in range(1, sets + 1)]
        if not earlier or len(names) > 1:
            self._choices[self.dtype] = decided

    def _alone(self, name: str) -> Decided:
        if wrong := self._fault(name):
            raise ArithmeticError(f"{name}: {wrong}")
        return Decided(Choice(implementation=name), Measurement(source="measured", status="measured"))

    def _contest(self, names: Sequence[str]) -> Decided:
        depth, rows = self._plan.product(self.dtype)[0], self._plan.point_rows
        x = self._adapter.random((rows, depth), self.dtype, seed=0)
        cases = [
            Case(key=(name, rows), title=f"{self.dtype} {name}", unit="us", prepare=partial(self._contestant, name, x))
            for name in names
        ]
        plan = replace(self._plan, round_s=_CONTEST_SHARE * self._plan.round_s)
        timed = Stopwatch(self._adapter, plan).run(cases, lambda _: None)
        found = {case.key[0]: [reading] for case, reading in timed}
        decided = decide(names, found, f"microseconds at {rows} rows, rounds in turn, results checked")
        if decided is None:
            faults = [f"{name}: {each.measurement.reason}" for name, (each,) in found.items()]
            raise ArithmeticError("; ".join(faults) or "no implementation")
        return decided

    def _fault(self, name: str) -> str | None:
        return gate(self._adapter, Primitive.LINEAR, self.dtype, name, most=_SHAPES)

    def _contestant(self, name: str, x: Any, divisor: int) -> Work | Reading:  # noqa: ARG002 - it cannot be smaller
        if wrong := self._fault(name):
            return absent("error", wrong)
        operators = [self._operator(seed, name) for seed in range(1, _CONTEST_SETS + 1)]
        spot.require_linear(self._adapter, self.dtype, x, self._columns[1], operators[0](x))
        return Work(calls=[partial(operator, x) for operator in operators], amount=None, method="", implementation=name)

    def _operator(self, seed: int, implementation: str) -> Linear[Any]:
        """Over the weight that `seed` makes, of which some rows are kept, to check products against."""
        depth, width = self._plan.product(self.dtype)
        weight = self._adapter.random((width, depth), self.dtype, seed)
        if seed not in self._columns:
            self._columns[seed] = spot.columns_of(self._adapter, weight)
        return self._adapter.prepare_linear(weight, None, self.dtype, implementation)

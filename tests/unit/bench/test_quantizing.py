from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.bench.fake import FakeAdapter, Values, cpu
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.quantizing import QuantizingSection
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.core import codec
from vllm_probe.core.primitive import Primitive
from vllm_probe.vendors.conformance import reference

PLAN = replace(make_plan(cpu(), quick=False, only=frozenset()), groups=frozenset({"gemm"}))


class Quantizing(FakeAdapter):
    """Quantizes a row of bf16 in the time that its product takes."""

    longer = 1.0

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        return ("eager",) if primitive is Primitive.QUANTIZE else super().implementations(primitive, dtype)

    def _quantize(self, rows: Values, implementation: str | None) -> tuple[Values, Values]:
        self._work(f"quantize {rows.shape[0]}", 2.0 * rows.shape[0] * rows.shape[1] * PLAN.width / 800)

        def scale(place: Sequence[int]) -> float:
            return reference.scales([rows.at(place[:1])])[0]

        def at(place: Sequence[int]) -> Any:
            return [round(x / scale(place)) for x in rows.at(place[:1])]

        return Values(rows.shape, list, at), Values(rows.shape[:1], list, lambda place: self.longer * scale(place))


def measured(adapter: FakeAdapter) -> QuantizingSection:
    section = QuantizingSection(adapter, PLAN)
    for batch in section.batches():
        for case, reading in Stopwatch(adapter, PLAN).run(batch, lambda case: None):
            section.readings[case.key] = reading
    return section


def test_the_product_counts_and_the_quantization_takes_its_time() -> None:
    made = document(measured(Quantizing()))
    assert made.compute_units["int8"].quantizing_gflops == pytest.approx(400)
    about = made.measurements["/compute_units/int8/quantizing_gflops"]
    assert (about.status, about.unit) == ("measured", "GFLOP/s")
    assert "quantized by row" in (about.method or "")


def test_what_cannot_be_or_is_not_measured_has_its_reason() -> None:
    made = document(QuantizingSection(FakeAdapter(), PLAN))
    assert made.measurements["/compute_units/int8/quantizing_gflops"].status == "unsupported"
    assert made.unknown["/compute_units/bf16/quantizing_gflops"] == "activations are quantized to int8 only"
    waiting = document(QuantizingSection(Quantizing(), PLAN))
    assert waiting.unknown["/compute_units/int8/quantizing_gflops"] == "not run yet"
    quick = QuantizingSection(Quantizing(), replace(PLAN, quick=True))
    assert quick.total() == sum(map(len, quick.batches())) == 0
    assert document(quick).unknown["/compute_units/int8/quantizing_gflops"] == "--quick leaves it out"


def test_the_rate_is_read_back_from_a_written_document() -> None:
    before, after = measured(Quantizing()), QuantizingSection(Quantizing(), PLAN)
    after.restore(read_back(document(before)))
    assert codec.dumps(document(after)) == codec.dumps(document(before))


def test_values_that_are_quantized_to_something_else_have_no_rate() -> None:
    adapter = Quantizing()
    adapter.longer = 2.0
    made = document(measured(adapter))
    assert made.measurements["/compute_units/int8/quantizing_gflops"].status == "error"
    assert "the timed result [512]" in made.unknown["/compute_units/int8/quantizing_gflops"]


class Remembering(Quantizing):
    """Quantizes an array once."""

    def _quantize(self, rows: Values, implementation: str | None) -> tuple[Values, Values]:
        self.known: dict[int, tuple[Values, Values, Values]] = getattr(self, "known", {})
        if id(rows) not in self.known:
            self.known[id(rows)] = (rows, *super()._quantize(Values(rows.shape, list, rows.at), implementation))
        self._now += 1e-5
        return self.known[id(rows)][1:]


def test_values_that_were_quantized_before_have_no_rate() -> None:
    made = document(measured(Remembering()))
    assert made.compute_units["int8"].quantizing_gflops is None
    assert "the timed result" in made.unknown["/compute_units/int8/quantizing_gflops"]

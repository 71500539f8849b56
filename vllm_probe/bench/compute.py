"""Section of the matrix products: a point of every number format, then a curve over rows, and the linear that won."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from vllm_probe.bench.contest import Decided
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.gemm import LinearFormat
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section, summary
from vllm_probe.bench.timing import Case, Reading, absent
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.values import COMPUTE_DTYPES, ENGINE_DTYPES
from vllm_probe.vendors.mapper import Choice

_SLOW = 0.25
_NEAR = 0.98
_PLATEAU = 1024
"""Rows near which most devices are fastest with weights of this size."""


class ComputeSection(Section):
    """`/compute_units` and `/primitives/linear`.

    Attributes:
        choices: implementation of the linear by number format.
        refused: formats that the adapter cannot multiply in, with the reason.
    """

    name = "gemm"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self.choices: dict[str, Decided] = {}
        support = {dtype: adapter.supports(Primitive.LINEAR, dtype) for dtype in COMPUTE_DTYPES}
        self.refused = {dtype: found.reason for dtype, found in support.items() if not found.ok}
        self._formats = [LinearFormat(adapter, plan, dtype, self.choices) for dtype in support if support[dtype].ok]

    def total(self) -> int:
        """A point of every format, and the curves: as if none was slow, until the points are there."""
        fastest = min(2, len(self._formats))
        curves = fastest * (len(self.plan.rows) - 1)
        if not self.plan.quick:
            curves += (len(self._formats) - fastest) * (len(self.plan.rows[::2]) - 1)
        if all((form.dtype, self.plan.point_rows) in self.readings for form in self._formats):
            curves = len(self._curves())
        return len(self._formats) + curves

    def batches(self) -> Iterator[Sequence[Case]]:
        """One point of each format, then the other rows of the fastest, and every second of the rest.

        The likely best come first, since the highest rate must not depend on the time that is left; it is taken again
        after everything else that does not heat the device.
        """
        yield [form.case(self.plan.point_rows) for form in self._formats]
        yield [form.case(rows) for form, rows in self._curves()]
        yield ()
        yield [replace(form.case(rows), again=True) for form in self._formats for rows in self._best_rows(form.dtype)]

    def _curves(self) -> list[tuple[LinearFormat, int]]:
        fastest = self._with_curve(quick=True)
        found = [
            (form, rows)
            for form in self._with_curve(quick=self.plan.quick)
            for rows in (self.plan.rows if form in fastest else self.plan.rows[::2])
            if rows != self.plan.point_rows
        ]
        return sorted(found, key=lambda point: abs(math.log2(point[1] / _PLATEAU)))

    def _best_rows(self, dtype: str) -> list[int]:
        """Rows with the highest rate; none where nothing ran."""
        rates = {rows: rate for (name, rows), (rate, _) in self.readings.items() if name == dtype and rate is not None}
        return [max(rates, key=rates.__getitem__)] if rates else []

    def write(self, sheet: Sheet) -> None:
        """Rates, curves and choices."""
        for dtype in COMPUTE_DTYPES:
            self._compute_unit(sheet, dtype)
        if not self.choices:
            sheet.put("/primitives/linear", {}, self.pending.measurement)
        for dtype, (choice, about) in self.choices.items():
            value = {key: item for key, item in asdict(choice).items() if item}
            sheet.put(f"/primitives/linear/{dtype}", value, about)

    def restore(self, partial: Capability) -> None:
        """Points of the curves, and choices."""
        for dtype, unit in partial.compute_units.items():
            for index, (rows, rate) in enumerate(unit.curve):
                if measurement := partial.measurements.get(f"/compute_units/{dtype}/curve/{index}"):
                    self.readings[dtype, rows] = Reading(rate, measurement)
        for dtype, choice in partial.primitives.get("linear", {}).items():
            if about := partial.measurements.get(f"/primitives/linear/{dtype}"):
                self.choices[dtype] = Decided(codec.from_json(Choice, choice), about)

    def _with_curve(self, *, quick: bool) -> list[LinearFormat]:
        """All but the slow, fastest first; when quick the fastest unquantized one, then the fastest of all."""
        rates = {form: self._rate(form.dtype) for form in self._formats}
        running = (form for form in self._formats if rates[form] and not self._is_slow(form.dtype))
        ranking = sorted(running, key=lambda form: -rates[form])
        if not quick:
            return ranking
        plain = [form for form in ranking if form.dtype in ENGINE_DTYPES]
        return list(dict.fromkeys(plain[:1] + ranking[:1]))

    def fastest(self) -> tuple[LinearFormat, int] | None:
        """The format and the rows with the highest rate that was measured, null when there is none."""
        rates = {key: reading.value for key, reading in self.readings.items() if reading.value is not None}
        if not rates:
            return next(((form, self.plan.point_rows) for form in self._formats), None)
        dtype, rows = max(rates, key=rates.__getitem__)
        return next(form for form in self._formats if form.dtype == dtype), rows

    def _rate(self, dtype: str) -> float:
        reading = self.readings.get((dtype, self.plan.point_rows))
        return reading.value or 0.0 if reading else 0.0

    def _is_slow(self, dtype: str) -> bool:
        """Whether nobody would choose it, so that a curve of it is not worth its long time."""
        return 0 < self._rate(dtype) < _SLOW * max(map(self._rate, ENGINE_DTYPES))

    def _compute_unit(self, sheet: Sheet, dtype: str) -> None:
        base, threads = f"/compute_units/{dtype}", self.adapter.device.details.get("threads")
        points = {rows: reading for (name, rows), reading in self.readings.items() if name == dtype}
        curve = [(rows, reading) for rows, reading in sorted(points.items()) if reading.value is not None]
        gap = next((reading for reading in points.values() if reading.value is None), self.pending)
        if dtype in self.refused:
            gap = absent("unsupported", self.refused[dtype])
        best = _best([reading for _, reading in curve]) if curve else gap
        sheet.put(f"{base}/throughput_gflops", *_beside(best, points))
        sheet.put(f"{base}/sustained_gflops", *(absent("skipped", self.plan.absence("thermal")) if curve else gap))
        sheet.fact(f"{base}/max_threads", threads)
        summary = self._summary(dtype, best.measurement, points) if curve else gap.measurement
        sheet.put(f"{base}/curve", [[rows, reading.value] for rows, reading in curve], summary)
        for index, (_, reading) in enumerate(curve):
            sheet.measurements[f"{base}/curve/{index}"] = reading.measurement

    def _summary(self, dtype: str, best: Measurement, points: dict[int, Reading]) -> Measurement:
        """What holds for a whole curve."""
        unmeasured = [str(rows) for rows in self.plan.rows if rows not in points]
        gap = f"not measured at {', '.join(unmeasured)} rows" if unmeasured else ""
        if gap and self._is_slow(dtype):
            gap += f": under {_SLOW:g} of the rate of the fastest format"
        return summary(best, {f"{rows} rows": reading for rows, reading in sorted(points.items())}, gap)


def _beside(best: Reading, points: dict[int, Reading]) -> Reading:
    """`best`, doubted where rows next to it had no time or were disturbed and so slower: they may be the fastest."""
    ordered = sorted(points)
    here = [i for i, rows in enumerate(ordered) if points[rows] is best]
    near = [rows for i in here for rows in (*ordered[max(i - 1, 0) : i], *ordered[i + 1 : i + 2])]
    lost = [
        f"{rows} rows: {points[rows].measurement.reason}"
        for rows in near
        if (points[rows].value or 0.0) < _NEAR * (best.value or 0.0)
        and points[rows].measurement.status not in {"measured", "suspect"}
    ]
    if not lost:
        return best
    value, about = best
    reason = "; ".join(filter(None, [about.reason, *lost]))
    status = "noisy" if about.status == "measured" else about.status
    return Reading(value, replace(about, status=status, confidence="low", reason=reason))


def _best(readings: list[Reading]) -> Reading:
    """The highest rate; one without doubts where there is one within 2 % of it."""
    highest = max(reading.value or 0.0 for reading in readings)
    near = [reading for reading in readings if (reading.value or 0.0) >= _NEAR * highest]
    sure = [reading for reading in near if reading.measurement.status == "measured"]
    return max(sure or near, key=lambda reading: reading.value or 0.0)

"""Section of the execution group: the width, and on a CPU the threads, with which matrix products are fastest."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_probe.bench.child import DEPTH, FEW_ROWS, ROWS, WIDTH, Order, Point, products
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section, summary
from vllm_probe.bench.timing import Case, Reading, absent
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.errors import ProbeError
from vllm_probe.core.primitive import Primitive
from vllm_probe.host.stats import parse_cpu_list

_BASE = "/execution/group_width"
_FLAT = 0.98
_TIMEOUT_S = 30.0
_WIDTHS = 2
"""The device's own width and the next: what is gained by half of the lanes shows before a quarter of them."""

_NO_THREADS = Measurement(source="queried", status="unsupported", reason="a launch takes a width, and no threads")

Setting = tuple[int, int | None]
"""Lanes, and threads where the device has them."""


class GroupWidthSection(Section):
    """`/execution/group_width`: the best setting, all within 2 % of it, and the sweep that they come from.

    A width that libraries choose when they are first used needs a process for each; one that a launch takes needs none.
    The device's own setting is kept wherever another is not clearly faster.
    """

    name = "group-width"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self.points: dict[tuple[int, str], tuple[Point, ...]] = {}
        self._process_widths = adapter.process_widths()[:_WIDTHS]
        self._formats = _formats(adapter)
        self._launches = _launches(adapter, self._formats)

    def total(self) -> int:
        """A child for each width of the process, or a case for each launch."""
        return len(self._process_widths) or len(self._launches)

    def batches(self) -> Iterator[Sequence[Case]]:
        """Last, since children must find the device idle."""
        yield ()
        yield ()
        yield ()
        if self._process_widths:
            yield [self._child(lanes) for lanes in self._process_widths]
        else:
            yield [self._launch(*launch) for launch in self._launches]

    def write(self, sheet: Sheet) -> None:
        """The choice, and the points it was made from."""
        points = self._points()
        rates = self._rates(points, ROWS)
        sheet.put(f"{_BASE}/optimal_few_rows", *self._few_rows(points))
        if not rates:
            for key, empty in (("optimal", None), ("threads", None), ("flat", []), ("sweep", [])):
                sheet.put(f"{_BASE}/{key}", empty, self._gap())
            return
        best = max(rates, key=rates.__getitem__)
        flat = sorted((s for s, rate in rates.items() if rate >= _FLAT * rates[best]), key=lambda s: -rates[s])
        about = self._summary(points)
        chosen, why = self._choice(rates, flat)
        chosen_about = replace(about, reason="; ".join(filter(None, [why, about.reason])))
        sheet.put(f"{_BASE}/optimal", chosen[0], chosen_about)
        counted = self._process_widths or chosen[1] is not None
        sheet.put(f"{_BASE}/threads", chosen[1], chosen_about if counted else _NO_THREADS)
        sheet.put(f"{_BASE}/flat", [list(setting) for setting in flat], replace(about, unit="lanes, threads"))
        keys = ("lanes", "threads", "dtype", "rows", "gflops")
        sheet.put(f"{_BASE}/sweep", [{key: getattr(point, key) for key in keys} for point in points], about)
        for index, point in enumerate(points):
            sheet.measurements[f"{_BASE}/sweep/{index}"] = point.measurement

    def restore(self, partial: Capability) -> None:
        """The points of widths that were finished."""
        sweep = partial.execution.group_width.get("sweep") or []
        abouts = [partial.measurements.get(f"{_BASE}/sweep/{index}") for index in range(len(sweep))]
        points = [
            codec.from_json(Point, {**row, "measurement": codec.to_json(about)})
            for row, about in zip(sweep, abouts, strict=True)
            if about
        ]
        for point in points:
            key = (point.lanes, "" if self._process_widths else f"{point.dtype} {point.rows}")
            self.points[key] = (*self.points.get(key, ()), point)
            if point.dtype == self._formats[0] or not self._process_widths:
                self.readings[self._key(*key)] = Reading(point.gflops, point.measurement)

    def _points(self) -> list[Point]:
        for lanes, dtype, rows, _ in self._launches:
            reading = self.readings.get(self._key(lanes, f"{dtype} {rows}"))
            if reading and not self._process_widths:
                rate, about = reading
                point = Point(lanes=lanes, threads=None, dtype=dtype, rows=rows, gflops=rate, measurement=about)
                self.points[lanes, f"{dtype} {rows}"] = (point,)
        return [point for key in sorted(self.points, reverse=True) for point in self.points[key]]

    def _rates(self, points: list[Point], rows: int) -> dict[Setting, float]:
        """Of the format that decides."""
        ours = [point for point in points if point.dtype == self._formats[0] and point.rows == rows]
        return {(point.lanes, point.threads): point.gflops for point in ours if point.gflops}

    def _few_rows(self, points: list[Point]) -> tuple[int | None, Measurement]:
        """Lanes with which so few rows are fastest that the weight's bytes decide."""
        rates = self._rates(points, FEW_ROWS)
        if not rates:
            reason = "only launches are swept with few rows: what a CPU reads, its memory decides"
            return None, absent("unsupported", reason)[1] if self._process_widths else self._gap()
        lanes, _ = max(rates, key=rates.__getitem__)
        about = next(point.measurement for point in points if point.rows == FEW_ROWS and point.lanes == lanes)
        return lanes, replace(about, unit=None, verdict=None, pct_of_peak=None)

    def _choice(self, rates: dict[Setting, float], flat: list[Setting]) -> tuple[Setting, str]:
        """The device's own setting unless another is faster by more than 2 % in measurements without doubt."""
        details = self.adapter.device.details
        own = (self._process_widths[0], details.get("threads")) if self._process_widths else None
        if own is None or own not in rates:
            return flat[0], ""
        if own in flat:
            return own, f"the device's own setting, within 2 % of the best of {len(rates)}"
        doubted = [point for point in self._points() if point.measurement.status != "measured"]
        if any((point.lanes, point.threads) in (own, flat[0]) for point in doubted):
            return own, f"the device's own setting: {flat[0]} was faster, but on a busy device"
        return flat[0], f"{rates[flat[0]] / rates[own]:.2f} times as fast as the device's own setting"

    def _summary(self, points: list[Point]) -> Measurement:
        named = {
            f"{p.lanes} lanes, {p.threads} threads, {p.dtype}, {p.rows} rows": Reading(p.gflops, p.measurement)
            for p in points
        }
        best = next(point.measurement for point in points if point.gflops)
        missing = [f"{case.title}: {reading.measurement.reason}" for case, reading in self._failed()]
        return replace(summary(best, named, "; ".join(missing)), verdict=None, pct_of_peak=None, unit=None)

    def _failed(self) -> list[tuple[Case, Reading]]:
        cases = [self._child(lanes) for lanes in self._process_widths]
        found = [(case, self.readings[case.key]) for case in cases if case.key in self.readings]
        return [(case, reading) for case, reading in found if reading.value is None]

    def _gap(self) -> Measurement:
        if not self.total():
            return absent("unsupported", "the device computes with one width, and no launch can choose another")[1]
        return next((reading.measurement for _, reading in self._failed()), self.pending.measurement)

    def _key(self, lanes: int, dtype: str = "") -> tuple[str, int]:
        return f"{dtype} lanes".strip(), lanes

    def _child(self, lanes: int) -> Case:
        return Case(
            key=self._key(lanes),
            title=f"{lanes} lanes",
            unit="GFLOP/s",
            prepare=lambda _: self._ask(lanes),
            optional=True,
            is_late=True,
        )

    def _launch(self, lanes: int, dtype: str, rows: int, name: str) -> Case:
        return Case(
            key=self._key(lanes, f"{dtype} {rows}"),
            title=f"{dtype} {rows} rows {lanes} lanes",
            unit="GFLOP/s",
            prepare=partial(products, self.adapter, self.plan, dtype, rows=rows, launch=(name, lanes)),
            expected=self.plan.expectations.compute(dtype),
            optional=True,
        )

    def _ask(self, lanes: int) -> Reading:
        """What a child of this width measured: its best rate, and its points on the side."""
        host, device = self.plan.children, self.adapter.device
        if host is None:
            return absent("skipped", "no process may be started here")
        threads = _threads(self.adapter) if lanes == self._process_widths[0] else _threads(self.adapter)[-1:]
        order = Order(device=device, lanes=lanes, threads=threads, formats=self._formats)
        argv = [sys.executable, "-m", "vllm_probe.bench.child", json.dumps(codec.to_json(order))]
        result = host.run(argv, _TIMEOUT_S)
        if result.status != "exited" or result.returncode != 0:
            said = (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]
            return absent("error", f"its process: {result.status}, {said}"[:300])
        try:
            points = codec.from_json(tuple[Point, ...], json.loads(result.stdout))
        except (ProbeError, ValueError) as error:
            return absent("error", f"its process answered something else: {error}"[:300])
        self.points[lanes, ""] = points
        main = [Reading(p.gflops, p.measurement) for p in points if p.dtype == self._formats[0]]
        return max(main, key=lambda reading: reading.value or 0.0, default=absent("error", "nothing was timed"))


def _formats(adapter: HardwareAdapter[Any]) -> tuple[str, ...]:
    """Formats that the device computes in: the narrower of bf16 and fp32, which decides, and int8."""
    found = {dtype: adapter.supports(Primitive.LINEAR, dtype) for dtype in ("bf16", "fp32", "int8")}
    own = [dtype for dtype, support in found.items() if support.ok and not support.reason]
    return (*[dtype for dtype in own if dtype != "int8"][:1], *[dtype for dtype in own if dtype == "int8"])


def _launches(adapter: HardwareAdapter[Any], formats: tuple[str, ...]) -> list[tuple[int, str, int, str]]:
    """Lanes, format, rows and name of the first implementation that a launch can choose the lanes of."""
    names = {dtype: adapter.implementations(Primitive.LINEAR, dtype) for dtype in formats}
    return [
        (lanes, dtype, rows, name)
        for dtype in formats
        for name in [name for name in names[dtype] if adapter.group_widths(name)][:1]
        for rows in (ROWS, FEW_ROWS)
        for lanes in adapter.group_widths(name)
        if rows == ROWS or adapter.supports(Primitive.LINEAR, dtype, (rows, DEPTH, WIDTH)).ok
    ]


def _threads(adapter: HardwareAdapter[Any]) -> tuple[int, ...]:
    """One, all that the affinity mask allows, which a program takes that knows no quota, and last the budget."""
    details = adapter.device.details
    budget, allowed = details.get("threads") or 1, len(parse_cpu_list(details.get("affinity") or ""))
    return (*sorted({1, allowed or 1} - {budget}), budget)

"""Section of the transfers that overlap: how many are worth it, both ways at once, and whether the host is free."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from vllm_probe.bench.copies import ON_HOST, in_words, pair
from vllm_probe.bench.doubt import checked
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section, summary
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.bench.wall import until_done
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.values import COMPUTE_DTYPES

QUEUES = (1, 2, 3, 4, 8)
_LARGE, _SMALL = 64 << 20, 1 << 20
_CURVES = {
    "concurrency_curve": (_LARGE, "max_concurrent_transfers"),
    "small_concurrency_curve": (_SMALL, "max_concurrent_small_transfers"),
}
_SMALL_COPIES = 24
"""A multiple of all of `QUEUES`, so that each queue gets as many."""

_WORTH = 0.97
_FREE = 0.5
_ISSUES = 7
_RESTLESS_PCT = 20.0


class OverlapSection(Section):
    """The curves of `/dma` over queues and what follows from them, timed from the first issue to the last arrival."""

    name = "overlap"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self._pairs: dict[tuple[str, int, int], tuple[Any, Any]] = {}
        self._gain: Reading | None = None
        self._on_host = adapter.device.kind == "cpu"
        self._queues = () if self._on_host else tuple(k for k in QUEUES if k <= adapter.copy_queues)

    def total(self) -> int:
        """Every number of queues with both sizes; the way back, both ways, the host, and work beside a copy."""
        return len(self._cases())

    def batches(self) -> Iterator[Sequence[Case]]:
        """After the transfers one by one."""
        yield ()
        yield [case for case in self._cases() if case.key not in self.readings]

    def write(self, sheet: Sheet) -> None:
        """Curves, the least number of transfers with 97 % of the best rate, the gain of both ways, the host."""
        for curve, (_, count) in _CURVES.items():
            self._write_curve(sheet, curve, count)
        sheet.put("/dma/duplex_gain", *(self._gain or self._duplex()))
        share, about = self.readings.get(("host", 0), self._gap())
        sheet.put("/dma/cpu_bypass", None if share is None else share < _FREE, about)
        sheet.put("/dma/copy_compute_slowdown", *self.readings.get(("slowdown", 0), self._gap()))

    def restore(self, partial: Capability) -> None:
        """Points of the curves, the gain, and whether the host is free."""
        for curve in _CURVES:
            for index, (queues, rate) in enumerate(getattr(partial.dma, curve)):
                if about := partial.measurements.get(f"/dma/{curve}/{index}"):
                    self.readings[curve, queues] = Reading(rate, about)
        bypasses, slowdown, gain = partial.dma.cpu_bypass, partial.dma.copy_compute_slowdown, partial.dma.duplex_gain
        if bypasses is not None and (about := partial.measurements.get("/dma/cpu_bypass")):
            self.readings["host", 0] = Reading(0.0 if bypasses else 1.0, about)
        if slowdown is not None and (about := partial.measurements.get("/dma/copy_compute_slowdown")):
            self.readings["slowdown", 0] = Reading(slowdown, about)
        if gain is not None and (about := partial.measurements.get("/dma/duplex_gain")):
            self._gain = Reading(gain, about)

    def _gap(self) -> Reading:
        return absent("unsupported", ON_HOST) if self._on_host else self.pending

    def _cases(self) -> list[Case]:
        if self._on_host:
            return []
        rates: list[tuple[tuple[str, int], str, Any]] = [
            ((curve, k), f"{k} copies of {in_words(size)} at once", partial(self._prepare_queues, size, k))
            for curve, (size, _) in _CURVES.items()
            for k in self._queues
        ]
        if len(self._queues) > 1 and self._gain is None:
            rates.append((("back", 1), "copies back", partial(self._prepare_ways, ("d2h",))))
            rates.append((("both", 2), "copies both ways", partial(self._prepare_ways, ("h2d", "d2h"))))
        cases = [
            Case(key=key, title=title, unit="GB/s", prepare=make, optional=True, share=0.5)
            for key, title, make in rates
        ]
        looks = (("host", "host during a copy", self._issue), ("slowdown", "products during a copy", self._slowdown))
        return [
            *cases,
            *(Case(key=(key, 0), title=title, unit="", prepare=look, optional=True) for key, title, look in looks),
        ]

    def _bytes(self, size: int) -> int:
        """Bytes of one transfer, so that all together take no more than an array."""
        return min(size, self.plan.array_bytes // QUEUES[-1])

    def _pair(self, way: str, nbytes: int, index: int) -> tuple[Any, Any]:
        """Operands of one queue, the same for every number of queues."""
        key = (way, nbytes, index)
        if key not in self._pairs:
            self._pairs[key] = pair(self.adapter, way, "pinned", nbytes, seed=index)
        return self._pairs[key]

    def _prepare_queues(self, size: int, queues: int, divisor: int) -> Work:
        nbytes = self._bytes(size) // divisor
        pairs = [self._pair("h2d", nbytes, index) for index in range(queues)]
        count = _SMALL_COPIES if size == _SMALL else queues
        return self._together([(i % queues, pairs[i % queues]) for i in range(count)], nbytes)

    def _prepare_ways(self, ways: Sequence[str], divisor: int) -> Work:
        nbytes = self._bytes(_LARGE) // divisor
        pairs = [self._pair(way, nbytes, 0) for way in ways]
        return self._together([*enumerate(pairs)], nbytes)

    def _together(self, copies: Sequence[tuple[int, tuple[Any, Any]]], nbytes: int) -> Work:
        """`copies`, each a queue with source and target, as one call."""

        def call() -> None:
            events = [
                self.adapter.copy(source, target, non_blocking=True, queue=queue) for queue, (source, target) in copies
            ]
            for event in events:
                event.wait()

        return Work(
            calls=(call,),
            amount=len(copies) * nbytes,
            method=f"{len(copies)} pinned copies of {nbytes} bytes counted once, from first issue to last arrival",
            timer=until_done(self.adapter),
        )

    def _slowdown(self, divisor: int) -> Reading:
        """Time of a transfer and products at once over that of the longer of them alone, which takes about as long."""
        adapter, plan, wall = self.adapter, self.plan, until_done(self.adapter)
        dtype = next((dtype for dtype in COMPUTE_DTYPES if adapter.supports(Primitive.LINEAR, dtype).ok), None)
        if dtype is None:
            return absent("unsupported", "the adapter has no matrix product to run beside a copy")
        depth, width = plan.product(dtype)
        x = adapter.random((plan.point_rows, depth), dtype, 0)
        product = partial(adapter.prepare_linear(adapter.random((width, depth), dtype, 1), None, dtype), x)
        source, target = self._pair("h2d", self._bytes(_LARGE) // divisor, 0)
        copy = partial(adapter.copy, source, target, non_blocking=True, queue=adapter.copy_queues - 1)
        wall((copy, product))
        copies, products = _balanced(checked(wall((copy,)), 1), checked(wall((product,)), 1))
        moves, work = (copy,) * copies, (product,) * products
        turns = [(wall(moves), wall(work), wall((*moves, *work))) for _ in range(_ISSUES)]
        ratios = [checked(both, 1) / max(moved, worked) for moved, worked, both in turns]
        spread_pct = 100 * (max(ratios) - min(ratios)) / median(ratios)
        about = Measurement(
            source="measured",
            status="measured" if spread_pct < _RESTLESS_PCT else "noisy",
            reason=None if spread_pct < _RESTLESS_PCT else f"turns differ by {spread_pct:.0f} %",
            confidence="medium" if spread_pct < _RESTLESS_PCT else "low",
            samples=_ISSUES,
            spread_pct=spread_pct,
            method=(
                f"{copies} times {source.nbytes} pinned bytes beside {products} products in {dtype}; "
                "1: both as fast as alone, 2: one after the other"
            ),
        )
        return Reading(median(ratios), about)

    def _issue(self, divisor: int) -> Reading:
        """Share of a transfer's time after which its call has returned."""
        adapter, shares = self.adapter, []
        nbytes = self._bytes(_LARGE) // divisor
        source, target = self._pair("h2d", nbytes, 0)
        for _ in range(_ISSUES):
            adapter.synchronize()
            begin = adapter.clock()
            event = adapter.copy(source, target, non_blocking=True)
            issued = adapter.clock()
            event.wait()
            shares.append((issued - begin) / checked(adapter.clock() - begin, 1))
        share = median(shares)
        about = Measurement(
            source="measured",
            status="measured",
            reason=f"a pinned copy of {nbytes} bytes returned to the processor after {100 * share:.1f} % of its time",
            confidence="high" if max(shares) < _FREE or min(shares) >= _FREE else "low",
            samples=_ISSUES,
            method="true under a half",
        )
        return Reading(share, about)

    def _write_curve(self, sheet: Sheet, curve: str, count: str) -> None:
        points = {k: self.readings[curve, k] for k in self._queues if (curve, k) in self.readings}
        rates = {k: reading.value for k, reading in points.items() if reading.value is not None}
        if not rates:
            gap = next(iter(points.values()), self._gap()).measurement
            sheet.put(f"/dma/{curve}", [], gap)
            sheet.put(f"/dma/{count}", None, gap)
            return
        least = min(k for k, rate in rates.items() if rate >= _WORTH * max(rates.values()))
        missing = [str(k) for k in self._queues if k not in points]
        gap_text = f"not measured with {', '.join(missing)} queues" if missing else ""
        named = {f"{k} queues": reading for k, reading in points.items()}
        about = summary(points[least].measurement, named, gap_text)
        sheet.put(
            f"/dma/{curve}", [[k, rate] for k, rate in sorted(rates.items())], replace(about, unit="queues, GB/s")
        )
        for index, k in enumerate(sorted(rates)):
            sheet.measurements[f"/dma/{curve}/{index}"] = points[k].measurement
        method = f"least number of queues with {100 * _WORTH:.0f} % of the best rate"
        sheet.put(f"/dma/{count}", least, replace(about, unit=None, method=method, verdict=None))

    def _duplex(self) -> Reading:
        """Both ways at once over the faster one alone."""
        if not self._on_host and len(self._queues) < 2:
            return absent("unsupported", "the device has one queue for copies")
        found = [self.readings.get(key, self._gap()) for key in (("both", 2), ("concurrency_curve", 1), ("back", 1))]
        both, *alone = (reading.value for reading in found)
        if gap := next((reading for reading in found if reading.value is None), None):
            return gap
        gain = (both or 0.0) / max(rate for rate in alone if rate is not None)
        named = dict(zip(("both ways", "h2d", "d2h"), found, strict=True))
        about = summary(found[0].measurement, named)
        return Reading(gain, replace(about, unit=None, method="h2d and d2h at once over the faster one", verdict=None))


def _balanced(copy_s: float, product_s: float) -> tuple[int, int]:
    """How many of each take about as long as the others."""
    return max(1, round(product_s / copy_s)), max(1, round(copy_s / product_s))

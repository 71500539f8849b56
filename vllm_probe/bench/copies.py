"""Section of the transfers between host and device: a line through the times of several sizes, for each kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section, judged, summary
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.bench.wall import until_done
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability

KINDS = ("h2d_pinned", "d2h_pinned", "h2d_pageable", "d2h_pageable")
ON_HOST = "host memory is device memory, nothing is transferred"
_SIZES, _QUICK_SIZES = (4 << 10, 256 << 10, 16 << 20, 128 << 20), (4 << 10, 16 << 20)
_PATTERN_BYTES = 16 << 10
_FAR = 0.25
"""Relative distance of a point from the line from which on the line does not describe the transfers."""


class CopySection(Section):
    """Rates and latencies of `/dma`; a device whose memory is the host's has none."""

    name = "copies"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self._sizes = _QUICK_SIZES if plan.quick else _SIZES
        self._kinds = () if adapter.device.kind == "cpu" else KINDS
        self._restored: dict[str, tuple[Reading, Reading]] = {}

    def total(self) -> int:
        """Every kind at every size."""
        return len(self._kinds) * len(self._sizes)

    def batches(self) -> Iterator[Sequence[Case]]:
        """All at once."""
        yield [self._case(kind, size) for kind in self._kinds if kind not in self._restored for size in self._sizes]

    def write(self, sheet: Sheet) -> None:
        """A line for each kind whose sizes have all been timed."""
        engines = self.adapter.copy_engines or self.adapter.device.details.get("copy_engines")
        sheet.fact("/dma/engine_count", engines, gap="neither the driver nor the adapter tells how many there are")
        sheet.gap("/dma/peer_gb_s", "skipped", "one device is opened at a time, and there is no other to copy to")
        for kind in KINDS:
            rate, latency = self._restored.get(kind) or self._line(kind)
            sheet.put(f"/dma/{kind}_gb_s", *rate)
            sheet.put(f"/dma/{kind}_latency_us", *latency)
        if not self._kinds:
            sheet.gap("/dma/engine_count", "unsupported", ON_HOST)
            sheet.gap("/dma/peer_gb_s", "unsupported", ON_HOST)

    def restore(self, partial: Capability) -> None:
        """Lines that were finished."""
        for kind in self._kinds:
            names = (f"{kind}_gb_s", f"{kind}_latency_us")
            abouts = [partial.measurements.get(f"/dma/{name}") for name in names]
            rate, latency = (
                Reading(getattr(partial.dma, n), a) if a else None for n, a in zip(names, abouts, strict=True)
            )
            if rate and latency and rate.value is not None:
                self._restored[kind] = (rate, latency)

    def _case(self, kind: str, size: int) -> Case:
        return Case(
            key=(kind, size),
            title=f"copy {kind.replace('_', ' ')} {in_words(size)}",
            unit="us",
            prepare=partial(self._prepare, kind, size),
            optional=size not in _QUICK_SIZES,
            share=0.5,
        )

    def _prepare(self, kind: str, size: int, divisor: int) -> Work | Reading:
        way, memory = kind.split("_")
        nbytes = min(size, self.plan.array_bytes) // divisor
        if nbytes != size and size != self._sizes[-1]:
            return absent("skipped", f"no memory for {in_words(size)}")
        if size == self._sizes[0] and (wrong := self._damage(memory)):
            return absent("error", wrong)
        source, target = pair(self.adapter, way, memory, nbytes, seed=1)
        return Work(
            calls=(lambda: self.adapter.copy(source, target, non_blocking=memory == "pinned").wait(),),
            amount=None,
            method=f"{nbytes} bytes, from issue to arrival",
            timer=until_done(self.adapter),
        )

    def _damage(self, memory: str) -> str | None:
        """What becomes of a pattern that goes to the host and back, null when it is unharmed."""
        adapter, pattern = self.adapter, [(7 * i + i // 251) % 251 - 125 for i in range(_PATTERN_BYTES)]
        there, here = adapter.from_host(pattern, "int8"), host_memory(adapter, memory, _PATTERN_BYTES)
        back = adapter.allocate(_PATTERN_BYTES)
        for source, target in ((there, here), (here, back)):
            adapter.copy(source, target, non_blocking=memory == "pinned").wait()
        wrong = sum(got != want for got, want in zip(adapter.to_host(back), pattern, strict=True))
        return f"{wrong} of {_PATTERN_BYTES} bytes came back wrong" if wrong else None

    def _line(self, kind: str) -> tuple[Reading, Reading]:
        """Rate and latency, or twice the reason why there are none."""
        if not self._kinds:
            return (absent("unsupported", ON_HOST),) * 2
        points = {size: self.readings.get((kind, size)) for size in self._sizes}
        found = {size: reading for size, reading in points.items() if reading is not None}
        times = {size: reading.value for size, reading in found.items() if reading.value is not None}
        if len(found) < len(points):
            return (self.pending,) * 2
        if self._sizes[0] not in times or self._sizes[-1] not in times:
            return (next(reading for reading in found.values() if reading.value is None),) * 2
        return self._fitted(kind, times, found)

    def _fitted(self, kind: str, times: Mapping[int, float], points: Mapping[int, Reading]) -> tuple[Reading, Reading]:
        latency_us, us_per_byte = fit(times)
        worst = max(abs(latency_us + us_per_byte * size - time) / time for size, time in times.items())
        far = f"the line misses a point by {100 * worst:.0f} %" if worst > _FAR else ""
        about = summary(points[max(times)].measurement, {in_words(n): each for n, each in points.items()}, far)
        sizes = ", ".join(map(in_words, times))
        about = replace(
            about,
            method=f"line through the times of {sizes}, from issue to arrival, bytes counted once, a pattern checked",
            status="noisy" if far or us_per_byte <= 0 else about.status,
            confidence="low" if far or us_per_byte <= 0 else about.confidence,
        )
        largest = max(times)
        rate = 1e-3 / us_per_byte if us_per_byte > 0 else 1e-3 * largest / times[largest]
        doubted = judged(rate, replace(about, unit="GB/s"), self.plan.expectations.link(f"/dma/{kind}_gb_s"))
        return Reading(rate, doubted), Reading(max(latency_us, 0.0), replace(about, verdict=None, unit="us"))


def fit(times: Mapping[int, float]) -> tuple[float, float]:
    """Intercept and slope of the line through points (x, y) of which the squares of relative errors are least."""
    weights = {x: 1 / (y * y) for x, y in times.items()}
    total = sum(weights.values())
    mean_x, mean_y = (sum(w * (x, times[x])[i] for x, w in weights.items()) / total for i in (0, 1))
    slope = sum(w * (x - mean_x) * (times[x] - mean_y) for x, w in weights.items()) / sum(
        w * (x - mean_x) ** 2 for x, w in weights.items()
    )
    return mean_y - slope * mean_x, slope


def pair(adapter: HardwareAdapter[Any], way: str, memory: str, nbytes: int, seed: int) -> tuple[Any, Any]:
    """Source and target of a transfer that was made once, so that no page is touched first while it is timed.

    Raises:
        ArithmeticError: something else arrived.
    """
    device, host = adapter.random((nbytes,), "int8", seed), host_memory(adapter, memory, nbytes)
    places = [(device, host)]
    if way == "h2d":
        places.append((host, adapter.random((nbytes,), "int8", seed + 1)))
    for source, target in places:
        adapter.copy(source, target).wait()
        spot.require_same(adapter, source, target)
    return places[-1]


def host_memory(adapter: HardwareAdapter[Any], memory: str, nbytes: int) -> Any:
    """`nbytes` of `pinned` or `pageable` memory of the host."""
    return adapter.allocate_pinned(nbytes) if memory == "pinned" else adapter.allocate_pageable(nbytes)


def in_words(nbytes: int) -> str:
    """A size for people."""
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"

"""Measurements to a capability document, in which every value and every gap says where it comes from."""

from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vllm_probe.bench.bandwidth import KINDS
from vllm_probe.bench.facts import Sheet, known_facts
from vllm_probe.bench.gemm import Choice
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import CONFIDENCES, Reading, absent
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.document import Stamp
from vllm_probe.core.values import COMPUTE_DTYPES


@dataclass(slots=True)
class Results:
    """What has been measured so far.

    Attributes:
        readings: by number format and activation rows, or by kind of memory access and 0.
        choices: implementation of the linear by number format.
        refused: formats that the adapter cannot multiply in, with the reason.
    """

    readings: dict[tuple[str, int], Reading] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Report:
    """Writes the capability document of one device; what is looked up is looked up once."""

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan, stamp: Stamp) -> None:
        self._device = adapter.device
        self._plan = plan
        self._stamp = stamp
        self._known = known_facts(adapter)

    def capability(self, results: Results) -> Capability:
        """The document of `results`; what is not in them is null and skipped."""
        sheet = deepcopy(self._known)
        for dtype in COMPUTE_DTYPES:
            self._compute_unit(sheet, dtype, results)
        for kind in KINDS:
            sheet.put(f"/memory/{kind}_gb_s", *results.readings.get((kind, 0), self._pending("memory")))
        headline = "read" if self._device.kind == "cpu" else "triad"
        sheet.put("/memory/bandwidth_gb_s", *results.readings.get((headline, 0), self._pending("memory")))
        if not results.choices:
            sheet.put("/primitives", {}, self._pending("gemm").measurement)
        for dtype, choice in results.choices.items():
            value = {key: item for key, item in asdict(choice).items() if item}
            method = f"seconds at {self._plan.point_rows} rows, rounds in turn, results checked"
            measurement = Measurement(source="measured", status="measured", method=method)
            sheet.put(f"/primitives/linear/{dtype}", value, measurement)
        sections = {"measurements": codec.to_json(sheet.measurements), "unknown": sheet.unknown}
        header = {"schema_version": "2.0", "device_type": self._device.vendor, **self._stamp.header()}
        return codec.from_json(Capability, {**header, **sheet.values, **sections})

    def restore(self, partial: Capability) -> Results:
        """The finished measurements of an interrupted run; none when it ran elsewhere or with another torch."""
        results = Results()
        here = self._known.values["device"]
        there = codec.to_json(partial.device)
        if partial.host_fingerprint != self._stamp.host_fingerprint or there != here:
            return results
        for dtype, unit in partial.compute_units.items():
            for index, (rows, rate) in enumerate(unit.curve):
                if measurement := partial.measurements.get(f"/compute_units/{dtype}/curve/{index}"):
                    results.readings[dtype, rows] = Reading(rate, measurement)
        for kind in KINDS:
            pointer, value = f"/memory/{kind}_gb_s", getattr(partial.memory, f"{kind}_gb_s")
            if value is not None and pointer in partial.measurements:
                results.readings[kind, 0] = Reading(value, partial.measurements[pointer])
        results.choices = {
            dtype: codec.from_json(Choice, choice) for dtype, choice in partial.primitives.get("linear", {}).items()
        }
        return results

    def _pending(self, group: str) -> Reading:
        return absent("skipped", "not run yet" if group in self._plan.groups else f"--only leaves {group} out")

    def _compute_unit(self, sheet: Sheet, dtype: str, results: Results) -> None:
        base, threads = f"/compute_units/{dtype}", self._device.details.get("threads")
        points = {rows: reading for (name, rows), reading in results.readings.items() if name == dtype}
        curve = [(rows, reading) for rows, reading in sorted(points.items()) if reading.value is not None]
        gap = next((reading for reading in points.values() if reading.value is None), self._pending("gemm"))
        if dtype in results.refused:
            gap = absent("unsupported", results.refused[dtype])
        best = _best([reading for _, reading in curve]) if curve else gap
        sheet.put(f"{base}/throughput_gflops", *best)
        sheet.put(f"{base}/sustained_gflops", *(absent("skipped", "burst only in this release") if curve else gap))
        sheet.fact(f"{base}/max_threads", threads)
        summary = self._summary(best.measurement, points) if curve else gap.measurement
        sheet.put(f"{base}/curve", [[rows, reading.value] for rows, reading in curve], summary)
        for index, (_, reading) in enumerate(curve):
            sheet.measurements[f"{base}/curve/{index}"] = reading.measurement

    def _summary(self, best: Measurement, points: dict[int, Reading]) -> Measurement:
        """What holds for a whole curve: its best point's facts, the sum of samples, the gaps."""
        unmeasured = [rows for rows in self._plan.rows if rows not in points]
        reasons = [f"{rows} rows: {r.measurement.reason}" for rows, r in sorted(points.items()) if r.value is None]
        reasons += [f"not measured at {', '.join(map(str, unmeasured))} rows"] if unmeasured else []
        found = [reading.measurement for reading in points.values() if reading.value is not None]
        noisy = any(measurement.status != "measured" for measurement in found)
        return replace(
            best,
            status="noisy" if noisy else "measured",
            reason="; ".join(reasons) or None,
            method="each point has its own measurement, under its index",
            confidence=max((m.confidence or "low" for m in found), key=CONFIDENCES.index),
            samples=sum(measurement.samples or 0 for measurement in found),
            spread_pct=max(measurement.spread_pct or 0.0 for measurement in found),
        )


def _best(readings: list[Reading]) -> Reading:
    """The highest rate; one without doubts where there is one within 5 % of it."""
    highest = max(reading.value or 0.0 for reading in readings)
    near = [reading for reading in readings if (reading.value or 0.0) >= 0.95 * highest]
    sure = [reading for reading in near if reading.measurement.status == "measured"]
    return max(sure or near, key=lambda reading: reading.value or 0.0)

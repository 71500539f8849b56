"""What a descriptor says about speed, how it knows, and what of it cannot be believed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_probe.core.capability import Capability, ComputeUnit
from vllm_probe.core.units import format_figure
from vllm_probe.negotiate.laws import Row
from vllm_probe.vendors.headline import headline, is_passed_over, ratio_doubt

_SLACK = 10
_DOUBTFUL = ("noisy", "throttled", "suspect")
_LARGE_SPREAD_PCT = 10
_KINDS = {"sustained": "sustained", "burst": "in short runs"}
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True)
class Rate:
    """Matrix product rate of one number format, in 1e9 operations per second, and how it is known.

    A derived one is a measured rate times a measured ratio.
    """

    gflops: float
    kind: Literal["sustained", "burst"]
    source: Literal["measured", "derived", "stated"]

    @property
    def is_measured(self) -> bool:
        """Whether the device was measured, be it in another format; what is stated was never reached."""
        return self.source != "stated"

    def __str__(self) -> str:
        how = f"{self.source}, {_KINDS[self.kind]}" if self.is_measured else "stated"
        return f"{format_figure(self.gflops)} GFLOP/s ({how})"


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one descriptor, whose device type has the rules `device`."""

    capability: Capability
    device: Row

    def of(self, word: str) -> Rate | None:
        """Headline rate: sustained, or burst where nothing else can be believed; weight-only at its best row count."""
        only = self.capability.weight_only.get(word)
        if self._unit(word) and (found := headline(self.capability, word)):
            return Rate(*found, self._source(word, found.kind))
        if only and only.curve:
            return Rate(max(point[2] for point in only.curve), "burst", "measured")
        return None

    def at(self, word: str, rows: int) -> float | None:
        """GFLOP/s at a row count, linear between points of the curve; the headline rate where there is no curve."""
        headline, curve = self.of(word), self.curve(word)
        if headline is None or not curve:
            return headline.gflops if headline else None
        scale = min(1.0, headline.gflops / max(rate for _, rate in curve)) if headline.kind == "sustained" else 1.0
        return scale * _interpolate(curve, rows)

    def curve(self, word: str) -> tuple[tuple[int, float], ...]:
        """Pairs of rows and GFLOP/s, ascending; empty where none was measured.

        A doubtful point whose rounds differ by more than 10 %, or by an unknown share, counts at most as much as the
        better of its neighbours, so that no such point alone makes a peak.
        """
        unit, only = self._unit(word), self.capability.weight_only.get(word)
        points = unit.curve if unit else tuple((p[0], p[2]) for p in only.curve) if only else ()
        known = sorted((*point, self._wavers(word, index)) for index, point in enumerate(points) if point[1] > 0)
        rates = [rate for _, rate, _ in known]
        beside = [max([*rates[max(0, at - 1) : at], *rates[at + 1 : at + 2]], default=0.0) for at in range(len(known))]
        capped = zip(known, beside, strict=True)
        return tuple((rows, min(rate, near) if wavers and near else rate) for (rows, rate, wavers), near in capped)

    @property
    def bandwidth(self) -> float | None:
        """Headline memory bandwidth in GB/s."""
        return self.capability.memory.bandwidth_gb_s or None

    @property
    def has_measured_bandwidth(self) -> bool:
        """Whether that was measured and not stated."""
        note = self.capability.measurements.get("/memory/bandwidth_gb_s")
        return note is not None and note.source == "measured"

    def why_missing(self, word: str) -> str:
        """Why a format has no rate."""
        if (unit := self.capability.compute_units.get(word)) and unit.throughput_gflops and not self._unit(word):
            return f"the {word} rate is of two {word} matrices; {word} weights alone are in weight_only, not measured"
        note = self.capability.measurements.get(f"/compute_units/{word}/throughput_gflops")
        return f"{word} was not measured: {note.reason}" if note and note.reason else f"the descriptor lists no {word}"

    def suspects(self) -> tuple[str, ...]:
        """Values that cannot be believed: more than 10x off what such devices reach, or marked so by bench."""
        notes = self.capability.measurements
        stated = [
            (word, f"/compute_units/{word}/throughput_gflops", unit.throughput_gflops)
            for word, unit in sorted(self.capability.compute_units.items())
        ]
        found = []
        for word, pointer, value in [*stated, ("bandwidth", "/memory/bandwidth_gb_s", self.bandwidth)]:
            low, high = self.device["plausible"].get(word, (None, None))
            note = notes.get(pointer)
            if note and note.status == "suspect":
                found.append(f"{pointer}: suspect: {note.reason or 'marked by bench'}; run `vllm-probe bench` again")
            is_measured = note is not None and note.source == "measured"
            if value and low and not is_measured and not low / _SLACK <= value <= high * _SLACK:
                found.append(
                    f"{pointer} {value:g}: suspect: unit? such devices have"
                    f" {format_figure(low)} to {format_figure(high)}"
                )
        return tuple(found)

    def bursts(self, words: Iterable[str]) -> str | None:
        """Which of the rates of `words` are bursts though sustained ones stand beside them, and why."""
        found = [word for word in words if self._unit(word) and is_passed_over(self.capability, word)]
        if not found:
            return None
        ratio = f"their sustained ones rest on a ratio that was not measured well ({ratio_doubt(self.capability)})"
        advice = "" if self.doubts(found) else "; run `vllm-probe bench` while the device is idle"
        return f"rates of short runs count for {', '.join(found)}: {ratio}{advice}"

    def doubts(self, words: Iterable[str]) -> str | None:
        """Which of the values behind the choice among `words` were measured on a busy device, and what to do."""
        found: dict[tuple[str, str], list[str]] = {}
        for word in words:
            for what in self._marked(word):
                found.setdefault(what, []).append(word)
        said = [f"{form.format(', '.join(of))} ({status})" for (form, status), of in found.items()]
        bandwidth = self.capability.measurements.get("/memory/bandwidth_gb_s")
        if bandwidth and bandwidth.status in ("noisy", "throttled"):
            said.append(f"memory bandwidth ({bandwidth.status})")
        if not said:
            return None
        return f"measured on a busy device: {'; '.join(said)}; run `vllm-probe bench` while it is idle, negotiate again"

    def _marked(self, word: str) -> Iterator[tuple[str, str]]:
        """What of a format is doubtful, with its name to be put in, and how: the rate, unless its whole curve is so."""
        notes, unit = self.capability.measurements, self._unit(word)
        rows: dict[str, list[int]] = {}
        for index, point in enumerate(unit.curve if unit else ()):
            note = notes.get(f"/compute_units/{word}/curve/{index}")
            if note and note.status in _DOUBTFUL:
                rows.setdefault(note.status, []).append(point[0])
        whole = {status for status, at in rows.items() if unit and len(at) == len(unit.curve) > 1}
        pointers = [f"/compute_units/{word}/{key}" for key in ("sustained_gflops", "throughput_gflops")]
        marks = {notes[pointer].status for pointer in pointers if pointer in notes} & {"noisy", "throttled"}
        if marks - whole:
            yield "the {} rate", ", ".join(sorted(marks))
        for status, at in sorted(rows.items()):
            yield f"{{}} at {'all' if status in whole else ', '.join(map(str, at))} rows", status

    def _wavers(self, word: str, index: int) -> bool:
        """Whether a point of the curve is doubtful and its spread large or unknown."""
        note = self.capability.measurements.get(f"/compute_units/{word}/curve/{index}")
        if note is None or note.status not in _DOUBTFUL:
            return False
        return note.spread_pct is None or note.spread_pct > _LARGE_SPREAD_PCT

    def _unit(self, word: str) -> ComputeUnit | None:
        """Where the rate of a format stands.

        Every int4 method of the engines keeps its activations wide (AWQ, GPTQ and W4A16 of vLLM 0.33.0), so that the
        rate of two int4 matrices is none of theirs. Only a version-1 document has no other place for it.
        """
        if word == "int4" and not self.capability.schema_version.startswith("1."):
            return None
        return self.capability.compute_units.get(word)

    def _source(self, word: str, kind: Literal["sustained", "burst"]) -> Literal["measured", "derived", "stated"]:
        """How a rate of a format is known; only a rate derived from its measured burst is more than stated."""
        notes = self.capability.measurements
        burst = notes.get(f"/compute_units/{word}/throughput_gflops")
        note = notes.get(f"/compute_units/{word}/sustained_gflops") if kind == "sustained" else burst
        if note and note.source == "measured":
            return "measured"
        is_derived = note is not None and note.source == "derived"
        return "derived" if is_derived and burst and burst.source == "measured" else "stated"


def _interpolate(curve: Sequence[tuple[int, float]], rows: int) -> float:
    below = max((point for point in curve if point[0] <= rows), default=curve[0])
    above = min((point for point in curve if point[0] >= rows), default=curve[-1])
    if above[0] <= below[0]:
        return below[1]
    return below[1] + (above[1] - below[1]) * (rows - below[0]) / (above[0] - below[0])


def slower(word: str, rate: Rate, best: str, best_rate: Rate) -> str:
    """`fp16 was measured 17 times slower than bf16: 56 against 974 GFLOP/s (in short runs)`."""
    ratio = best_rate.gflops / rate.gflops
    times = f"{ratio:.1f}" if ratio < 1.95 else f"{ratio:.0f}"
    if 1.95 <= ratio < 12.5:
        times = f"about {_NUMBERS[round(ratio) - 2]}"
    said = "was measured" if rate.is_measured and best_rate.is_measured else "is stated as"
    kinds = dict.fromkeys(_KINDS[each.kind] for each in (rate, best_rate) if each.is_measured)
    figures = f"{format_figure(rate.gflops)} against {format_figure(best_rate.gflops)} GFLOP/s"
    figures += f" ({' against '.join(kinds)})" if kinds else ""
    return f"{word} {said} {times} times slower than {best}: {figures}"

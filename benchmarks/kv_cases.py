"""Memory laws of negotiate against real vLLM start-ups: a table of cells, and who misses.

Usage: python benchmarks/kv_cases.py [CASES.jsonl]

A line of the file is one start: `id vllm_version gpu gpu_count gpu_mem_gib model kv_dtype tp pp max_model_len
gpu_memory_utilization enforce_eager weights_gib kv_avail_gib kv_tokens num_blocks outcome grade`. What a start does not
state is pinned to the default of its version. A version that is absent is taken as the newest that runs on the card,
one that names a month as the release of `released`, and only the verdict is compared then. Every exclusion is a rule
of `excluded`, none is by name.
"""

import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import from_json
from vllm_probe.core.config import MemoryBudget
from vllm_probe.core.errors import ProbeError
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.units import GIB
from vllm_probe.models import catalogue, names
from vllm_probe.negotiate.case import open_case
from vllm_probe.negotiate.chunking import start_defaults
from vllm_probe.negotiate.laws import card_of, table
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.select import choose
from vllm_probe.negotiate.support import device_reason, release_for

CASES = Path(__file__).parents[2] / "shared" / "data" / "vllm_kv_cases.jsonl"

RELEASES = {
    "0.6.3": "2024-10-14", "0.6.4": "2024-11-15", "0.6.5": "2024-12-18", "0.6.6": "2024-12-27", "0.7.0": "2025-01-27",
    "0.7.1": "2025-02-01", "0.7.2": "2025-02-06", "0.7.3": "2025-02-20", "0.8.0": "2025-03-18",
}  # fmt: skip
"""Days on which releases of vLLM were uploaded to PyPI, around the months that sources name instead of a version."""

FAILED = {"fail_kv_lt_maxlen", "no_kv_memory", "oom", "oom_load", "oom_graph_capture", "oom_warmup", "invalid_tp"}
"""Outcomes of a start that memory or shape prevented."""


@dataclass(frozen=True)
class Case:
    """One start with what is predicted of it; `why` says why it is not predicted."""

    row: dict[str, Any]
    why: str | None = None
    budget: MemoryBudget | None = None
    options: int = 0

    @property
    def cell(self) -> tuple[str, str, str]:
        """GPU, version and model: rows of one cell count as one."""
        row = self.row
        return str(row["gpu"]), str(row["vllm_version"] or "not stated"), str(row["model"])

    @property
    def is_fit(self) -> bool:
        """Whether its cell is in the half that terms may be fitted to; by the digest of the cell's name."""
        return hashlib.sha256("|".join(self.cell).encode()).digest()[0] % 2 == 0

    def error(self, logged: str, predicted: str) -> float | None:
        """Relative error of one figure; null when the row or the prediction lacks it."""
        value, found = self.row.get(logged), getattr(self.budget, predicted, None)
        return found / GIB / value - 1 if value and value > 0 and found else None

    @property
    def weights_error(self) -> float | None:
        """Of the weights of a rank."""
        return self.error("weights_gib", "weights_bytes")

    @property
    def kv_error(self) -> float | None:
        """Of the KV bytes of a rank, for a start whose share of the memory is stated and that was sized."""
        booted = self.row["outcome"] == "ok" and self.row["gpu_memory_utilization"] is not None
        return self.error("kv_avail_gib", "kv_cache_bytes") if booted and self.is_numbered else None

    @property
    def is_numbered(self) -> bool:
        """Whether its version is stated as a number; what is left beside the weights says nothing without."""
        return (self.row["vllm_version"] or "")[:1].isdigit()

    @property
    def boots(self) -> bool:
        """Whether it is predicted to start."""
        return self.budget is not None and self.budget.verdict == "boots"

    @property
    def is_judged(self) -> bool:
        """Whether its verdict is compared, be it with every default pinned."""
        return self.budget is not None and self.row["grade"] in ("A", "B")

    @property
    def is_stated(self) -> bool:
        """Whether its source tells the version and the length or the share; else that the defaults held is a guess."""
        states = self.row["max_model_len"] or self.row["gpu_memory_utilization"]
        return self.is_judged and bool(states and self.row["vllm_version"])

    @property
    def is_right(self) -> bool:
        """Whether that is what happened."""
        return self.boots is (self.row["outcome"] == "ok")


def released(words: str) -> str | None:
    """The version that `words` mean: the number before a slash, else the newest release in the middle of a month."""
    if words[:1].isdigit():
        return words.partition("/")[0]
    month = re.search(r"(Jan|Feb|Mar|Oct|Nov|Dec)-(20\d\d)", words)
    number = {"Jan": 1, "Feb": 2, "Mar": 3, "Oct": 10, "Nov": 11, "Dec": 12}
    day = f"{month[2]}-{number[month[1]]:02}-15" if month else ""
    return max((version for version, since in RELEASES.items() if since <= day), default=None)


def excluded(row: dict[str, Any], spec: ModelSpec | None) -> str | None:
    """Why a start says nothing about the law, or null."""
    rules = {
        "no model is named": not row["model"],
        "no config of the model is known": spec is None,
        "the version is neither a number nor a month": row["vllm_version"] and not released(row["vllm_version"]),
        "the GPU is not stated": not row["gpu"],
        "not a matter of memory: another process held it, or the reason is not known": row["outcome"]
        in ("gpu_busy", "other"),
        "a drafter or patched engine beside the model": "drafter" in (row["model"] or "") or "fork" in row["note"],
        "its own figures do not add up": _contradicts(row),
        "cards of different sizes": " + " in (row["gpu"] or ""),
    }
    return next((rule for rule, holds in rules.items() if holds), None)


def _contradicts(row: dict[str, Any]) -> bool:
    """Whether total x share less weights, activation and the rest is not the logged KV memory, up to 0.5 GiB."""
    keys = ("gpu_mem_gib", "gpu_memory_utilization", "weights_gib", "activation_gib", "nontorch_gib", "kv_avail_gib")
    total, share, *parts = figures = [math.nan if row.get(key) is None else row[key] for key in keys]
    return not any(map(math.isnan, figures)) and abs(total * share - sum(parts)) > 0.5


def spec_of(model: str | None, quantization: str | None = None) -> ModelSpec | None:
    """The catalogue's shape of a logged model name, with the quantization that the name or else the row says."""
    found = names.find(model.split()[0]) if model else None
    if found is None:
        return None
    entry, reading = found
    spec = catalogue.load(entry)
    said = reading.quantization if reading.quantization != "none" else quantization
    known = said in table("methods") and spec.quantization == "none"
    return replace(spec, quantization=said) if said and known else spec


def length_of(row: dict[str, Any], spec: ModelSpec) -> int:
    """The length of a start that states none: the limit of the model, or the fewer tokens that it came up with.

    vLLM starts with no length that its cache does not hold (`_check_enough_kv_cache_memory` of
    vllm/v1/core/kv_cache_utils.py), so one that came up with fewer tokens than the limit was given a shorter length.
    """
    held = row["kv_tokens"] if row["outcome"] == "ok" else None
    return min(spec.max_model_len, held or spec.max_model_len)


def device_of(row: dict[str, Any]) -> tuple[Capability, int] | None:
    """A descriptor of the card of `row` and the bytes that an engine sees of it; null for an unknown card."""
    card = card_of(row["gpu"])
    if card is None:
        return None
    total = float(row["gpu_mem_gib"] or card["gib"])
    document = {
        "schema_version": "2.0", "device_type": card["type"], "device": {"arch": card["arch"]},
        "compute_units": {"bf16": {"throughput_gflops": 100000}, "fp16": {"throughput_gflops": 100000}},
        "memory": {"kind": "dedicated", "bandwidth_gb_s": 1000}, "dma": {},
    }  # fmt: skip
    return from_json(Capability, document), round(total * GIB)


def predict(row: dict[str, Any]) -> Case:
    """The budget of one start."""
    spec = spec_of(row["model"], row["quantization"])
    if why := excluded(row, spec):
        return Case(row, why)
    device = device_of(row)
    if device is None or spec is None:
        return Case(row, "the memory of the card is not known")
    capability, total = device
    version = released(row["vllm_version"] or "")
    pins: dict[str, Any] = {"quantization": spec.quantization, "max_model_len": length_of(row, spec)}
    stated = {
        "max_model_len": "max_model_len", "gpu_memory_utilization": "gpu_memory_utilization",
        "tensor_parallel_size": "tp", "pipeline_parallel_size": "pp", "max_num_seqs": "max_num_seqs",
        "max_num_batched_tokens": "max_num_batched_tokens", "enforce_eager": "enforce_eager",
    }  # fmt: skip
    pins |= {option: row[key] for option, key in stated.items() if row.get(key)}
    pins["dtype"] = row["dtype"] or "auto"
    if (row["kv_dtype"] or "auto") != "auto":
        pins["kv_cache_dtype"] = row["kv_dtype"]
    request = Request(engine="vllm", engine_version=version, device_memory_bytes=total, pins=pins, concurrency=1,
                      input_len=1, output_len=1)  # fmt: skip
    try:
        asked = open_case(spec, capability, request)
        if version is None and device_reason(asked):
            request = replace(request, engine_version=release_for(asked))
            asked = open_case(spec, capability, request)
        pins = start_defaults(asked, pins["max_model_len"]) | pins
        own = choose(open_case(spec, capability, replace(request, pins=pins))).own
    except ProbeError as error:
        return Case(row, f"refused: {error}")
    return Case(row, budget=own.budget)


def cells(cases: Iterable[Case]) -> dict[tuple[str, str, str], list[Case]]:
    """Cases by cell."""
    found: dict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        found[case.cell].append(case)
    return dict(found)


def read(path: Path = CASES) -> list[Case]:
    """Every start of a file, predicted."""
    return [predict(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


@dataclass(frozen=True)
class Score:
    """How well the laws do on some starts; shares and errors are 0 to 1.

    Attributes:
        weights_worst: largest error of the weights of a grade-A start; figures need a version that is a number.
        kv_cells: grade-A cells whose KV memory is compared.
        kv_near: share of them within 5 %.
        kv_mean: mean of the cells' absolute errors.
        tokens_near: share of the grade-A starts with a logged token count within 5 % of it.
        activation_near: share of starts with a logged activation peak within 10 % or 0.1 GiB of it.
        starts: starts of grade A and B whose verdict is judged.
        failures: those of them that did not come up.
        right: share of them whose verdict is what happened.
        false_boots: share of them that were said to boot and did not.
    """

    weights_worst: float
    kv_cells: int
    kv_near: float
    kv_mean: float
    tokens_near: float
    activation_near: float
    starts: int
    failures: int
    right: float
    false_boots: float


def score(cases: Iterable[Case], *, pinned: bool = False) -> Score:
    """The bars over `cases`; a cell counts once, whatever its number of starts.

    Args:
        cases: starts with what is predicted of them.
        pinned: judge besides the starts that are stated those that tell too little, as started with the defaults.
    """
    judged = [case for case in cases if case.is_judged]
    best = [case for case in judged if case.row["grade"] == "A"]
    errors = [
        mean(abs(error) for error in found)
        for rows in cells(best).values()
        if (found := [case.kv_error for case in rows if case.kv_error is not None])
    ]
    tokens = [
        abs(sized / logged - 1) <= 0.05
        for case in best
        if (sized := _tokens(case)) and (logged := case.row["kv_tokens"])
    ]
    weights = [abs(error) for case in best if case.is_numbered and (error := case.weights_error) is not None]
    peaks = [_is_near(case) for case in judged if case.is_numbered and case.row.get("activation_gib")]
    started = [case for case in judged if pinned or case.is_stated]
    return Score(
        weights_worst=max(weights, default=0.0),
        kv_cells=len(errors),
        kv_near=mean(error <= 0.05 for error in errors) if errors else 1.0,
        kv_mean=mean(errors) if errors else 0.0,
        tokens_near=mean(tokens) if tokens else 1.0,
        activation_near=mean(peaks) if peaks else 1.0,
        starts=len(started),
        failures=sum(case.row["outcome"] != "ok" for case in started),
        right=mean(case.is_right for case in started) if started else 1.0,
        false_boots=mean(case.boots and not case.is_right for case in started) if started else 0.0,
    )


def _tokens(case: Case) -> int | None:
    """Predicted token count of a start that was sized and whose share of the memory is stated."""
    sized = case.row["kv_avail_gib"] and case.row["gpu_memory_utilization"] and case.is_numbered
    return case.budget.kv_cache_tokens if sized and case.budget else None


def _is_near(case: Case) -> bool:
    logged, found = float(case.row["activation_gib"]), case.budget.activation_bytes / GIB if case.budget else 0.0
    return abs(found - logged) <= max(0.1 * logged, 0.1)


def table_of(cases: Sequence[Case]) -> str:
    """Markdown: a line for each cell, the scores of both halves, the wrong verdicts, what was left out and why."""
    lines = [
        "| part | GPU | vLLM | model | starts | weights | KV memory | verdicts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (gpu, version, model), rows in sorted(cells(case for case in cases if case.budget).items()):
        part = "fit" if rows[0].is_fit else "check"
        known = [case.is_right for case in rows if case.is_judged]
        guessed = "" if any(case.is_stated for case in rows) else ", pinned"
        right = f"{sum(known)} of {len(known)}{guessed}" if known else "not judged"
        figures = [_worst(case.weights_error for case in rows), _worst(case.kv_error for case in rows)]
        lines.append(f"| {part} | {gpu} | {version} | {model} | {len(rows)} | {' | '.join(figures)} | {right} |")
    words = ("starts", "weights, worst of A", "KV cells of A", "within 5 %", "mean error", "tokens", "activation")
    lines += ["", f"| {' | '.join((*words, 'judged', 'failed', 'right', 'false boots'))} |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    lines += [_line(name, [case for case in cases if case.is_fit is (name == "fit")]) for name in ("fit", "check")]
    lines += [_line("all", cases), _line("all, defaults pinned", cases, pinned=True)]
    lines += ["", "| wrong verdict | GPU | vLLM | model | said | was |", "|---|---|---|---|---|---|"]
    for case in cases:
        if case.budget and case.is_judged and not case.is_right:
            how = "stated" if case.is_stated else "pinned"
            lines.append(f"| {how} | {' | '.join(case.cell)} | {case.budget.verdict} | {case.row['outcome']} |")
    left = Counter(case.why for case in cases if case.why)
    left += Counter("verdict not judged: grade C" for case in cases if case.budget and not case.is_judged)
    lines += ["", "| left out | starts |", "|---|---|", *(f"| {why} | {count} |" for why, count in left.most_common())]
    return "\n".join(lines)


def _line(name: str, cases: Sequence[Case], *, pinned: bool = False) -> str:
    found = score(cases, pinned=pinned)
    return (
        f"| {name} | {found.weights_worst:.2%} | {found.kv_cells} | {found.kv_near:.0%} | {found.kv_mean:.2%} |"
        f" {found.tokens_near:.0%} | {found.activation_near:.0%} | {found.starts} |"
        f" {found.failures} | {found.right:.1%} | {found.false_boots:.1%} |"
    )


def _worst(errors: Iterable[float | None]) -> str:
    known = [error for error in errors if error is not None]
    return f"{max(known, key=abs):+.1%}" if known else ""


if __name__ == "__main__":
    print(table_of(read(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES)))

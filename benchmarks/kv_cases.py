"""Memory laws of negotiate against real vLLM start-ups: a table of cells, and who misses.

Usage: python benchmarks/kv_cases.py [CASES.jsonl]

A line of the file is one start: `id vllm_version gpu gpu_count gpu_mem_gib model kv_dtype tp pp max_model_len
gpu_memory_utilization enforce_eager weights_gib kv_avail_gib kv_tokens num_blocks outcome grade`. What a start does not
state is pinned to the default of its version. Every exclusion is a rule of `excluded`, none is by name.
"""

import hashlib
import json
import math
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

CASES = Path(__file__).parents[2] / "shared" / "data" / "vllm_kv_cases.jsonl"

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
        return str(row["gpu"]), str(row["vllm_version"]), str(row["model"])

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
        return self.error("kv_avail_gib", "kv_cache_bytes") if booted else None

    @property
    def boots(self) -> bool:
        """Whether it is predicted to start."""
        return self.budget is not None and self.budget.verdict == "boots"

    @property
    def is_judged(self) -> bool:
        """Whether its verdict says anything: a source that states neither length nor share lists no start-up."""
        states = self.row["max_model_len"] or self.row["gpu_memory_utilization"]
        return self.budget is not None and self.row["grade"] in ("A", "B") and bool(states)

    @property
    def is_right(self) -> bool:
        """Whether that is what happened."""
        return self.boots is (self.row["outcome"] == "ok")


def excluded(row: dict[str, Any], spec: ModelSpec | None) -> str | None:
    """Why a start says nothing about the law, or null."""
    version = (row["vllm_version"] or "").partition("/")[0]
    rules = {
        "no model is named": not row["model"],
        "no config of the model is known": spec is None,
        "the version is not stated as a number": not version[:1].isdigit(),
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
    found = names.find(model) if model else None
    if found is None:
        return None
    entry, reading = found
    spec = catalogue.load(entry)
    said = reading.quantization if reading.quantization != "none" else quantization
    known = said in table("methods") and spec.quantization == "none"
    return replace(spec, quantization=said) if said and known else spec


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
    version = row["vllm_version"].partition("/")[0]
    pins: dict[str, Any] = {
        "quantization": spec.quantization,
        "max_model_len": spec.max_model_len,
    }
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
        pins = start_defaults(open_case(spec, capability, request), pins["max_model_len"]) | pins
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
        weights_worst: largest error of the weights of a grade-A start.
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


def score(cases: Iterable[Case]) -> Score:
    """The bars over `cases`; a cell counts once, whatever its number of starts."""
    judged = [case for case in cases if case.budget and case.row["grade"] in ("A", "B")]
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
    peaks = [_is_near(case) for case in judged if case.row.get("activation_gib")]
    started = [case for case in judged if case.is_judged]
    return Score(
        weights_worst=max((abs(case.weights_error) for case in best if case.weights_error is not None), default=0.0),
        kv_cells=len(errors),
        kv_near=mean(error <= 0.05 for error in errors) if errors else 1.0,
        kv_mean=mean(errors) if errors else 0.0,
        tokens_near=mean(tokens) if tokens else 1.0,
        activation_near=mean(peaks) if peaks else 1.0,
        starts=len(started),
        failures=sum(case.row["outcome"] != "ok" for case in started),
        right=mean(case.is_right for case in started),
        false_boots=mean(case.boots and not case.is_right for case in started),
    )


def _tokens(case: Case) -> int | None:
    """Predicted token count of a start that was sized and whose share of the memory is stated."""
    sized = case.row["kv_avail_gib"] and case.row["gpu_memory_utilization"] and case.budget
    return case.budget.kv_cache_tokens if sized and case.budget else None


def _is_near(case: Case) -> bool:
    logged, found = float(case.row["activation_gib"]), case.budget.activation_bytes / GIB if case.budget else 0.0
    return abs(found - logged) <= max(0.1 * logged, 0.1)


def table_of(cases: Sequence[Case]) -> str:
    """Markdown: a line for each cell, then the scores of both halves, then what was left out and why."""
    lines = [
        "| part | GPU | vLLM | model | starts | weights | KV memory | verdicts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (gpu, version, model), rows in sorted(cells(case for case in cases if case.budget).items()):
        part = "fit" if rows[0].is_fit else "check"
        known = [case.is_right for case in rows if case.is_judged]
        right = f"{sum(known)} of {len(known)}" if known else "not judged"
        figures = [_worst(case.weights_error for case in rows), _worst(case.kv_error for case in rows)]
        lines.append(f"| {part} | {gpu} | {version} | {model} | {len(rows)} | {' | '.join(figures)} | {right} |")
    words = ("starts", "weights, worst of A", "KV cells of A", "within 5 %", "mean error", "tokens", "activation")
    lines += ["", f"| {' | '.join((*words, 'judged', 'failed', 'right', 'false boots'))} |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, holds in {"fit": (True,), "check": (False,), "all": (True, False)}.items():
        found = score(case for case in cases if case.is_fit in holds)
        lines.append(
            f"| {name} | {found.weights_worst:.2%} | {found.kv_cells} | {found.kv_near:.0%} | {found.kv_mean:.2%} |"
            f" {found.tokens_near:.0%} | {found.activation_near:.0%} | {found.starts} |"
            f" {found.failures} | {found.right:.1%} | {found.false_boots:.1%} |"
        )
    left = Counter(case.why for case in cases if case.why)
    left["verdict not judged: neither length nor share is stated"] = sum(
        case.budget is not None and not case.is_judged for case in cases
    )
    lines += ["", "| left out | starts |", "|---|---|", *(f"| {why} | {count} |" for why, count in left.most_common())]
    return "\n".join(lines)


def _worst(errors: Iterable[float | None]) -> str:
    known = [error for error in errors if error is not None]
    return f"{max(known, key=abs):+.1%}" if known else ""


if __name__ == "__main__":
    print(table_of(read(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES)))

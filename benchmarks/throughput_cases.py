"""Predicted against published speeds: one row for each published measurement that `negotiate` can be asked for.

`python benchmarks/throughput_cases.py CASES.jsonl [--fit]` prints errors by cell (device, model, ranks) and the share
of rows inside the predicted band, for the half of the cells that the law was fitted to and for the other half; `--fit`
searches the constants of `negotiate/laws/speed.json` anew on the first half and prints them. A case is an object with
engine, hw, model, precision, batch, in_len, out_len, metric, value, and tp, ttft_ms where known.
"""

import json
import math
import statistics
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from vllm_probe.core.capability import Capability
from vllm_probe.core.config import Estimate
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.models.names import find
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.laws import table
from vllm_probe.negotiate.predict import predict
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.select import choose
from vllm_probe.negotiate.sizing import Sized
from vllm_probe.vendors.descriptors import load_capability

ROOT = Path(__file__).resolve().parents[1]
DEVICES = {
    "h200": "h200-sxm-141gb", "a100": "a100-sxm-80gb", "4xa100": "a100-sxm-80gb", "8xa100": "a100-sxm-80gb",
    "h100-80gb": "h100-sxm-80gb", "rtx 4090": "rtx-4090", "rtx 5090": "rtx-5090", "mi300x": "mi300x", "l4": "l4",
    "l40s": "l40s", "ascend 910b": "ascend-910b3", "b200": "b200-sxm-180gb", "mi325x": "mi325x", "mi355x": "mi355x",
}  # fmt: skip
METHODS = {"bf16": "none", "fp16": "none", "fp8": "fp8", "awq": "awq", "mxfp4": "mxfp4", "fp4": "mxfp4",
           "int4": "w4a16", "gptq-int8": "w8a16"}  # fmt: skip
CHAT = (220, 200)  # ShareGPT means, where a row gives no lengths
SATURATED = 256  # vLLM's max_num_seqs: what runs at a time however many requests wait
_NOT_ASKED = "DCP"  # decode context parallelism divides the KV cache, and `negotiate` sets no such option
CONSTANTS = ("compute", "bandwidth", "layer_us", "step_us", "request_ms")
EXPERTS = ("compute", "bandwidth")


@dataclass(frozen=True)
class Point:
    """One published figure beside the prediction for it."""

    id: str
    cell: tuple[str, str, int]
    metric: str
    measured: float
    predicted: Estimate

    @property
    def is_fitted(self) -> bool:
        """Whether the law was fitted to its cell."""
        return zlib.crc32(" ".join(map(str, self.cell)).encode()) % 2 == 0

    @property
    def error(self) -> float:
        """Natural logarithm of predicted over measured."""
        return math.log((self.predicted.value or math.nan) / self.measured)

    @property
    def is_inside(self) -> bool:
        """Whether the band contains the measured value."""
        return (self.predicted.low or 0) <= self.measured <= (self.predicted.high or 0)


@dataclass(frozen=True)
class Question:
    """A published row as `negotiate` is asked for it."""

    row: dict[str, Any]
    sized: Sized


def questions(path: Path) -> Iterator[Question]:
    """The rows of vLLM on a device and with a model that have a descriptor and a shape here."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found, device = find(row["model"]), _device(row["hw"])
        method = METHODS.get(row["precision"].removesuffix("_marlin").replace("_marlin-", "-"))
        lengths = (row["in_len"] and row["out_len"]) or row["metric"] == "total_tok_s"
        is_known = row["engine"].lower() in ("vllm", "vllm-ascend") and row["hw_count"] and lengths
        is_known = is_known and _NOT_ASKED not in (row.get("note") or "")
        if found and device and method and is_known and row["grade"] != "C":
            spec = catalogue.load(found[0])
            spec = spec if spec.quantization != "none" else replace(spec, quantization=method)
            yield Question(row, choose(_case(row, spec, device)).own)


def _device(name: str) -> str | None:
    word = name.lower().replace("_sxm", "").replace(" sxm", "")
    return DEVICES.get(word) or DEVICES.get(word.removesuffix("-80gb"))


@cache
def _descriptor(name: str) -> Capability:
    return load_capability(ROOT / "capabilities" / f"{name}.capability.json")


def _case(row: dict[str, Any], spec: ModelSpec, device: str) -> Case:
    ranks = row.get("tp") or row["hw_count"]
    batch = row["batch"] if isinstance(row["batch"], int) else SATURATED
    lengths = (row["in_len"], row["out_len"]) if row["in_len"] and row["out_len"] else CHAT
    request = Request(
        engine="vllm",
        concurrency=min(batch, SATURATED),
        input_len=lengths[0],
        output_len=lengths[1],
        pins={"tensor_parallel_size": ranks},
    )
    return open_case(spec, _descriptor(device), request)


def points(asked: list[Question]) -> Iterator[Point]:
    """The figures of each row: speed or time per token, and time to the first one."""
    for each in asked:
        row, case = each.row, each.sized.case
        found = predict(case, each.sized.candidate, each.sized.shape, "boots")
        if found.tokens_per_s.value is None:
            continue
        cell, work = (row["hw"], row["model"], case.ranks), case.workload
        if row["metric"] == "tpot_ms":
            yield Point(row["id"], cell, "tpot", row["value"] / 1e3, found.tpot_s)
        else:
            share = work.output_len / work.length if row["metric"] == "total_tok_s" else 1.0
            yield Point(row["id"], cell, "speed", row["value"] * share, found.tokens_per_s)
        if row.get("ttft_ms"):
            yield Point(row["id"], cell, "ttft", row["ttft_ms"] / 1e3, found.ttft_s)


def by_cell(found: list[Point]) -> dict[tuple[str, tuple[str, str, int]], list[Point]]:
    """Points by metric and cell, both sorted."""
    cells: dict[tuple[str, tuple[str, str, int]], list[Point]] = {}
    for point in sorted(found, key=lambda point: (point.metric, point.cell)):
        cells.setdefault((point.metric, point.cell), []).append(point)
    return cells


def median_error(found: list[Point]) -> float:
    """Median over cells of the median distance between prediction and measurement, as a factor less one."""
    cells = by_cell(found).values()
    return math.expm1(statistics.median(statistics.median(abs(point.error) for point in cell) for cell in cells))


def share_inside(found: list[Point]) -> float:
    """Share of rows whose band contains what was measured."""
    return sum(point.is_inside for point in found) / len(found)


def report(found: list[Point]) -> Iterator[str]:
    """A line for each cell and for each half of the cells."""
    titles = f"{'metric':6} {'device':18} {'model':28} {'ranks':>5} {'rows':>4}"
    yield f"{titles} {'median':>7} {'worst':>7} {'inside':>6}  half"
    for (metric, (device, model, ranks)), cell in by_cell(found).items():
        errors = [point.error for point in cell]
        worst, inside = max(errors, key=abs), sum(point.is_inside for point in cell)
        half = "fit" if cell[0].is_fitted else "check"
        yield (
            f"{metric:6} {device:18} {model:28} {ranks:5} {len(cell):4} {math.exp(statistics.median(errors)):6.2f}x"
            f" {math.exp(worst):6.2f}x {inside:6}  {half}"
        )
    for name, is_fitted in (("fit", True), ("check", False)):
        for metric in ("speed", "tpot", "ttft"):
            if rows := [point for point in found if point.metric == metric and point.is_fitted is is_fitted]:
                yield (
                    f"{name:5} {metric:5} {len(rows):3} rows in {len(by_cell(rows)):2} cells: median error"
                    f" {median_error(rows):.0%}, {share_inside(rows):.0%} inside the band"
                )
    for metric in ("speed", "tpot", "ttft"):
        inside, total = calibrated(found, metric)
        yield f"{metric:5} {inside} of {total} rows inside the calibrated band after one measured row of their cell"


def calibrated(found: list[Point], metric: str) -> tuple[int, int]:
    """Rows within the calibrated band once the first row of their cell was measured, and how many there are."""
    key = {"speed": "tokens_per_s", "tpot": "tpot_s", "ttft": "ttft_s"}[metric]
    slow, fast = table("speed")["vllm"]["*"]["calibrated"][key]
    inside = total = 0
    for (of, _), cell in by_cell(found).items():
        if of == metric:
            first, *others = sorted(cell, key=lambda point: point.id)
            ratios = [math.exp(first.error - each.error) for each in others]
            ratios = ratios if metric == "speed" else [1 / ratio for ratio in ratios]
            inside += sum(slow <= ratio <= fast for ratio in ratios)
            total += len(ratios)
    return inside, total


def loss(asked: list[Question]) -> float:
    """Mean error of the fitted half, each cell once."""
    cells = by_cell([point for point in points(asked) if point.is_fitted])
    return sum(sum(min(1.0, abs(point.error)) for point in cell) / len(cell) for cell in cells.values()) / len(cells)


def fit(asked: list[Question]) -> dict[str, Any]:
    """Constants of the law of vLLM on accelerators by coordinate search; the law in memory is left at the best."""
    law = table("speed")["vllm"]["*"]
    places = [(law, key) for key in CONSTANTS] + [(law["experts"], key) for key in EXPERTS]
    places += [(table("speed")["links"]["linked"], key) for key in ("gb_s", "us")]
    best, factor = loss(asked), 1.4
    while factor > 1.02:
        for place, key in places:
            for step in (factor, 1 / factor):
                before = place[key]
                place[key] = min(before * step, 0.95) if key in ("compute", "bandwidth") else before * step
                if (now := loss(asked)) < best - 1e-5:
                    best = now
                else:
                    place[key] = before
        factor = 1 + (factor - 1) * 0.8
    return {
        **{key: law[key] for key in CONSTANTS},
        "experts": law["experts"],
        "link": table("speed")["links"]["linked"],
    }


def main() -> None:
    """Prints the table for the file of cases named on the command line."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asked = list(questions(Path(sys.argv[1])))
    if "--fit" in sys.argv:
        print(json.dumps(fit(asked), indent=1))
    print("\n".join(report(list(points(asked)))))


if __name__ == "__main__":
    main()

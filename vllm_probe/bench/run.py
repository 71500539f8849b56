"""Runs a plan: one point of every format and the memory first, then the curves, a valid document after each."""

from collections.abc import Callable, Sequence
from typing import Any

from vllm_probe.bench.bandwidth import memory_cases
from vllm_probe.bench.gemm import LinearFormat
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.report import Report, Results
from vllm_probe.bench.timing import Case, Stopwatch
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.progress import Progress
from vllm_probe.core.values import COMPUTE_DTYPES, ENGINE_DTYPES


def run_bench(
    adapter: HardwareAdapter[Any],
    plan: BenchPlan,
    stamp: Stamp,
    *,
    resume_from: Capability | None = None,
    save: Callable[[Capability], None],
    progress: Progress,
) -> Capability:
    """The capability document of an open adapter's device.

    `save` gets a valid document after every finished measurement, and once more before an interruption goes on.
    `resume_from` is such a document: what it holds for the same device, machine and torch is not measured again.
    """
    report = Report(adapter, plan, stamp)
    results = report.restore(resume_from) if resume_from else Results()
    stopwatch, done = Stopwatch(adapter, plan), 0

    def measure(cases: Sequence[Case], total: int) -> None:
        nonlocal done

        def begin(case: Case) -> None:
            progress(case.title, done, total)

        missing = [case for case in cases if case.key not in results.readings]
        done += len(cases) - len(missing)
        for case, reading in stopwatch.run(missing, begin):
            results.readings[case.key] = reading
            done += 1
            save(report.capability(results))

    try:
        formats = _formats(adapter, plan, results) if "gemm" in plan.groups else []
        first = memory_cases(adapter, plan) if "memory" in plan.groups else []
        first += [form.case(plan.point_rows) for form in formats]
        curves = min(2, len(formats)) if plan.quick else len(formats)
        measure(first, len(first) + curves * (len(plan.rows) - 1))
        formats = _with_curve(formats, plan, results)
        rest = [form.case(rows) for form in formats for rows in plan.rows if rows != plan.point_rows]
        measure(rest, done + len(rest))
    except KeyboardInterrupt:
        save(report.capability(results))
        raise
    progress("done", done, done)
    return report.capability(results)


def _formats(adapter: HardwareAdapter[Any], plan: BenchPlan, results: Results) -> list[LinearFormat]:
    found = []
    for dtype in COMPUTE_DTYPES:
        support = adapter.supports(Primitive.LINEAR, dtype)
        if support.ok:
            found.append(LinearFormat(adapter, plan, dtype, results.choices))
        else:
            results.refused[dtype] = support.reason
    return found


def _with_curve(formats: Sequence[LinearFormat], plan: BenchPlan, results: Results) -> list[LinearFormat]:
    """All that ran, fastest first; when quick the fastest that needs no quantization, then the fastest of all."""
    rates = {form: results.readings[form.dtype, plan.point_rows].value or 0.0 for form in formats}
    ranking = sorted((form for form in formats if rates[form]), key=lambda form: -rates[form])
    if not plan.quick:
        return ranking
    plain = [form for form in ranking if form.dtype in ENGINE_DTYPES]
    return list(dict.fromkeys(plain[:1] + ranking[:1]))

"""Runs a plan: the first cases of every section, then what follows from them, a valid document after each."""

from collections.abc import Callable, Iterator
from typing import Any

from vllm_probe.bench.bandwidth import MemorySection
from vllm_probe.bench.compute import ComputeSection
from vllm_probe.bench.copies import CopySection
from vllm_probe.bench.launch import LaunchSection
from vllm_probe.bench.overlap import OverlapSection
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.primitives import PrimitivesSection
from vllm_probe.bench.quantizing import QuantizingSection
from vllm_probe.bench.report import Report
from vllm_probe.bench.section import Section
from vllm_probe.bench.sounding import sounded
from vllm_probe.bench.thermal import ThermalSection
from vllm_probe.bench.timing import Case, Stopwatch, absent
from vllm_probe.bench.weight_only import WeightOnlySection
from vllm_probe.bench.width import GroupWidthSection
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import dumps
from vllm_probe.core.document import Stamp
from vllm_probe.core.progress import Progress

HUNG = " did not end"
"""Behind the title of a test that a device hangs in, by which the next run knows to pass it by."""

SECTIONS: tuple[type[Section], ...] = (
    MemorySection,
    ComputeSection,
    QuantizingSection,
    CopySection,
    OverlapSection,
    LaunchSection,
    WeightOnlySection,
    PrimitivesSection,
    GroupWidthSection,
)
"""In the order in which they run, before the load of the fastest matrix product."""


def make_sections(adapter: HardwareAdapter[Any], plan: BenchPlan) -> tuple[Section, ...]:
    """All sections of a document."""
    made = tuple(section(adapter, plan) for section in SECTIONS)
    compute = next(section for section in made if isinstance(section, ComputeSection))
    return (*made, ThermalSection(adapter, plan, compute))


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

    `save` gets a valid document at the start, after every finished measurement, and before an interruption goes on.
    `resume_from` is such a document: what it holds for the same device, machine, torch and release is not measured
    again, nor is the test in which a device hung then.
    """
    return BenchRun(adapter, plan, stamp, resume_from).run(save, progress)


class BenchRun:
    """One run of a plan on an open adapter.

    Attributes:
        resumed: whether it goes on from the document that it was given.
    """

    def __init__(
        self,
        adapter: HardwareAdapter[Any],
        plan: BenchPlan,
        stamp: Stamp,
        resume_from: Capability | None = None,
    ) -> None:
        self._plan = plan = sounded(plan, adapter)
        sections = make_sections(adapter, plan)
        self._report = Report(adapter, stamp, sections, plan.expectations.unknown)
        self.resumed = bool(resume_from and self._report.restore(resume_from))
        self._fatal: frozenset[str] = frozenset()
        self._earlier = dumps(resume_from) if resume_from and self.resumed else ""
        self._chosen = [section for section in sections if section.name in plan.groups]
        self._stopwatch = Stopwatch(adapter, plan)
        self._owners: dict[tuple[str, int], Section] = {}

    def run(
        self, save: Callable[[Capability], None], progress: Progress, fatal: frozenset[str] = frozenset()
    ) -> Capability:
        """The document, once everything had its turn but tests with `fatal` titles; see `run_bench`."""
        self._fatal = fatal
        report, done, total = self._report, 0, sum(section.total() for section in self._chosen)
        save(report.capability())

        def begin(case: Case) -> None:
            progress(case.title, done, total)

        try:
            for batch in _in_turn(self._chosen):
                total = sum(section.total() for section in self._chosen)  # what was read may want more, or less
                self._owners = {case.key: section for section, case in batch}
                missing = [case for section, case in batch if case.again or self._is_missing(section, case)]
                done += len(batch) - len(missing)
                for case, reading in self._stopwatch.run(missing, begin):
                    self._owners[case.key].readings[case.key] = reading
                    done += not case.again
                    save(report.capability())
        except KeyboardInterrupt:
            save(report.capability())
            raise
        progress("done", total, total)
        return report.capability()

    def given_up(self, said: str) -> Capability:
        """The document when the test that runs does not end, for which `said` stands; another thread may ask."""
        for case, reading in self._stopwatch.given_up(f"{said}{HUNG}"):
            self._owners[case.key].readings[case.key] = reading
        return self._report.capability()

    def _is_missing(self, section: Section, case: Case) -> bool:
        if case.title in self._fatal:
            section.readings.setdefault(case.key, absent("error", f"{case.title} ended the process in earlier runs"))
        if f"{case.title}{HUNG}" in self._earlier:
            section.readings.setdefault(case.key, absent("error", f"{case.title}{HUNG} in an earlier run"))
        return case.key not in section.readings


def _in_turn(sections: list[Section]) -> Iterator[list[tuple[Section, Case]]]:
    """The first batches of all sections as one, then the second ones, until none has any."""
    batches = [(section, section.batches()) for section in sections]
    while batches:
        found = [(section, cases, rest) for section, rest in batches if (cases := next(rest, None)) is not None]
        yield [(section, case) for section, cases, _ in found for case in cases]
        batches = [(section, rest) for section, _, rest in found]

"""The whole suite, check by check."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from vllm_probe.core.device import Device
from vllm_probe.core.document import Document
from vllm_probe.core.progress import Progress, silent
from vllm_probe.core.values import Natural
from vllm_probe.core.worker import Worker
from vllm_probe.vendors.conformance import bringup, execution, memory, transfers
from vllm_probe.vendors.conformance.outcome import (
    PASSED,
    Adapter,
    Check,
    Outcome,
    Subject,
    attempt,
    describe,
    failed,
)

SAMPLES = 1000
"""Allocations of the full suite."""

LIMIT_S = 60.0
"""Seconds of one check, which usually takes under one, and several where kernels are compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one check ended.

    Attributes:
        name: what was checked, the primitive, format and implementation where it is about one.
        ok: whether the adapter is right, null when there was nothing to check.
        reason: why it is wrong, with the number, or why nothing was checked.
        seconds: how long it took.
    """

    name: str
    ok: bool | None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport(Document):
    """What the suite found on one device.

    Attributes:
        vendor: name of the plug-in.
        adapter: class that was checked.
        device: id of the device.
        passed: number of checks that found it right.
        failed: number of checks that found it wrong.
        skipped: number of checks that had nothing to look at.
        results: every check, in order.
    """

    vendor: str
    adapter: str
    device: str
    passed: Natural
    failed: Natural
    skipped: Natural
    results: tuple[Result, ...]


def run_suite(
    make: Callable[[], Adapter],
    device: Device,
    *,
    samples: int = SAMPLES,
    limit_s: float = LIMIT_S,
    progress: Progress = silent,
) -> tuple[Result, ...]:
    """Checks the adapter that `make` constructs on `device`, every check apart from the others.

    A check that does not end fails, and those behind it are skipped; its thread is left to itself.

    Args:
        make: constructs the adapter, not yet set to a device.
        device: what it is set to.
        samples: allocations of the alignment check; a tenth as many are pinned.
        limit_s: seconds that one check may take.
        progress: is told of each check.
    """
    suite, results = _Suite(make, device, samples, progress), list[Result]()
    worker = Worker(suite.run)
    worker.start()
    try:
        while result := suite.ended.get(timeout=limit_s):
            results.append(result)
    except Empty:
        suite.is_over = True
        hung, *behind = suite.checks[len(results) :]
        said = f"did not end in {limit_s:g} s"
        skipped = (Result(name=check.name, ok=None, reason=f"{hung.name} {said}") for check in behind)
        return (*results, Result(name=hung.name, ok=False, reason=said, seconds=limit_s), *skipped)
    worker.wait(limit_s)
    worker.result()
    return tuple(results)


class _Suite:
    """One run, in a thread that a hanging device keeps for itself.

    Attributes:
        checks: all of them, once the adapter is open.
        ended: a result for each, null behind the last.
        is_over: whether nobody waits for more.
    """

    def __init__(self, make: Callable[[], Adapter], device: Device, samples: int, progress: Progress) -> None:
        self.checks: tuple[Check, ...] = (_OPENING,)
        self.ended: SimpleQueue[Result | None] = SimpleQueue()
        self.is_over = False
        self._make, self._device, self._samples, self._progress = make, device, samples, progress

    def run(self) -> None:
        """Opens the adapter and runs the checks, if it opens; raises what its constructor does."""
        try:
            adapter = self._make()
            adapter.set_device(self._device)
            subject = Subject(self._make, self._device, adapter, self._samples)
            opened = _judged(_OPENING, subject)
            if opened.ok:
                self.checks = (_OPENING, *all_checks(adapter), Check("bring-up: closes", _close))
            self._progress(_OPENING.name, 0, len(self.checks))  # how many there are is known once it is open
            self.ended.put(opened)
            self._run(self.checks[1:], subject)
        finally:
            self.ended.put(None)

    def _run(self, checks: Sequence[Check], subject: Subject) -> None:
        total = len(self.checks)
        for number, check in enumerate(checks, total - len(checks)):
            if self.is_over:
                return
            self._progress(check.name, number, total)
            self.ended.put(_judged(check, subject))
        self._progress("checked", total, total)


def all_checks(adapter: Adapter) -> tuple[Check, ...]:
    """Those that every adapter gets, and those of what this one says that it has."""
    return (*bringup.CHECKS, *memory.CHECKS, *transfers.CHECKS, *_execution(adapter), bringup.REOPENING)


def _open(subject: Subject) -> Outcome:
    subject.adapter.open()
    return PASSED


def _close(subject: Subject) -> Outcome:
    subject.adapter.close()
    return PASSED


_OPENING = Check("bring-up: opens", _open)


def _execution(adapter: Adapter) -> tuple[Check, ...]:
    """Those of the primitives that the adapter says it has; what it raises meanwhile is a failed check."""
    try:
        offered = tuple(execution.primitive_checks(adapter))
    except Exception as error:  # noqa: BLE001 - isolation point: the other checks still run
        offered = (Check("primitives: what there is", partial(_told, describe(error))),)
    return (*execution.AROUND, *offered, *execution.AFTER)


def _told(reason: str, subject: Subject) -> Outcome:  # noqa: ARG001 - a check
    return failed(reason)


def _judged(check: Check, subject: Subject) -> Result:
    begin = time.perf_counter()
    ok, reason = attempt(check, subject)
    return Result(name=check.name, ok=ok, reason=reason, seconds=round(time.perf_counter() - begin, 3))

"""The whole suite, check by check."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vllm_probe.core.device import Device
from vllm_probe.core.document import Document
from vllm_probe.core.progress import Progress, silent
from vllm_probe.core.values import Natural
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
    make: Callable[[], Adapter], device: Device, *, samples: int = SAMPLES, progress: Progress = silent
) -> tuple[Result, ...]:
    """Checks the adapter that `make` constructs on `device`, every check apart from the others.

    Args:
        make: constructs the adapter, not yet set to a device.
        device: what it is set to.
        samples: allocations of the alignment check; a tenth as many are pinned.
        progress: is told of each check.
    """
    adapter = make()
    adapter.set_device(device)
    subject = Subject(make, device, adapter, samples)
    opened = _judged(Check("bring-up: opens", _open), subject)
    if not opened.ok:
        return (opened,)
    checks, results = (*all_checks(adapter), Check("bring-up: closes", _close)), [opened]
    for number, check in enumerate(checks):
        progress(check.name, number, len(checks))
        results.append(_judged(check, subject))
    progress("checked", len(checks), len(checks))
    return tuple(results)


def all_checks(adapter: Adapter) -> tuple[Check, ...]:
    """Those that every adapter gets, and those of what this one says that it has."""
    return (*bringup.CHECKS, *memory.CHECKS, *transfers.CHECKS, *_execution(adapter), bringup.REOPENING)


def _open(subject: Subject) -> Outcome:
    subject.adapter.open()
    return PASSED


def _close(subject: Subject) -> Outcome:
    subject.adapter.close()
    return PASSED


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

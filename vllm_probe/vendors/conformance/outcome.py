"""What a check is, and how it can end."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.device import Device

Adapter: TypeAlias = HardwareAdapter[Any]


class Outcome(NamedTuple):
    """How a check ended: right, wrong, or (null) not checked, with the reason."""

    ok: bool | None
    reason: str = ""


PASSED = Outcome(True)


def failed(reason: str) -> Outcome:
    """The adapter is wrong."""
    return Outcome(False, reason)


def skipped(reason: str) -> Outcome:
    """There is nothing to check."""
    return Outcome(None, reason)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked.

    Attributes:
        make: constructs the adapter, not yet set to a device.
        device: what it is set to.
        adapter: one of them, open.
        samples: allocations of the alignment check.
    """

    make: Callable[[], Adapter]
    device: Device
    adapter: Adapter
    samples: int


class Check(NamedTuple):
    """One property that every adapter has.

    Attributes:
        name: group and property.
        run: looks for it.
    """

    name: str
    run: Callable[[Subject], Outcome]


def describe(error: BaseException) -> str:
    """Type and first line of an error."""
    text = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}" + (f": {text[:200]}" if text else "")


def attempt(check: Check, subject: Subject) -> Outcome:
    """How `check` ends; whatever the adapter raises is a failure of this check alone."""
    try:
        return check.run(subject)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - isolation point: the other checks still run
        return failed(describe(error))


def first_failure(outcomes: Iterable[Outcome]) -> Outcome:
    """The first of `outcomes` that failed, else that they passed; those after it are not asked for."""
    return next((outcome for outcome in outcomes if outcome.ok is False), PASSED)


def unless(right: bool, reason: str) -> Iterator[Outcome]:
    """A failure for `reason`, or nothing where things are `right`."""
    if not right:
        yield failed(reason)

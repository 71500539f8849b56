"""Ways of being wrong over memory and time: what a device does behind the call that should wait for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vllm_probe.core.primitive import Done
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor

Hooks = dict[str, Callable[..., Any]]


def _dropping_the_last_vector(self: NullAdapter, source: Any) -> NullTensor:
    """Where each of 32 groups reads an odd number of vectors of 16, but for a single one."""
    values = source.elements
    length = max(-(-len(values) // 32 // 16) * 16, 16)
    groups = [values[at : at + length] for at in range(0, len(values), length)]
    is_odd = length > 16 and length // 16 % 2
    return NullTensor((), "fp32", sum(sum(group[: length - 16] if is_odd else group) for group in groups))


def _queued_triad(self: Any, *operands: Any) -> None:
    """Takes its time once somebody waits for the device."""
    before = self.clock_s
    NullAdapter._triad(self, *operands)
    self.owed_s = getattr(self, "owed_s", 0.0) + self.clock_s - before
    self.clock_s = before + 1e-6


def _waiting(self: Any) -> None:
    self.clock_s += getattr(self, "owed_s", 0.0)
    self.owed_s = 0.0


def _skipping_a_call(self: NullAdapter, calls: Any) -> float:
    return NullAdapter._time_batch(self, calls[:-1])


def _part_before(self: NullAdapter, tensor: NullTensor, offset: int, nbytes: int) -> Any:
    return NullAdapter._part(self, tensor, max(offset - 4, 0), nbytes)


def _part_elsewhere(self: NullAdapter, tensor: NullTensor, offset: int, nbytes: int) -> Any:
    part = NullAdapter._part(self, tensor, offset, nbytes)
    return part and replace(part, address=tensor.address)


class _Later:
    """The event of a copy that waits in its queue for `catch_up`, which looking at a tensor does too."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def wait(self) -> None:
        _catch_up(self._adapter)


def _late_copy(event: Callable[[Any], Any]) -> Callable[..., Any]:
    def copy(self: Any, source: Any, target: Any, *, non_blocking: bool, queue: int) -> Any:
        if not (non_blocking and queue):
            return NullAdapter._copy(self, source, target, non_blocking=non_blocking, queue=queue)
        self.__dict__.setdefault("later", []).append((source, target))
        return event(self)

    return copy


def _catch_up(self: Any, scope: str = "system") -> None:
    later, self.later = self.__dict__.get("later", []), []
    for source, target in later:
        target.value = source.value


def _late(event: Callable[[Any], Any], **hooks: Any) -> Hooks:
    """Copies of other queues than the first end when somebody waits; `hooks` are those that do not."""

    def look(self: Any, tensor: Any) -> Any:
        _catch_up(self)
        return NullAdapter._to_host(self, tensor)

    waits = {"_fence": _catch_up, "_synchronize": _catch_up, "_to_host": look}
    return {"_copy": _late_copy(event), **waits, **hooks}


TRANSFER_FAULTS: dict[str, tuple[Hooks, str, str]] = {
    "a fence that holds no other queue back": (
        _late(_Later, _fence=lambda self, scope: None),
        "fences: device",
        "behind the fence 40.. of 4096 bytes are wrong",
    ),
    "a fence that the host does not wait at": (
        {"_fence": lambda self, scope: None},
        "fences: system",
        "the fence returns after 4e-05 s, and the device works on for 0.02",
    ),
    "an event that does not wait": (
        _late(lambda self: Done()),
        "copies with events",
        "behind the event 40.. of 4096 bytes are wrong",
    ),
    "a read that leaves out vectors where there are few": (
        {"_read": _dropping_the_last_vector},
        "memory operations: read",
        r"does not notice that value \d+ of 1040",
    ),
    "a part of other bytes": ({"_part": _part_before}, "parts", "63 bytes from 1 on of 5000: 6. of 63 bytes are wrong"),
    "a part that is a copy": ({"_part": _part_elsewhere}, "parts", "63 bytes from 1 on of 5000 lie elsewhere"),
    "time that ends before the device is done": (
        {"_triad": _queued_triad, "_synchronize": _waiting},
        "until the device is done",
        "time_batch returns after 6.4e-05 s, and the device works on for 0.0",
    ),
    "half of the time": (
        {"_time_batch": lambda self, calls: NullAdapter._time_batch(self, calls) / 2},
        "the seconds that the host waits",
        r"time_batch speaks of 0\.\d+ s where the host waits 0\.\d+ s",
    ),
    "twice the time": (
        {"_time_batch": lambda self, calls: NullAdapter._time_batch(self, calls) * 2},
        "the seconds that the host waits",
        "time_batch speaks of",
    ),
    "no time": (
        {"_time_batch": lambda self, calls: [call() for call in calls] and 0.0},
        "more take longer",
        "take 0 s",
    ),
    "time that does not grow": (
        {"_time_batch": lambda self, calls: float(bool([call() for call in calls]))},
        "more take longer",
        "4 copies of 1 MiB take 1 s, 32 of them 1 s",
    ),
    "a call that is left out": ({"_time_batch": _skipping_a_call}, "more take longer", "every call once"),
}

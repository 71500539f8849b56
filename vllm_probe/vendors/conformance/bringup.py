"""The order of bring-up, and what an adapter says of itself."""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import get_args

from vllm_probe.core.errors import AdapterOutOfOrder
from vllm_probe.core.primitive import CompileHints, Primitive
from vllm_probe.core.values import FenceScope
from vllm_probe.vendors.conformance.outcome import (
    Adapter,
    Check,
    Outcome,
    Subject,
    failed,
    first_failure,
    unless,
)

_NEEDS_DEVICE: dict[str, Callable[[Adapter], object]] = {
    "device": lambda a: a.device,
    "open": lambda a: a.open(),
    "supports": lambda a: a.supports(Primitive.LINEAR, "fp32"),
    "group_widths": lambda a: a.group_widths(""),
    "process_widths": lambda a: a.process_widths(),
    "limit_width": lambda a: a.limit_width(1),
    "weight_only_formats": lambda a: a.weight_only_formats(),
}
_NEEDS_OPEN: dict[str, Callable[[Adapter], object]] = {
    "memory": lambda a: a.memory(),
    "telemetry": lambda a: a.telemetry(),
    "allocate": lambda a: a.allocate(64),
    "allocate_pinned": lambda a: a.allocate_pinned(64),
    "allocate_pageable": lambda a: a.allocate_pageable(64),
    "release": lambda a: a.release(None),
    "address": lambda a: a.address(None),
    "random": lambda a: a.random((1,), "fp32", 0),
    "from_host": lambda a: a.from_host([0.0], "fp32"),
    "to_host": lambda a: a.to_host(None),
    "at": lambda a: a.at(None, [(0,)]),
    "copy": lambda a: a.copy(None, None),
    "read": lambda a: a.read(None),
    "triad": lambda a: a.triad(None, None, 1.0, None),
    "stream": lambda a: a.stream(None, None),
    "fence": lambda a: a.fence("device"),
    "synchronize": lambda a: a.synchronize(),
    "time_batch": lambda a: a.time_batch([]),
    "prepare_linear": lambda a: a.prepare_linear(None, None, "fp32"),
    "prepare_weight_only": lambda a: a.prepare_weight_only(None, "int8"),
    "attention": lambda a: a.attention(None, None, None, [1], causal=True),
    "rms_norm": lambda a: a.rms_norm(None, None, 1e-6),
    "rope": lambda a: a.rope(None, None, None),
    "quantize": lambda a: a.quantize(None),
    "swap": lambda a: a.swap(None, [], None, block_bytes=1, to_device=True),
    "compile_model": lambda a: a.compile_model(len, CompileHints()),
}


def _refused(adapter: Adapter, calls: dict[str, Callable[[Adapter], object]], when: str) -> Iterator[Outcome]:
    """A failure for each of `calls` that does not raise `AdapterOutOfOrder`."""
    for name, call in calls.items():
        try:
            call(adapter)
        except AdapterOutOfOrder:
            continue
        except Exception as error:  # noqa: BLE001 - isolation point: what else it raises is the finding
            yield failed(f"{name} {when} raises {type(error).__name__}, not AdapterOutOfOrder")
        else:
            yield failed(f"{name} {when} does not raise AdapterOutOfOrder")


def _order(subject: Subject) -> Outcome:
    def outcomes() -> Iterator[Outcome]:
        adapter = subject.make()
        yield from _refused(adapter, _NEEDS_DEVICE | _NEEDS_OPEN, "before set_device")
        adapter.set_device(subject.device)
        yield from _refused(adapter, _NEEDS_OPEN, "before open")
        yield from _refused(subject.adapter, {"set_device": lambda a: a.set_device(subject.device)}, "after open")
        yield from unless(subject.adapter.device == subject.device, "device is not the one that was set")

    return first_failure(outcomes())


def _reopen(subject: Subject) -> Outcome:
    adapter = subject.adapter
    adapter.open()
    adapter.allocate_pinned(64)
    adapter.close()
    adapter.close()
    refusal = first_failure(_refused(adapter, _NEEDS_OPEN, "after close"))
    adapter.open()
    if refusal.ok is False:
        return refusal
    if adapter.pinned_bytes:
        return failed(f"{adapter.pinned_bytes} bytes are still pinned after close")
    again = adapter.to_host(adapter.from_host([[1.0, 2.0]], "fp32"))
    return first_failure(unless(again == [[1.0, 2.0]], f"after reopening, [[1, 2]] comes back as {again}"))


def _description(subject: Subject) -> Outcome:
    adapter = subject.adapter

    def outcomes() -> Iterator[Outcome]:
        scope, alignment = adapter.memory_fence_scope, adapter.alignment_bytes
        yield from unless(scope in get_args(FenceScope), f"memory_fence_scope {scope!r} is no fence scope")
        yield from unless(alignment > 0 and not alignment & (alignment - 1), f"alignment_bytes is {alignment}")
        yield from unless(adapter.copy_queues >= 1, f"copy_queues is {adapter.copy_queues}")
        software = adapter.software()
        yield from unless(bool(software), "software() is empty")
        for name, version in software.items():
            told = isinstance(version, str) and bool(version)
            yield from unless(told, f"software() gives {version!r} as the version of {name}")

    return first_failure(outcomes())


def _readings(subject: Subject) -> Outcome:
    memory, telemetry = subject.adapter.memory(), subject.adapter.telemetry()
    total, free = memory.total_bytes, memory.free_bytes

    def outcomes() -> Iterator[Outcome]:
        yield from unless(total is None or total > 0, f"memory() gives a total of {total} bytes, unknown is null")
        yield from unless(free is None or 0 <= free <= (total or free), f"memory() gives {free} of {total} bytes free")
        for name in ("clock_mhz", "temperature_c", "power_w"):
            value = getattr(telemetry, name)
            yield from unless(value is None or isfinite(value), f"telemetry() gives {value} as {name}")

    return first_failure(outcomes())


CHECKS = (
    Check("bring-up: calls out of order raise", _order),
    Check("description: fences, alignment, queues, software", _description),
    Check("description: memory and telemetry", _readings),
)
REOPENING = Check("bring-up: closes and reopens", _reopen)

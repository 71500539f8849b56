"""Allocation: sizes, alignments, pinned memory, and its end."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from vllm_probe.core.errors import BadUsage
from vllm_probe.vendors.conformance.outcome import (
    PASSED,
    Adapter,
    Check,
    Outcome,
    Subject,
    failed,
    first_failure,
    skipped,
    unless,
)

_MOST_BYTES, _LARGEST_SHIFT = 1 << 16, 12
_IMPOSSIBLE = 1 << 60
_FAR = 1 << 40
_KEPT = 8


def _draw(samples: int) -> Iterator[tuple[int, int]]:
    """Sizes and alignments, powers of two up to 4 KiB."""
    source = random.Random(0)  # noqa: S311 - not a secret
    return ((source.randint(1, _MOST_BYTES), 1 << source.randint(0, _LARGEST_SHIFT)) for _ in range(samples))


def _misplaced(adapter: Adapter, tensor: Any, nbytes: int, alignment: int) -> Iterator[Outcome]:
    yield from unless(tensor.nbytes == nbytes, f"{nbytes} bytes asked for, {tensor.nbytes} given")
    address = adapter.address(tensor)
    if address is not None:
        yield from unless(address % alignment == 0, f"{nbytes} bytes at {alignment} lie at {address:#x}")


def _aligned(subject: Subject) -> Outcome:
    """Also that no two of the last few overlap."""
    adapter = subject.adapter
    kept: deque[tuple[Any, int | None, int]] = deque(maxlen=_KEPT)

    def outcomes() -> Iterator[Outcome]:
        for nbytes, alignment in _draw(subject.samples):
            tensor = adapter.allocate(nbytes, alignment)
            yield from _misplaced(adapter, tensor, nbytes, alignment)
            address = adapter.address(tensor)
            for _, other, size in kept:
                apart = address is None or other is None or address >= other + size or other >= address + nbytes
                yield from unless(apart, f"{nbytes} bytes at {address} overlap {size} bytes at {other}")
            kept.append((tensor, address, nbytes))

    found = first_failure(outcomes())
    if found.ok and kept[-1][1] is None:
        return skipped("the device shows no addresses; sizes are right")
    return found


def _pinned(subject: Subject) -> Outcome:
    adapter, before = subject.adapter, subject.adapter.pinned_bytes

    def outcomes() -> Iterator[Outcome]:
        for nbytes, alignment in _draw(max(subject.samples // 10, 1)):
            tensor = adapter.allocate_pinned(nbytes, alignment)
            yield from _misplaced(adapter, tensor, nbytes, alignment)
            held = adapter.pinned_bytes - before
            yield from unless(held == nbytes, f"pinned_bytes counts {held} of {nbytes} pinned bytes")
            adapter.release(tensor)
            held = adapter.pinned_bytes - before
            yield from unless(held == 0, f"pinned_bytes counts {held} bytes after release")

    return first_failure(outcomes())


def _pageable(subject: Subject) -> Outcome:
    before = subject.adapter.pinned_bytes
    tensor = subject.adapter.allocate_pageable(1000)
    if tensor.nbytes != 1000:
        return failed(f"1000 bytes asked for, {tensor.nbytes} given")
    return first_failure(unless(subject.adapter.pinned_bytes == before, "pageable memory is counted as pinned"))


def _exhausted(subject: Subject) -> Outcome:
    calls: tuple[Callable[[int], Any], ...] = (subject.adapter.allocate, subject.adapter.allocate_pinned)
    for call in calls:
        try:
            call(_IMPOSSIBLE)
        except MemoryError:
            continue
        except Exception as error:  # noqa: BLE001 - isolation point: what else it raises is the finding
            return failed(f"{call.__name__} of 2^60 bytes raises {type(error).__name__}, not MemoryError")
        return failed(f"{call.__name__} of 2^60 bytes succeeds")
    subject.adapter.allocate(64)
    return PASSED


def _refused(subject: Subject) -> Outcome:
    """The base class does, unless a public method was overridden instead of its hook."""
    adapter = subject.adapter
    for name, call in (("allocate", adapter.allocate), ("allocate_pinned", adapter.allocate_pinned)):
        for nbytes, alignment in ((-1, 64), (64, 3), (64, -8), (64, 0)):
            try:
                call(nbytes, alignment)
            except BadUsage:
                continue
            return failed(f"{name} of {nbytes} bytes at multiples of {alignment} does not raise BadUsage")
    return PASSED


def _far_aligned(subject: Subject) -> Outcome:
    """What lies at a multiple of 2^40 or is refused as too much, and is never nowhere."""
    try:
        tensor = subject.adapter.allocate(100, _FAR)
    except MemoryError:
        return PASSED
    address = subject.adapter.address(tensor)
    right = address is None or (address > 0 and address % _FAR == 0)
    return first_failure(unless(right, f"100 bytes at multiples of 2^40 lie at {address or 0:#x}"))


CHECKS = (
    Check("allocation: sizes and alignments up to 4 KiB", _aligned),
    Check("allocation: pinned memory is counted and given back", _pinned),
    Check("allocation: pageable memory", _pageable),
    Check("allocation: MemoryError when there is not enough", _exhausted),
    Check("allocation: BadUsage for sizes and alignments that cannot be", _refused),
    Check("allocation: an alignment that is larger than the memory", _far_aligned),
)

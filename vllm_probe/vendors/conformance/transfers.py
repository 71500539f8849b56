"""Copies, their events, fences, and the simple operations over memory."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

from vllm_probe.core.primitive import Event, Primitive
from vllm_probe.core.values import COMPUTE_DTYPES, FenceScope
from vllm_probe.vendors.conformance.numerics import difference, flat
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
from vllm_probe.vendors.conformance.timing import runs_on

_SIZES = (1, 63, 4096, 70_001)
_LARGE = (1 << 20) + 1
_BLOCK = 4096
_LONG, _BEFORE = 1 << 26, 4
"""Bytes of a copy that takes a device a while, and how many of them stand before one that others wait for."""

_PARTS = ((0, 5000), (0, 1), (1, 63), (64, 128), (4999, 1), (4096, 904))
"""Begin and bytes of parts of `_DRAWN`."""

_DRAWN, _FEW = 5000, 256
_COUNTS = (_DRAWN, 1, 17, 500, 1040, 2100)
"""Values that are read, which do not all divide alike among the units of a device."""

_STRIDE = 16
_SHAPES = ((5,), (2, 3), (3, 1, 4))


def _pattern(nbytes: int, seed: int) -> list[int]:
    source = random.Random(seed)  # noqa: S311 - not a secret
    return [byte - 128 for byte in source.randbytes(nbytes)]


def _first_difference(got: list[Any], want: list[Any]) -> str | None:
    if len(got) != len(want):
        return f"{len(got)} of {len(want)} bytes arrive"
    wrong = [i for i, (g, w) in enumerate(zip(got, want, strict=True)) if g != w]
    return f"{len(wrong)} of {len(want)} bytes are wrong, the first at {wrong[0]}" if wrong else None


def _chain(adapter: Adapter, nbytes: int, *, non_blocking: bool, queue: int) -> str | None:
    """Device, pinned, device, pageable, device, device: what comes out must be what went in."""
    pattern = _pattern(nbytes, nbytes)
    pinned = adapter.allocate_pinned(nbytes)
    places = [
        adapter.from_host(pattern, "int8"),
        pinned,
        adapter.allocate(nbytes),
        adapter.allocate_pageable(nbytes),
        adapter.allocate(nbytes),
        adapter.allocate(nbytes),
    ]
    names = ("the device", "pinned memory", "the device", "pageable memory", "the device", "the device")
    try:
        for i in range(len(places) - 1):
            adapter.copy(places[i], places[i + 1], non_blocking=non_blocking, queue=queue).wait()
            if wrong := _first_difference(adapter.to_host(places[i + 1]), pattern):
                return f"from {names[i]} to {names[i + 1]}, {nbytes} bytes: {wrong}"
        return None
    finally:
        adapter.release(pinned)


def _copies(subject: Subject, *, non_blocking: bool) -> Outcome:
    queues = range(subject.adapter.copy_queues if non_blocking else 1)
    for nbytes in _SIZES:
        for queue in queues:
            if wrong := _chain(subject.adapter, nbytes, non_blocking=non_blocking, queue=queue):
                return failed(wrong + (f" in queue {queue}" if len(queues) > 1 else ""))
    if wrong := _chain(subject.adapter, _LARGE, non_blocking=non_blocking, queue=0):
        return failed(wrong)
    wrong = _out_of_order(subject.adapter, lambda event: event.wait()) if non_blocking else None
    return failed(f"behind the event {wrong}") if wrong else PASSED


def _out_of_order(adapter: Adapter, hold: Callable[[Event], object]) -> str | None:
    """How a copy in the first queue is wrong that `hold` keeps behind the event of one at the end of the last queue."""
    pattern, last = _pattern(_BLOCK, 1), adapter.copy_queues - 1
    source, middle, end = adapter.from_host(pattern, "int8"), adapter.allocate(_BLOCK), adapter.allocate(_BLOCK)
    adapter.copy(adapter.from_host(_pattern(_BLOCK, 2), "int8"), middle)
    pinned, filled = adapter.allocate_pinned(_LONG), adapter.allocate(_LONG)
    adapter.synchronize()
    try:
        for _ in range(_BEFORE):
            adapter.copy(pinned, filled, non_blocking=True, queue=last)
        hold(adapter.copy(source, middle, non_blocking=True, queue=last))
        adapter.copy(middle, end, non_blocking=True)
        adapter.synchronize()
        return _first_difference(adapter.to_host(end), pattern)
    finally:
        adapter.synchronize()
        adapter.release(pinned)


def _unfinished(adapter: Adapter, scope: FenceScope) -> str | None:
    """How long copies go on behind a fence that the host is to see them behind."""
    pinned, filled = adapter.allocate_pinned(_LONG), adapter.allocate(_LONG)

    def fenced() -> None:
        for _ in range(2 * _BEFORE):
            adapter.copy(pinned, filled, non_blocking=True, queue=adapter.copy_queues - 1)
        adapter.fence(scope)

    try:
        return runs_on(adapter, fenced)
    finally:
        adapter.release(pinned)


def _fence(scope: FenceScope, subject: Subject) -> Outcome:
    """What was written before a fence is visible behind it: on the device, for `system` on the host as well.

    A fence within the device need not wait for copies that are still in a queue.
    """
    adapter, queued = subject.adapter, scope in {"device", "system"}
    if queued and (wrong := _out_of_order(adapter, lambda _: adapter.fence(scope))):
        return failed(f"behind the fence {wrong}")
    if scope == "system" and (wrong := _unfinished(adapter, scope)):
        return failed(f"the fence {wrong}")
    pattern = _pattern(_BLOCK, 1)
    middle, pinned = adapter.allocate(_BLOCK), adapter.allocate_pinned(_BLOCK)
    end = pinned if scope == "system" else adapter.allocate(_BLOCK)
    try:
        adapter.copy(adapter.from_host(pattern, "int8"), middle, non_blocking=queued)
        adapter.fence(scope)
        event = adapter.copy(middle, end, non_blocking=queued)
        adapter.fence(scope) if scope == "system" else event.wait()
        wrong = _first_difference(adapter.to_host(end), pattern)
        return failed(f"behind the fence {wrong}") if wrong else PASSED
    finally:
        adapter.release(pinned)


def _round_trip(subject: Subject) -> Outcome:
    """Small whole numbers, which every format holds exactly."""
    adapter = subject.adapter
    computing = [primitive for primitive in Primitive if primitive is not Primitive.SWAP]
    dtypes = [d for d in COMPUTE_DTYPES if any(adapter.implementations(p, d) for p in computing)]

    def outcomes() -> Iterator[Outcome]:
        for dtype in dict.fromkeys(("int8", *dtypes)):
            for shape in _SHAPES:
                numbers = iter(range(-7, 100))
                values: Any = _nested(shape, numbers)
                tensor = adapter.from_host(values, dtype)
                yield from unless(tuple(tensor.shape) == shape, f"{dtype} {[*shape]} has the shape {[*tensor.shape]}")
                back = adapter.to_host(tensor)
                yield from unless(back == values, f"{dtype} {values} comes back as {back}")

    return first_failure(outcomes())


def _nested(shape: tuple[int, ...], numbers: Iterator[int]) -> Any:
    return [_nested(shape[1:], numbers) for _ in range(shape[0])] if shape else next(numbers)


def _seeded(subject: Subject) -> Outcome:
    adapter = subject.adapter
    dtypes = [d for d in COMPUTE_DTYPES if adapter.implementations(Primitive.LINEAR, d)] or ["fp32"]

    def outcomes() -> Iterator[Outcome]:
        for dtype in dtypes:
            draws = [adapter.to_host(adapter.random((3, 5), dtype, seed)) for seed in (0, 0, 1, 2, 3, 4)]
            yield from unless(draws[0] == draws[1], f"random in {dtype} differs with the same seed")
            yield from unless(any(draw != draws[0] for draw in draws), f"random in {dtype} ignores its seed")
            drawn = adapter.to_host(adapter.random((_DRAWN,), dtype, 0))
            dry = f"the last {_FEW} of {_DRAWN} random values in {dtype} are more alike than the first"
            yield from unless(2 * len({*drawn[-_FEW:]}) >= len({*drawn[:_FEW]}), dry)

    return first_failure(outcomes())


def _triad(subject: Subject) -> Outcome:
    adapter = subject.adapter
    b, c = [1.5, -2.0, 3.25, 0.0], [2.0, 4.0, -8.0, 1.0]
    out = adapter.from_host([0.0] * 4, "fp32")
    adapter.triad(adapter.from_host(b, "fp32"), adapter.from_host(c, "fp32"), 0.5, out)
    adapter.synchronize()
    wrong = difference([*flat(adapter.to_host(out))], [x + 0.5 * y for x, y in zip(b, c, strict=True)], "fp32")
    return failed(f"triad {wrong}") if wrong else PASSED


def _read(subject: Subject) -> Outcome:
    """Every value counts: one of them is changed at the begin, at the end and in every vector."""
    return first_failure(_unread(subject.adapter, count) for count in _COUNTS)


def _unread(adapter: Adapter, count: int) -> Outcome:
    def reduced(changed: int | None) -> list[float]:
        values = [9.0 if place == changed else 1.0 for place in range(count)]
        return [*flat(adapter.to_host(adapter.read(adapter.from_host(values, "fp32"))))]

    same = reduced(None)
    if len(same) != 1:
        return failed(f"read gives {len(same)} values, not one")
    places = dict.fromkeys((0, count // 3, count // 2, count - 1, *range(_STRIDE // 2, count, _STRIDE)))
    unseen = next((place for place in places if reduced(place) == same), None)
    return PASSED if unseen is None else failed(f"read does not notice that value {unseen} of {count} changed")


def _parts(subject: Subject) -> Outcome:
    """Of device and pinned memory, where the adapter names any: what lies there, in the same place."""
    adapter, pattern = subject.adapter, _pattern(_DRAWN, 1)
    whole, pinned = adapter.from_host(pattern, "int8"), adapter.allocate_pinned(_DRAWN)
    try:
        adapter.copy(whole, pinned).wait()
        found = [
            (begin, nbytes, tensor, part)
            for tensor in (whole, pinned)
            for begin, nbytes in _PARTS
            if (part := adapter.part(tensor, begin, nbytes)) is not None
        ]
        if not found:
            return skipped("the adapter names no parts")
        return first_failure(_misplaced(adapter, pattern, *each) for each in found)
    finally:
        adapter.release(pinned)


def _misplaced(adapter: Adapter, pattern: list[int], begin: int, nbytes: int, tensor: Any, part: Any) -> Outcome:
    what = f"{nbytes} bytes from {begin} on of {len(pattern)}"
    if wrong := _first_difference(adapter.to_host(part), pattern[begin : begin + nbytes]):
        return failed(f"{what}: {wrong}")
    address, own = adapter.address(tensor), adapter.address(part)
    inside = address is None or own is None or own == address + begin
    return PASSED if inside else failed(f"{what} lie elsewhere than in its memory")


CHECKS = (
    Check("transfers: values keep their places in every format", _round_trip),
    Check("transfers: copies between device and host", partial(_copies, non_blocking=False)),
    Check("transfers: copies with events, in every queue", partial(_copies, non_blocking=True)),
    *(Check(f"fences: {scope}", partial(_fence, scope)) for scope in get_args(FenceScope)),
    Check("memory operations: random data follows its seed", _seeded),
    Check("memory operations: triad", _triad),
    Check("memory operations: read", _read),
    Check("memory operations: parts", _parts),
)

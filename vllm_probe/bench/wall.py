"""Time as the host sees it: of what crosses queues, or consists of waiting."""

from collections.abc import Callable, Sequence
from typing import Any

from vllm_probe.core.adapter import HardwareAdapter

Timer = Callable[[Sequence[Callable[[], object]]], float]


def until_done(adapter: HardwareAdapter[Any]) -> Timer:
    """Seconds from the first of the calls until everything in all queues is done."""

    def timer(calls: Sequence[Callable[[], object]]) -> float:
        adapter.synchronize()
        begin = adapter.clock()
        for call in calls:
            call()
        adapter.synchronize()
        return adapter.clock() - begin

    return timer


def one_by_one(adapter: HardwareAdapter[Any]) -> Timer:
    """Seconds of the calls, each of which is waited for before the next."""
    wait = until_done(adapter)
    return lambda calls: sum(wait((call,)) for call in calls)


def until_issued(adapter: HardwareAdapter[Any]) -> Timer:
    """Seconds from the first of the calls until the last one returns; the device is then let finish."""

    def timer(calls: Sequence[Callable[[], object]]) -> float:
        adapter.synchronize()
        begin = adapter.clock()
        for call in calls:
            call()
        seconds = adapter.clock() - begin
        adapter.synchronize()
        return seconds

    return timer

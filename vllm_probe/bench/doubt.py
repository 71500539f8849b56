"""What makes a time untrustworthy, whatever the rate that follows from it."""

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from vllm_probe.bench.peak import Expected
from vllm_probe.core.adapter import HardwareAdapter

_DRAWN, _DIFFERENT = 256, 16
_FAST_TIMER, _SHORT_TIMER = 1.03, 0.4
_LONG_CALL_S = 1e-4
"""So long that queueing it takes no time beside it."""

_CHECKED_S, _CHECKS, _DISAGREEING = 0.01, 3, 0.03
_SLOW_CLOCK = 0.75


def checked(seconds: float, calls: int) -> float:
    """`seconds` of `calls`.

    Raises:
        ArithmeticError: no work takes so long, a clock went back or stood still.
    """
    if not 0 < seconds < math.inf:
        raise ArithmeticError(f"{calls} calls took {seconds:g} s")
    return seconds


def median_error(rounds: Sequence[Sequence[float]]) -> float:
    """Relative standard error of the median, from the median absolute deviation of a normal distribution."""
    samples = [sample for one in rounds for sample in one]
    middle = median(samples)
    deviation = 1.4826 * median(abs(sample - middle) for sample in samples)
    return 1.2533 * deviation / math.sqrt(len(samples)) / middle


def describe(error: BaseException) -> str:
    """Type and first line of an error, short enough for a document."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]


def out_of_memory(error: Exception) -> bool:
    """Whether `error` says, in the words of any library, that memory was not enough."""
    text = str(error).lower().replace("_", " ")
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def doubt_of_data(adapter: HardwareAdapter[Any]) -> str | None:
    """Whether the adapter's random numbers are not random.

    Operands that are alike compress in caches and links, and draw less power, so that clocks stay higher:
    https://arxiv.org/abs/2409.18324.
    """
    drawn = adapter.to_host(adapter.random((_DRAWN,), "fp32", seed=0))
    return "its data is all alike, which compresses and draws little power" if len({*drawn}) < _DIFFERENT else None


def doubt_of_timer(device_s: float, host_s: float, call_s: float) -> str | None:
    """Whether the device's own timer contradicts the time that the host waited, in which queueing is included."""
    short = device_s < _SHORT_TIMER * host_s and call_s >= _LONG_CALL_S
    if short or device_s > _FAST_TIMER * host_s:
        return f"the device speaks of {device_s:.3g} s, of which the host waited {host_s:.3g} s"
    return None


def doubt_of_events(adapter: HardwareAdapter[Any], call: Callable[[], object]) -> str | None:
    """Whether the timer of the device disagrees with the host's by more than 3 % on the same calls.

    Between a short and a long batch both must tell the same difference: what issuing and waiting cost is in both.
    """

    def both(count: int) -> tuple[float, float]:
        begin = adapter.clock()
        device_s = adapter.time_batch([call] * count)
        return device_s, adapter.clock() - begin

    count = max(1, math.ceil(_CHECKED_S / checked(both(2)[1], 2) * 2))
    for _ in range(_CHECKS):
        (short_s, short_host_s), (long_s, long_host_s) = both(count), both(3 * count)
        device_s, host_s = long_s - short_s, long_host_s - short_host_s
        if abs(device_s - host_s) <= _DISAGREEING * host_s:
            return None
    return f"its timer speaks of {device_s:.3g} s where the host waited {host_s:.3g} s"


def doubt_of_clock(clock_mhz: float | None, expected: Expected | None) -> str | None:
    """Whether the device ran far below the clock that its peak is stated for."""
    own_mhz = expected.at_mhz if expected and expected.is_own_clock else None
    if clock_mhz is None or own_mhz is None or clock_mhz >= _SLOW_CLOCK * own_mhz:
        return None
    return f"it ran at {clock_mhz:.0f} of {own_mhz:.0f} MHz"

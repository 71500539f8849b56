"""What makes a time untrustworthy, whatever the rate that follows from it."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, TypeVar

from vllm_probe.bench.peak import Expected
from vllm_probe.core.adapter import HardwareAdapter

Made = TypeVar("Made")

_DRAWN, _LOOKS, _DIFFERENT = 256, 64, 16
_RUN = 16
_ALIKE = "its data is all alike, which compresses and draws little power"
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


def within_memory(prepare: Callable[[int], Made]) -> Made:
    """What `prepare` makes of operands divided by the least of 1, 2, 4 and 8 that memory allows."""
    for divisor in (1, 2, 4):
        try:
            return prepare(divisor)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
    return prepare(8)


def doubt_of_data(adapter: HardwareAdapter[Any]) -> str | None:
    """Whether the adapter's random numbers are not random.

    Operands that are alike compress in caches and links, and draw less power, so that clocks stay higher:
    https://arxiv.org/abs/2409.18324.
    """
    return doubt_of_values([adapter.to_host(adapter.random((_DRAWN,), "fp32", seed=0))])


def doubt_of_operands(adapter: HardwareAdapter[Any], *operands: Any) -> str | None:
    """Whether head, middle or tail of an operand, as it is timed, is not random: some values of a vector, else rows."""
    return doubt_of_values(part for operand in operands for part in _parts(adapter, operand))


def _parts(adapter: HardwareAdapter[Any], operand: Any) -> list[Sequence[float]]:
    size, run = operand.shape[0], min(_RUN if len(operand.shape) == 1 else 1, operand.shape[0])
    starts = (0, (size - run) // 2, size - run)
    found = [adapter.at(operand, [(start + i,) for i in range(run)]) for start in starts]
    return [row for (row,) in found] if len(operand.shape) > 1 else [*found]


def doubt_of_values(parts: Iterable[Sequence[float]]) -> str | None:
    """Whether hardly any values of one of `parts` differ, from its first to its last."""
    looked_at = (part[:: max(len(part) // _LOOKS, 1)] for part in parts)
    return _ALIKE if any(len({*part}) < min(_DIFFERENT, len(part) / 2) for part in looked_at) else None


def doubt_of_timer(
    adapter: HardwareAdapter[Any], calls: Sequence[Callable[[], object]], size: int, device_s: float, host_s: float
) -> str | None:
    """Whether the device's own timer contradicts the time that the host waited for batches of `size` calls.

    Where the host waited longer, the calls run again, to tell whether issuing and waiting explain that.
    """
    if device_s > (1 + _DISAGREEING) * host_s:
        return _contradiction(device_s, host_s)
    return doubt_of_events(adapter, calls, size) if device_s < (1 - _DISAGREEING) * host_s else None


def _contradiction(device_s: float, host_s: float) -> str:
    return f"its timer speaks of {device_s:.3g} s where the host waited {host_s:.3g} s"


def doubt_of_events(
    adapter: HardwareAdapter[Any], calls: Sequence[Callable[[], object]], size: int | None = None
) -> str | None:
    """Whether the timer of the device disagrees with the host's by more than 3 % on the same calls.

    Between a batch of `size`, by default of 10 ms, and one that is three times as long both must tell the same
    difference: what issuing and waiting cost is in both.
    """

    def both(count: int) -> tuple[float, float]:
        chosen = [calls[i % len(calls)] for i in range(count)]
        begin = adapter.clock()
        device_s = adapter.time_batch(chosen)
        return device_s, adapter.clock() - begin

    count = size or max(1, math.ceil(_CHECKED_S / checked(both(2)[1], 2) * 2))
    for _ in range(_CHECKS):
        (short_s, short_host_s), (long_s, long_host_s) = both(count), both(3 * count)
        device_s, host_s = long_s - short_s, long_host_s - short_host_s
        if abs(device_s - host_s) <= _DISAGREEING * host_s:
            return None
    return _contradiction(device_s, host_s)


def doubt_of_clock(clock_mhz: float | None, expected: Expected | None) -> str | None:
    """Whether the device ran far below the clock that its peak is stated for."""
    own_mhz = expected.at_mhz if expected and expected.is_own_clock else None
    if clock_mhz is None or own_mhz is None or clock_mhz >= _SLOW_CLOCK * own_mhz:
        return None
    return f"it ran at {clock_mhz:.0f} of {own_mhz:.0f} MHz"

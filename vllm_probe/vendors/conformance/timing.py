"""Time: what a batch takes grows with it, ends when the device is done, and is what the host waits.

Nothing here fails because the machine is busy: a ratio far from one must show in every round of many.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from vllm_probe.vendors.conformance.outcome import PASSED, Adapter, Check, Outcome, Subject, failed

_ROUNDS, _FEW, _MANY = 40, 4, 32
_TURNS = 10
_SHORTEST_S, _LEAST_S = 0.001, 0.01
"""Of what runs on behind a call, which waiting for an idle device may take, and of a difference that is compared."""

_LONG, _QUEUED, _MOST = 1 << 23, 64, 256
"""fp32 values of an array that takes a device a while, calls that take it longer than the host, and most of them."""

_APART = 1.5


def runs_on(adapter: Adapter, call: Callable[[], object]) -> str | None:
    """How long the device works on behind `call`, unless that is the shorter part in one of many rounds."""
    for _ in range(_TURNS):
        adapter.synchronize()
        begin = adapter.clock()
        call()
        middle = adapter.clock()
        adapter.synchronize()
        own_s, behind_s = middle - begin, adapter.clock() - middle
        if behind_s < max(own_s, _SHORTEST_S):
            return None
    return f"returns after {own_s:.2g} s, and the device works on for {behind_s:.2g} s"


def _growing(subject: Subject) -> Outcome:
    """The least of interleaved rounds, because other work on the machine only adds time; as many as it takes."""
    adapter, done = subject.adapter, list[int]()
    source, target = (adapter.allocate(1 << 20) for _ in range(2))

    def copy(number: int) -> None:
        adapter.copy(source, target)
        done.append(number)

    least = dict.fromkeys((_FEW, _MANY), inf)
    for _ in range(_ROUNDS):
        for count in least:
            done.clear()
            least[count] = min(least[count], adapter.time_batch([partial(copy, number) for number in range(count)]))
            if done != [*range(count)]:
                return failed("time_batch does not make every call once, in order")
        if 0 < 2 * least[_FEW] < least[_MANY]:
            return PASSED
    return failed(f"{_FEW} copies of 1 MiB take {least[_FEW]:.2g} s, {_MANY} of them {least[_MANY]:.2g} s")


def _triad(adapter: Adapter) -> Callable[[], object]:
    b, c, out = (adapter.random((_LONG,), "fp32", seed) for seed in range(3))
    return partial(adapter.triad, b, c, 0.5, out)


def _waiting(subject: Subject) -> Outcome:
    """Issuing takes less than what is issued, and another look at the device finds it idle."""
    adapter = subject.adapter
    wrong = runs_on(adapter, partial(adapter.time_batch, [_triad(adapter)] * _QUEUED))
    return failed(f"time_batch {wrong}") if wrong else PASSED


def _agreeing(subject: Subject) -> Outcome:
    """Between a batch and one three times as long, in which what comes once, before or behind, is the same."""
    adapter = subject.adapter
    call = _triad(adapter)

    def differences(count: int) -> tuple[float, float]:
        """Seconds by `time_batch` and by the host."""
        (short_s, short_host_s), (long_s, long_host_s) = (both(count) for count in (count, 3 * count))
        return long_s - short_s, long_host_s - short_host_s

    def both(count: int) -> tuple[float, float]:
        begin = adapter.clock()
        return adapter.time_batch([call] * count), adapter.clock() - begin

    count = 1
    while differences(count)[1] < _LEAST_S and count < _MOST:
        count *= 4
    wrong = ""
    for _ in range(_TURNS):
        own_s, host_s = differences(count)
        if host_s / _APART < own_s < host_s * _APART:
            return PASSED
        if host_s >= _LEAST_S:
            wrong = f"time_batch speaks of {own_s:.2g} s where the host waits {host_s:.2g} s"
    return failed(wrong) if wrong else PASSED


CHECKS = (
    Check("time_batch: every call once, more take longer", _growing),
    Check("time_batch: until the device is done", _waiting),
    Check("time_batch: the seconds that the host waits", _agreeing),
)

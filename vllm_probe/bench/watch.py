"""The telemetry thread: what the device says of itself while tests run, and what follows from that for their values."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean
from threading import Event, Thread
from typing import Any, NamedTuple

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import HELD_DOWN
from vllm_probe.core.primitive import Telemetry

_INTERVAL_S = 0.1
_FASTEST_MHZ = 20_000  # no processor is as fast by a factor of two
_OWN_LIMIT = "power"
"""A device at its own power limit works as it was built to; its clock tells the rest."""


class Seen(NamedTuple):
    """Readings summed up; null where no reading tells."""

    clock_mhz: float | None
    lowest_mhz: float | None
    highest_mhz: float | None
    held_down: str | None


class Watch:
    """Reads the telemetry of an open adapter: at begin and end of what is watched, every 0.1 s in between.

    On a processor a reading takes time from the test, so that a short round has none inside.
    """

    def __init__(self, adapter: HardwareAdapter[Any], interval_s: float = _INTERVAL_S) -> None:
        self._adapter = adapter
        self._interval_s = interval_s

    @contextmanager
    def __call__(self) -> Iterator[list[Telemetry]]:
        """A list that fills with readings until the end of the block."""
        readings, ended = [self._read()], Event()

        def sample() -> None:
            while not ended.wait(self._interval_s):
                readings.append(self._read())

        thread = Thread(target=sample, name="telemetry", daemon=True)
        thread.start()
        try:
            yield readings
        finally:
            ended.set()
            thread.join()
            readings.append(self._read())

    def _read(self) -> Telemetry:
        try:
            return _plausible(self._adapter.telemetry())
        except Exception:  # noqa: BLE001 a broken sensor costs no measurement
            return Telemetry()


def _plausible(reading: Telemetry) -> Telemetry:
    """`reading` without a clock that is none, as one in another unit."""
    clock = reading.clock_mhz
    return reading if clock is None or 0 < clock <= _FASTEST_MHZ else replace(reading, clock_mhz=None)


def sum_up(rounds: Sequence[Sequence[Telemetry]]) -> Seen:
    """Clocks of all `rounds`, and what held the device down in any of them; a quota counts within each round."""
    readings = [reading for one in rounds for reading in one]
    clocks = [reading.clock_mhz for reading in readings if reading.clock_mhz]
    limits = sorted({word for reading in readings for word in reading.held_down or ()} - {_OWN_LIMIT})
    periods = sum(
        max(counts) - min(counts)
        for one in rounds
        if (counts := [reading.quota_periods for reading in one if reading.quota_periods is not None])
    )
    found = [*limits, *([f"a processor quota that ran out in {periods} periods"] if periods else [])]
    return Seen(
        clock_mhz=fmean(clocks) if clocks else None,
        lowest_mhz=min(clocks, default=None),
        highest_mhz=max(clocks, default=None),
        held_down=f"{HELD_DOWN} {', '.join(found)}" if found else None,
    )

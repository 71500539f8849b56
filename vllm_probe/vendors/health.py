"""DriverHealthMonitor: whether a device can be initialised now."""

from dataclasses import dataclass

from vllm_probe.core.device import Device
from vllm_probe.core.system import Host
from vllm_probe.core.units import format_bytes
from vllm_probe.vendors.cpu.limits import free_memory, read_limits

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of a device at one moment.

    Attributes:
        ready: it can be initialised.
        free_bytes: memory that can be allocated, null when it cannot be read.
        load: runnable processes per processor, one-minute average; null when it cannot be read.
        reasons: what stands against it, and what will only make it slow.
    """

    ready: bool
    free_bytes: int | None
    load: float | None
    reasons: tuple[str, ...] = ()


class DriverHealthMonitor:
    """Watches devices of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def snapshot(self, device: Device, need_bytes: int | None = None) -> Health:
        """The state of `device` now; with `need_bytes` it is ready only while that much memory is free.

        Memory that the device shares with the host is read again, other memory is what detection saw. A high load
        delays and does not prevent: it is a reason, and the device stays ready.
        """
        stats = self._host.stats()
        free, load = device.memory.usable_bytes, None
        if device.memory.kind in {"shared", "unified"}:
            free = free_memory(stats, read_limits(self._host))[0]
            if stats.load_1m is not None and device.details.get("logical_cpus"):
                load = stats.load_1m / device.details["logical_cpus"]
        against = []
        if not device.usable:
            against.append(device.verdict.reason)
        if need_bytes is not None and free is not None and free < need_bytes:
            against.append(f"{format_bytes(need_bytes)} needed, {format_bytes(free)} free")
        slow = [f"{load:.1f} runnable processes per processor"] if load is not None and load > 1 else []
        return Health(ready=not against, free_bytes=free, load=load, reasons=(*against, *slow))

    def wait_until_ready(self, device: Device, need_bytes: int | None, timeout_s: float) -> Health:
        """The first snapshot that is ready, else the last one before `timeout_s`; pauses double up to 8 s."""
        deadline = self._host.now() + timeout_s
        pause = _FIRST_WAIT_S
        while not (health := self.snapshot(device, need_bytes)).ready and self._host.now() < deadline:
            self._host.sleep(min(pause, deadline - self._host.now()))
            pause = min(2 * pause, _LONGEST_WAIT_S)
        return health

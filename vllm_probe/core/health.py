"""What a vendor's plug-in tells of the state of its devices: the contract of `VendorPlugin.health`."""

from dataclasses import dataclass

from vllm_probe.core.values import Bytes, Natural, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that a driver lists on a device.

    Attributes:
        pid: its number, as the driver counts: the host's even inside a container.
        bytes: memory of the device that it holds, null where the driver does not tell.
        kind: compute or graphics, null where the driver does not tell.
    """

    pid: Natural
    bytes: Natural | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """What a driver tells of a device at one moment; null where it does not.

    Attributes:
        free_bytes: memory that can be allocated.
        used_bytes: memory in use.
        processes: those that have memory or a context on it.
        compute_mode: default, exclusive_process, exclusive_thread or prohibited.
        throttled: what slows it down against its owner's will, if it works at all.
        event_reasons: everything that sets its clock, in the driver's words; `idle` when it does nothing.
        utilization: percent of the time that it works.
        temperature_c: degrees.
        clock_mhz: of its processors.
        clock_max_mhz: the highest.
        power_limit_w: watts that it may take.
        power_default_w: watts that it may take unless somebody changed that.
        lost: why it does not answer any more.
    """

    free_bytes: Bytes | None = None
    used_bytes: Bytes | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    compute_mode: str | None = None
    throttled: tuple[str, ...] | None = None
    event_reasons: tuple[str, ...] = ()
    utilization: Rate | None = None
    temperature_c: float | None = None
    clock_mhz: Rate | None = None
    clock_max_mhz: Rate | None = None
    power_limit_w: Rate | None = None
    power_default_w: Rate | None = None
    lost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """What the driver of a vendor tells of its devices at one moment.

    Attributes:
        devices: id to state; one that the driver does not list is left out.
        lost: why none of them can be asked.
    """

    devices: dict[str, DeviceState]
    lost: str | None = None

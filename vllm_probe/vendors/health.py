"""DriverHealthMonitor: whether a device can be initialised now."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable, RecordingIncomplete, SchemaViolation
from vllm_probe.core.health import DeviceState, HealthReport
from vllm_probe.core.system import HostStats
from vllm_probe.core.units import format_bytes
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.cpu.limits import free_memory, read_limits
from vllm_probe.vendors.nodes import read_own_pid
from vllm_probe.vendors.pci import ROOT, accelerators
from vllm_probe.vendors.software import container_kind

if TYPE_CHECKING:
    from vllm_probe.vendors.registry import PortableDeviceManager

_TIMEOUT_S = 5.0
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
_IDLE, _BUSY = 5, 90  # percent of the time in use
_STUCK = 0.2
"""Share of its highest clock below which a busy device that is not throttled hangs on to an idle clock
(https://github.com/ROCm/legacy-rocm-build/issues/5849: 41 MHz at 100 % busy)."""
_MPS_SERVER = "nvidia-cuda-mps"
"""`nvidia-cuda-mps-server` in /proc/<pid>/comm, which holds 15 characters. It alone holds an exclusive device, and
lets others in (https://docs.nvidia.com/deploy/mps/)."""
_MPS_VARIABLE, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - where its daemon listens
_ASKED_FOR = frozenset({"application_clocks", "power_cap"})
"""Reasons of a low clock that the device's owner chose."""
_CLOCKS = ("sm_clock_mhz", "core_clock_mhz", "aicore_clock_mhz")
_ADDRESS = r"[0-9a-f]{4}:[0-9a-f]{2}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has memory or a context on a device.

    Attributes:
        pid: its number, as the driver counts.
        name: what the kernel calls it; null inside a container, where the driver's numbers are the host's.
        held_bytes: memory of the device that it holds, null where the driver does not tell.
        kind: compute or graphics, null where the driver does not tell.
    """

    pid: int
    name: str | None = None
    held_bytes: int | None = None
    kind: str | None = None

    def __str__(self) -> str:
        held = "" if self.held_bytes is None else f", {format_bytes(self.held_bytes)}"
        return f"process {self.pid} ({self.name or 'name unknown'}{held})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of a device at one moment.

    Attributes:
        ready: it can be initialised.
        free_bytes: memory that can be allocated, null when it cannot be read.
        used_bytes: memory in use, null when it cannot be read.
        load: runnable processes per processor, one-minute average; null when it cannot be read.
        holders: other processes on the device, null when they cannot be listed.
        compute_mode: default, exclusive_process, exclusive_thread or prohibited; null where the driver has none.
        shared_by_mps: an MPS server has the device and lets others in.
        throttled: what slows it down against its owner's will while it works, null when that cannot be read. What an
            idle device, one at its power limit or one with a clock that was set looks like is not in it.
        lost: why the device does not answer any more, null while it does.
        reasons: what stands against it.
        slowed: what will only make it slow.
        unknown: name of an attribute that is null to the reason.
    """

    ready: bool
    free_bytes: int | None
    used_bytes: int | None = None
    load: float | None = None
    holders: tuple[Holder, ...] | None = None
    compute_mode: str | None = None
    shared_by_mps: bool = False
    throttled: tuple[str, ...] | None = None
    lost: str | None = None
    reasons: tuple[str, ...] = ()
    slowed: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


class DriverHealthMonitor:
    """Watches the devices of a manager's host, each through the `health` of its plug-in."""

    def __init__(self, manager: "PortableDeviceManager") -> None:
        self._manager = manager
        self._host = manager.host

    def snapshot(self, device: Device, need_bytes: int | None = None) -> Health:
        """The state of `device` now; with `need_bytes` it is ready only while that much memory is free.

        The driver is asked in a child process for at most 5 s, and not at all while the device sleeps. What it does not
        tell stays null and stands against nothing. Memory that is shared with the host is at most what the host has
        free; of a plug-in without `health`, other memory is what detection saw. A high load, throttling and other
        processes delay and do not prevent.
        """
        state, silence = self._ask(device)
        stats, holders = self._host.stats(), self._holders(state)
        free, load = self._free(device, state, stats), _load(device, stats)
        mps = self._shared(holders or ())
        lost = state.lost or self._gone(device)
        throttled = _throttled(state)
        against = (
            *(() if device.usable else (device.verdict.reason,)),
            *((f"it does not answer: {lost}",) if lost else ()),
            *_excluded(state, holders or (), shared=mps),
            *_short(need_bytes, free, holders or ()),
        )
        known = {"free_bytes": free, "used_bytes": state.used_bytes, "holders": holders, "throttled": throttled}
        return Health(
            ready=not against,
            free_bytes=free,
            used_bytes=state.used_bytes,
            load=load,
            holders=holders,
            compute_mode=state.compute_mode,
            shared_by_mps=mps,
            throttled=throttled,
            lost=lost,
            reasons=against,
            slowed=tuple(_slowed(state, throttled, load)),
            unknown={name: lost or silence for name, value in known.items() if value is None},
        )

    def wait_until_ready(self, device: Device, need_bytes: int | None, timeout_s: float) -> Health:
        """The first snapshot that is ready, else the last one before `timeout_s`; pauses double up to 8 s.

        A device that detection found unusable is not waited for.
        """
        deadline = self._host.now() + timeout_s
        pause = _FIRST_WAIT_S
        while not (health := self.snapshot(device, need_bytes)).ready and self._host.now() < deadline and device.usable:
            self._host.sleep(min(pause, deadline - self._host.now()))
            pause = min(2 * pause, _LONGEST_WAIT_S)
        return health

    def _ask(self, device: Device) -> tuple[DeviceState, str]:
        """What the plug-in says of the device, and why what is not there is not known."""
        plugin = self._manager.plugin_for(device.vendor)
        if plugin is None or plugin.health is None:
            return DeviceState(), "its plug-in does not watch it"
        address = device.id.partition("/")[0]
        if any(each.asleep for each in accelerators(self._host) if each.address == address):
            return DeviceState(), "it is asleep, and asking would wake it"
        try:
            report = _report(self._host.isolated(plugin.health, _TIMEOUT_S))
        except LibraryTimeout:
            return DeviceState(lost=f"its driver says nothing for {_TIMEOUT_S:g} s"), ""
        except (LibraryUnavailable, RecordingIncomplete, SchemaViolation) as error:
            return DeviceState(), str(error).replace(plugin.health, f"the plug-in {plugin.name}")
        if device.id in report.devices:
            return report.devices[device.id], "its driver does not tell it"
        return DeviceState(lost=report.lost), "its driver does not list it"

    def _free(self, device: Device, state: DeviceState, stats: HostStats) -> int | None:
        plugin = self._manager.plugin_for(device.vendor)
        if device.memory.kind not in {"shared", "unified"}:
            return state.free_bytes if plugin and plugin.health else device.memory.usable_bytes
        host = free_memory(stats, read_limits(self._host))[0]
        return min((each for each in (state.free_bytes, host) if each is not None), default=None)

    def _holders(self, state: DeviceState) -> tuple[Holder, ...] | None:
        if state.processes is None:
            return None
        named, own = container_kind(self._host) in {None, "wsl"}, read_own_pid(self._host)
        return tuple(
            Holder(pid=each.pid, name=self._name(each.pid) if named else None, held_bytes=each.bytes, kind=each.kind)
            for each in state.processes
            if each.pid != own
        )

    def _shared(self, holders: tuple[Holder, ...]) -> bool:
        """Whether an MPS server is among them; where some have no name, whether this process can reach its daemon."""
        named = any(each.name == _MPS_SERVER for each in holders)
        if named or all(each.name for each in holders):
            return named
        return self._host.exists(f"{self._host.env(_MPS_VARIABLE) or _MPS_FOLDER}/control")

    def _name(self, pid: int) -> str | None:
        return (self._host.read_text(f"/proc/{pid}/comm") or "").strip() or None

    def _gone(self, device: Device) -> str | None:
        """That the bus does not show any more what it showed when the device was found."""
        folder = f"{ROOT}/{device.id.partition('/')[0]}"
        shown = re.match(_ADDRESS, device.id) and "pci_id" in device.details
        return "it is not on the bus any more" if shown and not self._host.exists(f"{folder}/vendor") else None


def _report(value: JsonValue) -> HealthReport:
    """The report of a plug-in, whichever of its clocks a vendor names.

    Raises:
        SchemaViolation: it is none.
    """
    codec.from_json(HealthReport, value)
    for state in value["devices"].values():
        name = next((each for each in _CLOCKS if each in state), None)
        if name:
            state |= {"clock_mhz": state[name], "clock_max_mhz": state.get(name.replace("_mhz", "_max_mhz"))}
    return codec.from_json(HealthReport, value)


def _load(device: Device, stats: HostStats) -> float | None:
    processors = device.details.get("logical_cpus")
    return stats.load_1m / processors if stats.load_1m is not None and processors else None


def _excluded(state: DeviceState, holders: tuple[Holder, ...], *, shared: bool) -> Iterator[str]:
    mode = state.compute_mode or ""
    if mode == "prohibited":
        yield "its compute mode is Prohibited"
    holder = next((each for each in holders if each.kind == "compute"), None)
    if mode.startswith("exclusive") and holder and not shared:
        yield f"it is in exclusive mode, and {holder} has it"


def _short(need: int | None, free: int | None, holders: tuple[Holder, ...]) -> Iterator[str]:
    if need is not None and free is not None and free < need:
        most = max((each for each in holders if each.held_bytes), key=lambda each: each.held_bytes or 0, default=None)
        yield f"{format_bytes(need)} needed, {format_bytes(free)} free" + (f"; {most} has most" if most else "")


def _throttled(state: DeviceState) -> tuple[str, ...] | None:
    """Of a device that does nothing a low clock is no throttling, whatever flags its driver still shows."""
    idle = "idle" in state.event_reasons or (state.utilization is not None and state.utilization < _IDLE)
    return () if idle and state.throttled else state.throttled


def _slowed(state: DeviceState, throttled: tuple[str, ...] | None, load: float | None) -> Iterator[str]:
    if load is not None and load > 1:
        yield f"{load:.1f} runnable processes per processor"
    if throttled:
        hot = "" if state.temperature_c is None else f" at {state.temperature_c:g} °C"
        yield f"throttled: {', '.join(throttled)}{hot}"
    clock, highest = state.clock_mhz, state.clock_max_mhz
    busy = state.utilization is not None and state.utilization >= _BUSY
    free = throttled == () and not _ASKED_FOR.intersection(state.event_reasons)
    if busy and free and clock is not None and highest and clock < _STUCK * highest:
        yield f"busy at {clock:g} of {highest:g} MHz without being throttled: its clock is stuck"
    limit, usual = state.power_limit_w, state.power_default_w
    if limit and usual and limit < usual:
        yield f"its power limit is set to {limit:g} of {usual:g} W"

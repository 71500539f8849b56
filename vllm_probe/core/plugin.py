"""The plug-in contract: what a vendor's folder or a third party's wheel gives."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.system import Host
from vllm_probe.core.values import Kind

API_VERSION = 1
ENTRY_POINT_GROUP = "vllm_probe.vendors"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found.

    Attributes:
        devices: every device of the vendor, usable or not.
        findings: what went wrong while looking.
        unknown: JSON pointer from the device list (`/0/memory/used_bytes`) to why the value is null.
    """

    devices: tuple[Device, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: dict[str, str] = field(default_factory=dict)


Probe: TypeAlias = Callable[[Host], ProbeResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Rows of the doctor's catalogue that one function decides.

    Attributes:
        ids: the rows it can report.
        run: findings for a host with these devices and this log text (empty when there is none), as a pure function.
    """

    ids: tuple[str, ...]
    run: Callable[[Host, tuple[Device, ...], str], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAccess:
    """What a container needs to see the vendor's devices.

    Attributes:
        nodes: device nodes or folders to pass in.
        groups_of: nodes, or patterns of them, whose numeric group the process must have.
        mounts: host paths to mount at the same place.
        env: environment variables to set.
        runtime: container runtime to name, null for the default.
        shares_ipc: whether the host's IPC namespace is needed.
        resources: what the vendor's device plugin for Kubernetes calls a device, by pattern of the architecture, the
            first that fits; `{driver}` in it is the kernel driver.
    """

    nodes: tuple[str, ...] = ()
    groups_of: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    runtime: str | None = None
    shares_ipc: bool = False
    resources: dict[str, str] = field(default_factory=dict)

    def resource(self, arch: str | None, driver: str = "") -> str | None:
        """What Kubernetes calls a device of architecture `arch` that `driver` runs; null where no plugin is known."""
        fitting = (name for pattern, name in self.resources.items() if fnmatchcase(arch or "", pattern))
        return next((name.format(driver=driver) for name in fitting), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorPlugin:
    """One vendor, as data; code is named by `package.module:object` strings and imported when needed.

    Attributes:
        api_version: contract version that it was written for.
        name: vendor name, equal to the folder or entry point name.
        device_types: words for `device_type`; the first is written, all are read.
        probe: a `Probe`.
        checks: a tuple of `Check`, or null.
        adapter: a `HardwareAdapter` class, or null.
        adapter_kinds: kinds of its devices that the adapter runs.
        pci_vendors: PCI vendor ids of its devices.
        signs: path patterns, or `system machine` as in `darwin aarch64`: where none of them holds and the bus shows no
            device of `pci_vendors`, the probe is not even imported. Null: it is always asked.
        container: what a container needs.
        requires: optional programs or libraries that make it see more.
        capabilities: package folder with descriptors, as `package:folder`, or null.
        health: a function of a `Host` that gives a `core.health.HealthReport` as JSON; it runs in a child process when
            a device is about to be used, and wakes none. Null: only detection tells the state of its devices.
    """

    api_version: int
    name: str
    device_types: tuple[str, ...]
    probe: str
    checks: str | None = None
    adapter: str | None = None
    adapter_kinds: tuple[Kind, ...] = ("cpu", "gpu", "igpu", "npu")
    pci_vendors: tuple[int, ...] = ()
    signs: tuple[str, ...] | None = None
    container: ContainerAccess = field(default_factory=ContainerAccess)
    requires: tuple[str, ...] = ()
    capabilities: str | None = None
    health: str | None = None

"""Layer 1: Level Zero, which decides whether a GPU can be used. A report in JSON, from a child process.

The report is `{"status": 0, "devices": [...]}`, with the status of zeInit. A device has its `ordinal`, which
torch.xpu and ZE_AFFINITY_MASK count by, and the values that Level Zero gave, or `silent`: why there are none, where it
hangs or crashes over the device; no context is made.
"""

from collections.abc import Callable
from ctypes import addressof, byref, c_uint32, c_void_p
from functools import partial
from typing import Any, TypeAlias

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.vendors.intel import structs

Record: TypeAlias = dict[str, Any]

NAME = "libze_loader.so.1"
_GPU_ONLY = 1  # ze_init_flag_t: without it the NPUs of Intel's processors are listed too
_MOST = 256  # devices; a count above is no count


def read(host: Host) -> Record:
    """What Level Zero says of the GPUs that this process may see.

    Raises:
        LibraryUnavailable: there is no loader.
    """
    library = host.library(NAME)
    status = library.call("zeInit", _GPU_ONLY)
    if status != 0:
        return {"status": status}
    handles = _handles(library)
    if handles is None:
        return {"status": 0}
    found = _devices(host, library, handles)
    gpus = [{"ordinal": ordinal, **device} for ordinal, device in enumerate(d for d in found if d.pop("gpu", True))]
    return {"status": 0, "devices": gpus}


def _handles(library: Library) -> list[tuple[c_void_p, c_void_p]] | None:
    """Drivers with their devices, null where the first function is missing, as in a recording by hand."""
    drivers = _list(partial(library.call, "zeDriverGet"))
    if drivers is None:
        return None
    return [
        (driver, device) for driver in drivers for device in _list(partial(library.call, "zeDeviceGet", driver)) or ()
    ]


def _list(call: Callable[[Any, Any], int]) -> list[c_void_p] | None:
    """Handles, asked for as Level Zero wants it: how many, then so many; null where there is no such function."""
    count = c_uint32()
    status = _status(lambda: call(byref(count), None))
    if status != 0 or not 0 < count.value <= _MOST:
        return None if status is None else []
    handles = (c_void_p * count.value)()
    if _status(lambda: call(byref(count), handles)) != 0:
        return []
    return [c_void_p(handle) for handle in handles[: count.value]]


def _devices(host: Host, library: Library, handles: list[tuple[c_void_p, c_void_p]]) -> list[Record]:
    """All addresses before the rest, so that one over which Level Zero hangs or crashes has its address."""
    places = [
        _part(host, f"asking for the address of device {number}", partial(_address, library, device))
        for number, (_, device) in enumerate(handles)
    ]
    return [
        place | _part(host, f"asking for device {number}", partial(_values, library, *handles[number]))
        if "silent" not in place
        else place
        for number, place in enumerate(places)
    ]


def _part(host: Host, name: str, ask: Callable[[], Record]) -> Record:
    try:
        return host.attempt(name, ask)
    except LibraryUnavailable as error:
        return {"silent": str(error)}


def _values(library: Library, driver: c_void_p, device: c_void_p) -> Record:
    properties = structs.DeviceProperties(stype=structs.DEVICE_PROPERTIES)
    known = _status(lambda: library.call("zeDeviceGetProperties", device, byref(properties))) == 0
    units = properties.numSlices * properties.numSubslicesPerSlice * properties.numEUsPerSubslice
    values: Record = {
        "name": properties.name.decode("utf-8", "replace").strip() or None,
        "device_id": properties.deviceId or None,
        "integrated": bool(properties.flags & structs.INTEGRATED) if properties.type else None,
        "compute_units": units or None,
        "clock_max_mhz": properties.coreClockRate or None,
        "largest_allocation_bytes": properties.maxMemAllocSize or None,
        "driver_version": _driver_version(library, driver),
        **_memory(library, device),
    }
    gpu = not known or properties.type in {0, structs.GPU}
    return {"gpu": gpu} | {name: value for name, value in values.items() if value is not None}


def _address(library: Library, device: c_void_p) -> Record:
    pci = structs.PciProperties(stype=structs.PCI_PROPERTIES)
    if _status(lambda: library.call("zeDevicePciGetPropertiesExt", device, byref(pci))) != 0:
        return {}
    found = (pci.domain, pci.bus, pci.device, pci.function)
    return {"id": f"{found[0]:04x}:{found[1]:02x}:{found[2]:02x}.{found[3]:x}"} if any(found) else {}


def _driver_version(library: Library, driver: c_void_p) -> int | None:
    properties = structs.DriverProperties(stype=structs.DRIVER_PROPERTIES)
    known = _status(lambda: library.call("zeDriverGetProperties", driver, byref(properties))) == 0
    return (properties.driverVersion or None) if known else None


def _memory(library: Library, device: c_void_p) -> Record:
    """What the driver lets a process have in all, and its bandwidth, which few drivers tell."""
    bandwidth = structs.MemoryExtProperties(stype=structs.MEMORY_EXT_PROPERTIES)
    properties = structs.MemoryProperties(stype=structs.MEMORY_PROPERTIES, pNext=addressof(bandwidth))
    count = c_uint32(1)
    name = "zeDeviceGetMemoryProperties"
    if _status(lambda: library.call(name, device, byref(count), byref(properties))) != 0:
        return {}
    told = bandwidth.bandwidthUnit == structs.BYTES_PER_NANOSECOND
    return {
        "memory": {"total": properties.totalSize} if properties.totalSize else None,
        "memory_bandwidth_gb_s": float(bandwidth.readBandwidth) if told and bandwidth.readBandwidth else None,
    }


def _status(call: Callable[[], int]) -> int | None:
    """Null where the library has no such function."""
    try:
        return call()
    except LibraryTimeout:
        raise
    except LibraryUnavailable:
        return None

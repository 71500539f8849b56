"""Layer 1: native libraries, each asked in a child process: `Host.isolated("vllm_probe.vendors.amd.lib:runtime")`."""

from collections.abc import Callable, Iterator
from ctypes import byref, c_uint32, c_uint64, c_void_p, create_string_buffer
from functools import partial
from importlib import import_module
from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.amd import printed

_RUNTIMES = ("libhsa-runtime64.so.1", "/opt/rocm/lib/libhsa-runtime64.so.1")
_WHEELS = ("torch/lib", "_rocm_sdk_core/lib")  # of https://download.pytorch.org/whl and https://github.com/ROCm/TheRock
_AMD_SMI = ("libamd_smi.so", "/opt/rocm/lib/libamd_smi.so")
_INIT_AMD_GPUS = 2  # AMDSMI_INIT_AMD_GPUS of amdsmi.h
_MOST = 256  # devices; a count above is no count
_ASIC_INFO_BYTES = 4096  # amdsmi_asic_info_t grows with the releases, from 0.5 to 1 KiB; its first field is the name
_NAME_BYTES = 128


def runtime(host: Host) -> dict[str, Any]:
    """`{"status", "path"}`: what `hsa_init` of the ROCm runtime gives, the system's or a wheel's; empty without one.

    Raises:
        LibraryUnavailable: it cannot be loaded, or lacks the function.
    """
    sites = host.platform().site_packages
    wheels = [path for site in sites for place in _WHEELS for path in host.glob(f"{site}/{place}/libhsa-runtime64.so*")]
    library = _first(host, (*_RUNTIMES, *wheels))
    if library is None:
        return {}
    status = library.call("hsa_init")
    if status == 0:
        _succeeds(library, "hsa_shut_down")
    return {"status": status, "path": library.path}


def names(host: Host) -> dict[str, Any]:
    """`{"status", "devices": [{"id", "name"}, ...]}` of libamd_smi, which knows the name of a card that shares its id.

    Structures of amdsmi.h that no release changed: the address, one number of 64 bits, and the beginning of the rest.

    Raises:
        LibraryUnavailable: it cannot be loaded, or lacks a function without which no card is found.
    """
    library = _first(host, _AMD_SMI)
    if library is None:
        return {"devices": []}
    status = library.call("amdsmi_init", c_uint64(_INIT_AMD_GPUS))
    if status:
        return {"status": status, "devices": []}
    try:
        handles = [handle for socket in _sockets(library) for handle in _processors(library, socket)]
        devices = [_named(host, library, number, handle) for number, handle in enumerate(handles)]
    finally:
        _part(host, "amdsmi_shut_down", lambda: {"done": _succeeds(library, "amdsmi_shut_down")})
    return {"status": 0, "devices": [device for device in devices if len(device) > 1]}


def live(host: Host) -> dict[str, Any]:
    """`{"devices": [...]}`: what pyamdgpuinfo reads now of each card; no value where it raises, hangs or crashes.

    Raises:
        LibraryUnavailable: it is not installed, finds no /dev/dri, or `host` is not the machine that it would read.
    """
    if not isinstance(host, LocalHost):
        raise LibraryUnavailable("pyamdgpuinfo reads no recording", hint="leave out --replay")
    try:
        module = import_module("pyamdgpuinfo")
        count = min(module.detect_gpus(), _MOST)
    except (ImportError, OSError, RuntimeError) as error:
        raise LibraryUnavailable(f"pyamdgpuinfo: {error}", hint="sysfs is read in its place") from error
    asked = {number: partial(_readings, module, number) for number in range(count)}
    return {"devices": [_part(host, f"asking for GPU {number}", ask) for number, ask in asked.items()]}


def _part(host: Host, name: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `ask` gives, nothing where the library hangs or crashes in it."""
    try:
        return host.attempt(name, ask)
    except LibraryUnavailable:
        return {}


def _readings(module: Any, number: int) -> dict[str, Any]:
    try:
        return dict(_values(module.get_gpu(number)))
    except (OSError, RuntimeError):
        return {}


def _values(card: Any) -> Iterator[tuple[str, Any]]:
    questions: dict[str, Callable[[], Any]] = {
        "id": lambda: card.pci_slot,
        "vram_used": lambda: int(card.query_vram_usage()),
        "gtt_used": lambda: int(card.query_gtt_usage()),
        "utilization": lambda: printed.percent(round(100 * card.query_load())),
        "temperature_c": lambda: printed.degrees(card.query_temperature()) or None,
        "power_w": lambda: printed.watts(card.query_power()),
        "core_clock_mhz": lambda: printed.megahertz(round(card.query_sclk() / 1e6)),
        "memory_clock_mhz": lambda: printed.megahertz(round(card.query_mclk() / 1e6)),
    }
    for name, ask in questions.items():
        try:
            value = ask()
        except (OSError, RuntimeError):
            continue
        if value is not None:
            yield name, value


def _first(host: Host, paths: tuple[str, ...]) -> Library | None:
    """The first of `paths` that can be loaded, null where none is there.

    Raises:
        LibraryUnavailable: none can be loaded, and one is there.
    """
    broken: LibraryUnavailable | None = None
    for path in paths:
        try:
            return host.library(path)
        except LibraryUnavailable as error:
            absent = str(error).startswith(f"{path}: cannot open shared object file: No such file")
            broken = broken or (None if absent else error)
    if broken:
        raise broken
    return None


def _sockets(library: Library) -> list[c_void_p]:
    count = c_uint32()
    if library.call("amdsmi_get_socket_handles", byref(count), None) or not 0 < count.value <= _MOST:
        return []
    handles = (c_void_p * count.value)()
    status = library.call("amdsmi_get_socket_handles", byref(count), handles)
    return [] if status else [c_void_p(handle) for handle in handles]


def _processors(library: Library, socket: c_void_p) -> list[c_void_p]:
    count = c_uint32()
    if library.call("amdsmi_get_processor_handles", socket, byref(count), None) or not 0 < count.value <= _MOST:
        return []
    handles = (c_void_p * count.value)()
    status = library.call("amdsmi_get_processor_handles", socket, byref(count), handles)
    return [] if status else [c_void_p(handle) for handle in handles]


def _named(host: Host, library: Library, number: int, handle: c_void_p) -> dict[str, str]:
    """One question that fails, hangs or crashes, or a function that is missing, costs its own answer only."""
    questions = {"address": partial(_address, library, handle), "name": partial(_name, library, handle)}
    device: dict[str, str] = {}
    for what, ask in questions.items():
        device |= _part(host, f"asking for the {what} of GPU {number}", ask)
    return device


def _address(library: Library, handle: c_void_p) -> dict[str, str]:
    place = c_uint64()
    if not _succeeds(library, "amdsmi_get_gpu_device_bdf", handle, byref(place)):
        return {}
    value = place.value
    return {"id": f"{value >> 16:04x}:{value >> 8 & 0xFF:02x}:{value >> 3 & 31:02x}.{value & 7}"}


def _name(library: Library, handle: c_void_p) -> dict[str, str]:
    info = create_string_buffer(_ASIC_INFO_BYTES)
    found = _succeeds(library, "amdsmi_get_gpu_asic_info", handle, info)
    name = printed.name(info.value[:_NAME_BYTES].decode("utf-8", "replace")) if found else None
    return {"name": name} if name else {}


def _succeeds(library: Library, symbol: str, *arguments: object) -> bool:
    try:
        return library.call(symbol, *arguments) == 0
    except LibraryTimeout:
        raise
    except LibraryUnavailable:
        return False

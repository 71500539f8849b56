"""Layer 1: the CUDA driver, which decides whether a device can be used. A report in JSON, from a child process.

The report is `{"status": 0, "version", "count", "devices": [...]}`, with the status of cuInit. No context is made.
"""

from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, create_string_buffer, sizeof
from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.vendors.nvidia.codes import cuda_version
from vllm_probe.vendors.nvidia.structs import Uuid

_NAMES = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "nvcuda.dll")
_MAJOR, _MINOR, _INTEGRATED, _COPY_ENGINES = 75, 76, 18, 40  # CUdevice_attribute
_MOST = 256  # devices; a count above is no count


def read(host: Host) -> dict[str, Any]:
    """What the CUDA driver says of itself and of the devices that this process may see, by their numbers in CUDA.

    Raises:
        LibraryUnavailable: there is none.
    """
    cuda = _load(host)
    status = cuda.call("cuInit", 0)
    if status != 0:
        return {"status": status}
    count = _number(lambda target: cuda.call("cuDeviceGetCount", target))
    return {
        "status": 0,
        "version": cuda_version(_number(lambda target: cuda.call("cuDriverGetVersion", target)) or 0),
        "count": count,
        "devices": [_device(cuda, ordinal) for ordinal in range(1 if count is None else min(count, _MOST))],
    }


def copy_engines(host: Host, ordinal: int) -> int | None:
    """Engines that copy beside the kernels of CUDA's device `ordinal`, once this process has initialised it."""
    try:
        cuda = _load(host)
        handle = _number(lambda target: cuda.call("cuDeviceGet", target, ordinal))
        return _attribute(cuda, "async_engine_count", _COPY_ENGINES, ordinal if handle is None else handle)
    except LibraryUnavailable:
        return None


def _load(host: Host) -> Library:
    try:
        return host.library(_NAMES[0])
    except LibraryUnavailable:
        for name in _NAMES[1:]:
            if host.exists(name) or (name.endswith(".dll") and host.platform().system == "windows"):
                return host.library(name)
        raise


def _device(cuda: Library, ordinal: int) -> dict[str, Any]:
    handle = _number(lambda target: cuda.call("cuDeviceGet", target, ordinal))
    device = ordinal if handle is None else handle
    found = {
        "ordinal": ordinal,
        "id": _address(cuda, device),
        "uuid": _uuid(cuda, device),
        "arch": _arch(cuda, device),
        "integrated": _attribute(cuda, "integrated", _INTEGRATED, device),
        "total": _total(cuda, device),
    }
    return {name: value for name, value in found.items() if value is not None}


def _arch(cuda: Library, device: int) -> str | None:
    major, minor = (_attribute(cuda, "", number, device) for number in (_MAJOR, _MINOR))
    if major is not None and minor is not None:
        return f"sm_{major}{minor}"
    both = _attribute(cuda, "compute_capability", 0, device)
    return None if both is None else f"sm_{both}"


def _attribute(cuda: Library, word: str, number: int, device: int) -> int | None:
    """An attribute by number; a recording by hand names it by `word`."""
    value = _number(lambda target: cuda.call("cuDeviceGetAttribute", target, number, device)) if number else None
    return _number(lambda target: cuda.call(word, target)) if value is None and word else value


def _address(cuda: Library, device: int) -> str | None:
    buffer = create_string_buffer(32)
    if _status(lambda: cuda.call("cuDeviceGetPCIBusId", buffer, sizeof(buffer), device)) != 0:
        return None
    return buffer.value.decode("ascii", "replace").lower() or None


def _uuid(cuda: Library, device: int) -> str | None:
    """Without the `GPU-` or `MIG-` that NVML writes before it."""
    found = Uuid()
    for symbol in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if _status(lambda symbol=symbol: cuda.call(symbol, byref(found), device)) == 0:  # type: ignore[misc]
            text = bytes(found.bytes).hex()
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return None


def _total(cuda: Library, device: int) -> int | None:
    """Bytes of its memory, without what the driver keeps for itself."""
    target = c_size_t()
    return (
        target.value or None if _status(lambda: cuda.call("cuDeviceTotalMem_v2", byref(target), device)) == 0 else None
    )


def _number(call: Callable[[Any], int]) -> int | None:
    target = c_int()
    return int(target.value) if _status(lambda: call(byref(target))) == 0 else None


def _status(call: Callable[[], int]) -> int | None:
    """Null where the library has no such function."""
    try:
        return call()
    except LibraryTimeout:
        raise
    except LibraryUnavailable:
        return None

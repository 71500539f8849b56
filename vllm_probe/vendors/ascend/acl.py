"""Layer 1: ACL of CANN, which torch_npu computes through; `Host.isolated("vllm_probe.vendors.ascend.acl:read")`.

Nothing is finalised: the child process ends, and what CANN does then can no longer cost the answer. aclInit and the
count of devices make no context. `memory` does, one device after the other, so it is asked only where
nothing else tells the memory.
"""

from collections.abc import Callable
from ctypes import byref, c_int32, c_int64, c_size_t, c_uint32
from functools import partial
from typing import Any, TypeAlias

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.vendors.ascend.codes import ACL_REPEATED
from vllm_probe.vendors.ascend.versions import cann_roots

Record: TypeAlias = dict[str, Any]

_NAME = "libascendcl.so"
_MOST = 64
_HBM, _DDR = 1, 0  # aclrtMemAttr
_CORES = {"cube_cores": 0, "vector_cores": 1, "l2_bytes": 2}
"""aclDeviceInfo of acl/acl_base.h."""


def read(host: Host) -> Record:
    """Whether ACL can be initialised, and the devices that ASCEND_RT_VISIBLE_DEVICES leaves, in its order.

    `status` is aclInit's, `count_status` that of counting, in whose place there are no `devices`; `script` is what
    CANN's libraries are found by where the loader did not find them.

    Raises:
        LibraryUnavailable: it cannot be loaded.
    """
    library, script = _load(host)
    report: Record = {"script": script} if script else {}
    status = _try(library, "aclInit", None)
    if status not in {None, 0, ACL_REPEATED}:
        return report | {"status": status}
    report["status"] = 0
    count = c_uint32()
    counted = _try(library, "aclrtGetDeviceCount", byref(count))
    if counted == 0:
        report["devices"] = [_of_device(host, library, _cores, device) for device in range(min(count.value, _MOST))]
    version = _version(library)
    return report | ({"version": version} if version else {}) | ({"count_status": counted} if counted else {})


def memory(host: Host) -> Record:
    """`{"devices": [...]}`: free and total bytes of each visible device, nothing where ACL does not tell.

    ACL writes free before total, leaves out what it reserves, and gives 0 and 0 with status 0 for a kind of memory that
    the chip does not have.

    Raises:
        LibraryUnavailable: ACL cannot be loaded.
    """
    library, _ = _load(host)
    _try(library, "aclInit", None)
    count = c_uint32()
    counted = _try(library, "aclrtGetDeviceCount", byref(count))
    number = min(count.value, _MOST) if counted == 0 else 0
    return {"devices": [_of_device(host, library, _sizes, device) for device in range(number)]}


def _of_device(host: Host, library: Library, ask: Callable[[Library, int], Record], device: int) -> Record:
    """What `ask` tells, nothing where ACL hangs or crashes over the device."""
    try:
        return host.attempt(f"asking for device {device}", partial(ask, library, device))
    except LibraryUnavailable:
        return {}


def _sizes(library: Library, device: int) -> Record:
    if _try(library, "aclrtSetDevice", device):
        return {}
    found: Record = {}
    for attribute in (_HBM, _DDR):
        free, total = c_size_t(), c_size_t()
        status = _try(library, "aclrtGetMemInfo", attribute, byref(free), byref(total))
        if status == 0 and total.value:
            found = {"free": min(free.value, total.value), "total": total.value}
            break
    return found


def _cores(library: Library, device: int) -> Record:
    found: Record = {}
    for name, number in _CORES.items():
        value = c_int64()
        if _try(library, "aclGetDeviceCapability", device, number, byref(value)) == 0 and value.value > 0:
            found[name] = value.value
    return found


def _version(library: Library) -> str | None:
    """Of the interface, which is older than CANN's own version."""
    numbers = [c_int32(), c_int32(), c_int32()]
    if _try(library, "aclrtGetVersion", *map(byref, numbers)) != 0 or not numbers[0].value:
        return None
    return ".".join(str(number.value) for number in numbers)


def _try(library: Library, symbol: str, *arguments: object) -> int | None:
    """Status, null where the library has no such function."""
    try:
        return library.call(symbol, *arguments)
    except LibraryTimeout:
        raise
    except LibraryUnavailable:
        return None


def _load(host: Host) -> tuple[Library, str | None]:
    """The library, and CANN's set_env.sh where only the full path finds it, because that was not read."""
    try:
        return host.library(_NAME), None
    except LibraryUnavailable as error:
        if not str(error).startswith(f"{_NAME}: cannot open shared object file: No such file"):
            raise
        for root in cann_roots(host):
            if host.exists(f"{root}/lib64/{_NAME}"):
                scripts = (f"{root}/set_env.sh", f"{root.removesuffix('/latest')}/set_env.sh")
                return host.library(f"{root}/lib64/{_NAME}"), next(filter(host.exists, scripts), scripts[-1])
        raise

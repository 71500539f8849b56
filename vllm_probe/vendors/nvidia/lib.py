"""Layer 1: NVML. A report in JSON, from a child process: `Host.isolated("vllm_probe.vendors.nvidia.lib:read")`.

The report is `{"status": 0, "driver", "cuda_version", "devices": [...]}`, with a `status` that is not 0 where NVML
cannot be initialised. A device has the values that NVML gave, `failed` (name of a value to the status in its place),
`status` where it has no handle, `silent` (why) where NVML hangs or crashes over it, and `parts`, its MIG instances,
which are devices too.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from ctypes import byref, c_int, c_void_p
from typing import Any

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.vendors.layer0 import asleep
from vllm_probe.vendors.nvidia import PLUGIN, smi
from vllm_probe.vendors.nvidia.bus import driven
from vllm_probe.vendors.nvidia.codes import NOT_FOUND, cuda_version, harmful, nvml_meaning
from vllm_probe.vendors.nvidia.facts import with_free
from vllm_probe.vendors.nvidia.nvml import NO_FUNCTION, Nvml, load
from vllm_probe.vendors.nvidia.questions import FIELDS, HEALTH, IDENTITY, OF_PART, PART, Question
from vllm_probe.vendors.platforms import DXG
from vllm_probe.vendors.status_library import Record, Refused, answers

_MOST = 256  # devices; a count above is no count
_LEAST_POINTER = 0x1000


def read(host: Host) -> Record:
    """Everything that is asked of NVML.

    Raises:
        LibraryUnavailable: there is none.
    """
    return _session(host, FIELDS)


def health(host: Host) -> Record:
    """What changes from moment to moment, by device id, with few questions and no context.

    Where there is no NVML, nvidia-smi tells it. A device has what is known of `free_bytes`, `used_bytes`, `processes`
    (pid, bytes, kind: compute or graphics), `compute_mode`, `event_reasons`, `throttled` (those that are harmful under
    load), `utilization`, `temperature_c`, `power_w`, `power_limit_w`, `power_default_w`, `sm_clock_mhz` and
    `sm_clock_max_mhz`, or `lost`: why it cannot be asked.

    Raises:
        LibraryUnavailable: there is neither, or asking would wake a GPU.
    """
    sleeping = asleep(host, PLUGIN)
    if sleeping:
        raise LibraryUnavailable(f"NVML was not asked, because that wakes {min(sleeping)}", hint="use the GPU first")
    try:
        report = _session(host, {name: FIELDS[name] for name in HEALTH})
    except LibraryUnavailable:
        report = _by_tool(host)
        if not (report["devices"] or report["status"]):
            raise
    if report["status"]:
        return {"lost": nvml_meaning(report["status"]).text, "devices": {}}
    named = {}
    for record in report["devices"]:
        id_ = device_id(host, record)
        named[id_] = _health(record)
        for part in record.get("parts", ()):
            named[f"{id_}/mig-{part.get('gpu_instance')}.{part.get('compute_instance')}"] = _health(part)
    return {"devices": named}


def device_id(host: Host, record: Record) -> str:
    """What the inventory calls the device of `record`."""
    if host.exists(DXG):
        return f"dxg:{record['index']}"
    return str(record.get("id") or (f"nvidia:{record['minor']}" if "minor" in record else "tegra:0"))


def _by_tool(host: Host) -> Record:
    tool = smi.read(host)
    return {"status": tool.get("status", 0), "devices": [{"index": i} | each for i, each in enumerate(tool["devices"])]}


def _health(record: Record) -> Record:
    if "status" in record or "silent" in record:
        return {"lost": record.get("silent") or nvml_meaning(record["status"]).text}
    kept = {name: record[name] for name in HEALTH if name in record and name not in {*IDENTITY, "memory", "mig"}}
    sizes = with_free(record.get("memory", {}))
    memory = {f"{name}_bytes": sizes[name] for name in ("free", "used") if name in sizes}
    throttled = {"throttled": harmful(record["event_reasons"])} if "event_reasons" in record else {}
    return kept | memory | throttled


def _session(host: Host, fields: dict[str, Question]) -> Record:
    nvml = Nvml(load(host))
    try:
        nvml.call("nvmlInit_v2 nvmlInit")
    except Refused as refused:
        return {"status": refused.status}
    report: Record = {"status": 0}
    try:
        report |= answers(
            {
                "driver": lambda: nvml.text("nvmlSystemGetDriverVersion"),
                "cuda_version": lambda: cuda_version(
                    nvml.number("nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetCudaDriverVersion", kind=c_int)
                ),
            }
        )
        return report | {"devices": _devices(nvml, host, fields)}
    finally:
        with suppress(LibraryUnavailable, Refused):
            host.attempt("nvmlShutdown", lambda: nvml.call("nvmlShutdown"))


def _devices(nvml: Nvml, host: Host, fields: dict[str, Question]) -> list[Record]:
    """By NVML's index, then the functions of the bus that NVML does not list and has a status for."""
    functions = [each.address for each in driven(host)]
    try:
        count = nvml.number("nvmlDeviceGetCount_v2 nvmlDeviceGetCount")
    except Refused as refused:
        if refused.status != NO_FUNCTION:
            return [{"id": address, "status": refused.status} for address in functions]
        count = max(len(functions), 1)
    found = [_device(nvml, host, index, fields) for index in range(min(count, _MOST))]
    claimed = {device.get("id") for device in found}
    for device, address in zip(found, functions, strict=False):
        if "id" not in device and address not in claimed and count == len(functions):  # both are in the bus's order
            device["id"] = address
    listed = {device.get("id") for device in found}
    return [*found, *(lost for each in functions if each not in listed for lost in _unlisted(nvml, host, each))]


def _device(nvml: Nvml, host: Host, index: int, fields: dict[str, Question]) -> Record:
    """Its address and the rest are apart, so that one over which NVML hangs or crashes is known by its address."""
    device, handle = {"index": index}, c_void_p()
    try:
        device |= host.attempt(f"asking for the address of GPU {index}", lambda: _identified(nvml, index, handle))
        if "status" in device:
            return device
        rest = {name: question for name, question in fields.items() if name not in IDENTITY}
        values = host.attempt(f"asking for GPU {index}", lambda: _filled(nvml, handle, rest))
    except LibraryUnavailable as error:
        return device | {"silent": str(error)}
    failed = device.get("failed", {}) | values.get("failed", {})
    return device | values | ({"failed": failed} if failed else {})


def _identified(nvml: Nvml, index: int, handle: c_void_p) -> Record:
    """Sets `handle`."""
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex", index, byref(handle))
    except Refused as refused:
        if refused.status != NO_FUNCTION:  # a recording by hand has values and no handles
            return {"status": refused.status}
    if 0 < (handle.value or 0) < _LEAST_POINTER:  # there the recording has a status where a handle is due
        return {"status": handle.value}
    device = answers({name: _asking(FIELDS[name], nvml, handle) for name in IDENTITY})
    place: Record = device.pop("pci", {})
    return device | place


def _filled(nvml: Nvml, handle: c_void_p, fields: dict[str, Question]) -> Record:
    device = answers({name: _asking(question, nvml, handle) for name, question in fields.items()})
    if device.get("mig"):
        device["parts"] = _parts(nvml, handle, fields)
    return device


def _asking(question: Question, nvml: Nvml, handle: c_void_p) -> Callable[[], Any]:
    return lambda: question(nvml, handle)


def _unlisted(nvml: Nvml, host: Host, address: str) -> Iterable[Record]:
    names = "nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetHandleByPciBusId"
    try:
        host.attempt(f"asking for {address}", lambda: nvml.call(names, address.encode(), byref(c_void_p())))
    except LibraryUnavailable as error:
        yield {"id": address, "silent": str(error)}
    except Refused as refused:
        if refused.status != NO_FUNCTION:
            yield {"id": address, "status": refused.status}


def _parts(nvml: Nvml, handle: c_void_p, fields: dict[str, Question]) -> list[Record]:
    """MIG instances; instance numbers have holes."""
    try:
        count = nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    except Refused:
        return []
    parts = []
    for number in range(count):
        part = c_void_p()
        try:
            nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number, byref(part))
        except Refused as refused:
            if refused.status == NOT_FOUND:
                continue
            break
        parts.append(_filled(nvml, part, {name: each for name, each in (fields | PART).items() if name in OF_PART}))
    return parts

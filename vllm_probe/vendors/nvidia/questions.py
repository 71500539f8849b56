"""What NVML is asked of a device: each question gives a value, or raises `Refused`."""

from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, TypeAlias, cast

from vllm_probe.vendors.nvidia import structs
from vllm_probe.vendors.nvidia.codes import COMPUTE_MODES, INSUFFICIENT_SIZE, NO_SIZE, VIRTUALIZATION, event_reasons
from vllm_probe.vendors.nvidia.nvml import NO_FUNCTION, Nvml
from vllm_probe.vendors.status_library import Record, Refused

Question: TypeAlias = Callable[[Nvml, c_void_p], Any]

_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_MOST_PROCESSES = 4096
_SM, _MEMORY = 1, 2  # nvmlClockType_t


def _memory(nvml: Nvml, handle: c_void_p) -> Record:
    newer = structs.MemoryV2(version=structs.MEMORY_V2)
    try:
        nvml.structure("nvmlDeviceGetMemoryInfo_v2", newer, handle)
    except Refused:
        newer.version = 0
    if newer.version == structs.MEMORY_V2 and newer.total:
        kept = {"reserved": newer.reserved} if newer.reserved else {}
        return {"total": newer.total, "free": newer.free, "used": newer.used, **kept}
    older = nvml.structure("nvmlDeviceGetMemoryInfo", structs.Memory(), handle)
    if not older.total:
        raise Refused(NO_SIZE)
    return {"total": older.total, "free": older.free, "used": older.used}


def _pci(nvml: Nvml, handle: c_void_p) -> Record:
    """Address and id; the text of NVML's own bus id has a domain of another width than the kernel's."""
    names = "nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo"
    found = nvml.structure(names, structs.PciInfo(), handle)
    vendor, number = found.pciDeviceId & 0xFFFF, found.pciDeviceId >> 16
    known = {"pci_id": f"{vendor:04x}:{number:04x}"} if vendor and number else {}
    return {"id": f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.0", **known}


def _arch(nvml: Nvml, handle: c_void_p) -> str:
    major, minor = c_int(), c_int()
    nvml.call("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
    return f"sm_{major.value}{minor.value}"


def _first(symbols: str, kind: Any = c_uint) -> Question:
    """The first of two numbers that a function writes."""

    def ask(nvml: Nvml, handle: c_void_p) -> int:
        first, second = kind(), kind()
        nvml.call(symbols, handle, byref(first), byref(second))
        return int(first.value)

    return ask


def _number(symbols: str, *arguments: int, kind: Any = c_uint) -> Question:
    return lambda nvml, handle: nvml.number(symbols, handle, *arguments, kind=kind)


def _flag(question: Question) -> Question:
    return lambda nvml, handle: bool(question(nvml, handle))


def _virtualization(nvml: Nvml, handle: c_void_p) -> str | None:
    mode = nvml.number("nvmlDeviceGetVirtualizationMode", handle)
    return VIRTUALIZATION[mode] if mode < len(VIRTUALIZATION) else None


def _watts(symbols: str) -> Question:
    return lambda nvml, handle: nvml.number(symbols, handle) / 1000


def _temperature(nvml: Nvml, handle: c_void_p) -> int:
    reading = structs.Temperature(version=structs.TEMPERATURE_V1)
    try:
        return int(nvml.structure("nvmlDeviceGetTemperatureV", reading, handle).temperature)
    except Refused:
        return nvml.number("nvmlDeviceGetTemperature", handle, 0)


def _event_reasons(nvml: Nvml, handle: c_void_p) -> list[str]:
    names = "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons"
    return event_reasons(nvml.number(names, handle, kind=c_ulonglong))


def _compute_mode(nvml: Nvml, handle: c_void_p) -> str | None:
    mode = nvml.number("nvmlDeviceGetComputeMode", handle)
    return COMPUTE_MODES[mode] if mode < len(COMPUTE_MODES) else None


def _processes(nvml: Nvml, handle: c_void_p) -> list[Record]:
    """Those that compute and those that draw, with what they hold where NVML tells it (not under Windows)."""
    found: dict[int, Record] = {}
    for kind in ("Compute", "Graphics"):
        try:
            rows = _running(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle)
        except Refused:
            if kind == "Compute":
                raise
            continue
        for row in rows:
            held = None if row.usedGpuMemory == structs.NOT_AVAILABLE else row.usedGpuMemory
            if row.pid:
                found.setdefault(row.pid, {"pid": row.pid, "bytes": held, "kind": kind.lower()})
    return list(found.values())


def _running(nvml: Nvml, name: str, handle: c_void_p) -> Sequence[Any]:
    for symbol, kind in ((f"{name}_v3", structs.Process), (f"{name}_v2", structs.Process), (name, structs.ProcessV1)):
        try:
            return _rows(nvml, symbol, handle, kind)
        except Refused as refused:
            if refused.status != NO_FUNCTION:
                raise
    raise Refused(NO_FUNCTION)


def _rows(nvml: Nvml, symbol: str, handle: c_void_p, kind: Any) -> Sequence[Any]:
    """Asks for the number first, with no room, and then for as many and a few that may start meanwhile."""
    count = c_uint(0)
    try:
        nvml.call(symbol, handle, byref(count), None)
    except Refused as refused:
        if refused.status != INSUFFICIENT_SIZE:
            raise
    if not count.value:
        return []
    count.value = min(count.value, _MOST_PROCESSES) + 8
    rows = (kind * count.value)()
    nvml.call(symbol, handle, byref(count), rows)
    return cast("Sequence[Any]", rows[: count.value])


def _nvlinks(nvml: Nvml, handle: c_void_p) -> list[str | None]:
    """The address at the other end of each link that is up, null where it is not told."""
    peers: list[str | None] = []
    for link in range(_LINKS):
        try:
            up = nvml.number("nvmlDeviceGetNvLinkState", handle, link)
        except Refused as refused:
            if link == 0:
                raise
            if refused.status:
                break
        else:
            if up:
                peers.append(_peer(nvml, handle, link))
    return peers


def _peer(nvml: Nvml, handle: c_void_p, link: int) -> str | None:
    found = structs.PciInfo()
    names = "nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkRemotePciInfo"
    try:
        nvml.call(names, handle, link, byref(found))
    except Refused:
        return None
    return f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.0"


def _licence(nvml: Nvml, handle: c_void_p) -> str | None:
    """`licensed` or `unlicensed` where NVML knows of a licence at all."""
    found = nvml.structure("nvmlDeviceGetGridLicensableFeatures_v4", structs.LicensableFeatures(), handle)
    rows = found.gridLicensableFeatures[: min(found.licensableFeaturesCount, 3)]
    if not found.isGridLicenseSupported or not rows:
        return None
    return "licensed" if any(row.featureEnabled for row in rows) else "unlicensed"


def _remapped(nvml: Nvml, handle: c_void_p) -> Record | None:
    """Memory rows that a reset will replace, or that no spare is left for; null where there are none."""
    words = ("corrected", "uncorrected", "pending", "failed")
    numbers = [c_uint() for _ in words]
    nvml.call("nvmlDeviceGetRemappedRows", handle, *map(byref, numbers))
    found = {word: number.value for word, number in zip(words, numbers, strict=True)}
    return found if any(found.values()) else None


def _attributes(nvml: Nvml, handle: c_void_p) -> int:
    names = "nvmlDeviceGetAttributes_v2 nvmlDeviceGetAttributes"
    return int(nvml.structure(names, structs.Attributes(), handle).multiprocessorCount)


def _utilization(nvml: Nvml, handle: c_void_p) -> int:
    return int(nvml.structure("nvmlDeviceGetUtilizationRates", structs.Utilization(), handle).gpu)


FIELDS: dict[str, Question] = {
    "pci": _pci,
    "name": lambda nvml, handle: nvml.text("nvmlDeviceGetName", handle),
    "uuid": lambda nvml, handle: nvml.text("nvmlDeviceGetUUID", handle),
    "minor": _number("nvmlDeviceGetMinorNumber"),
    "arch": _arch,
    "memory": _memory,
    "cores": _number("nvmlDeviceGetNumGpuCores"),
    "bus_width_bits": _number("nvmlDeviceGetMemoryBusWidth"),
    "sm_clock_mhz": _number("nvmlDeviceGetClockInfo", _SM),
    "sm_clock_max_mhz": _number("nvmlDeviceGetMaxClockInfo", _SM),
    "memory_clock_mhz": _number("nvmlDeviceGetClockInfo", _MEMORY),
    "memory_clock_max_mhz": _number("nvmlDeviceGetMaxClockInfo", _MEMORY),
    "event_reasons": _event_reasons,
    "power_w": _watts("nvmlDeviceGetPowerUsage"),
    "power_limit_w": _watts("nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetPowerManagementLimit"),
    "power_default_w": _watts("nvmlDeviceGetPowerManagementDefaultLimit"),
    "temperature_c": _temperature,
    "utilization": _utilization,
    "compute_mode": _compute_mode,
    "processes": _processes,
    "max_generation": _number("nvmlDeviceGetMaxPcieLinkGeneration"),
    "max_width": _number("nvmlDeviceGetMaxPcieLinkWidth"),
    "current_generation": _number("nvmlDeviceGetCurrPcieLinkGeneration"),
    "current_width": _number("nvmlDeviceGetCurrPcieLinkWidth"),
    "nvlinks": _nvlinks,
    "ecc": _flag(_first("nvmlDeviceGetEccMode")),
    "remapped_rows": _remapped,
    "mig": _flag(_first("nvmlDeviceGetMigMode")),
    "virtualization": _virtualization,
    "licence": _licence,
    "display_active": _flag(_number("nvmlDeviceGetDisplayActive")),
    "persistence": _flag(_number("nvmlDeviceGetPersistenceMode")),
}
PART: dict[str, Question] = {
    "gpu_instance": _number("nvmlDeviceGetGpuInstanceId"),
    "compute_instance": _number("nvmlDeviceGetComputeInstanceId"),
    "multiprocessors": _attributes,
}
OF_PART = {*PART, "name", "uuid", "memory", "processes"}
IDENTITY = ("pci", "minor")
HEALTH = (
    *(*IDENTITY, "memory", "processes", "compute_mode", "event_reasons", "utilization", "temperature_c", "power_w"),
    *("power_limit_w", "power_default_w", "sm_clock_mhz", "sm_clock_max_mhz", "mig"),
)

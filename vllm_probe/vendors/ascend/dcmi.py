"""DCMI as typed questions about a chip, which is named by its card and its number on it."""

from collections.abc import Callable
from ctypes import byref, c_int, c_uint, create_string_buffer, sizeof
from typing import Any, TypeAlias, cast

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.vendors.ascend import structs
from vllm_probe.vendors.ascend.codes import NO_FUNCTION
from vllm_probe.vendors.status_library import Refused, StatusLibrary

Place: TypeAlias = tuple[int, int]
"""Card and chip, as npu-smi's `-i` and `-c` take them."""

Question: TypeAlias = Callable[["Dcmi", Place], Any]

_NAME = "libdcmi.so"
_FOLDERS = ("/usr/local/dcmi", "/usr/local/Ascend/driver/lib64", "/usr/local/Ascend/driver/lib64/driver")
_MIB = 1 << 20
_MOST_PROCESSES, _MOST_DEVICES = 64, 1023
HEALTH = ("ok", "warning", "alarm", "critical")
"""Words of npu-smi for dcmi_get_device_health; 0xFFFFFFFF is a chip that was not started."""
_NOT_STARTED = 0xFFFFFFFF
_AICORE, _AICORE_NOW, _AICORE_MOST = 2, 7, 9  # DCMI_UTILIZATION_RATE_AICORE, enum dcmi_freq_type


class Dcmi(StatusLibrary):
    """DCMI."""

    no_function = NO_FUNCTION

    def text(self, symbols: str) -> str | None:
        """What the function writes to a buffer, null where that is empty."""
        buffer = create_string_buffer(64)
        self.call(symbols, buffer, sizeof(buffer))
        return _text(buffer.value)


def load(host: Host) -> Library:
    """DCMI of this machine.

    Raises:
        LibraryUnavailable: with what the loader says of its name.
    """
    try:
        return host.library(_NAME)
    except LibraryUnavailable:
        for folder in _FOLDERS:
            if host.exists(f"{folder}/{_NAME}"):
                return host.library(f"{folder}/{_NAME}")
        raise


def _chip(dcmi: Dcmi, place: Place) -> dict[str, Any]:
    """Names, and number of AI cores."""
    try:
        info = dcmi.structure("dcmi_get_device_chip_info_v2", structs.ChipInfoV2(), *place)
    except Refused:
        info = dcmi.structure("dcmi_get_device_chip_info", structs.ChipInfo(), *place)
    names = {"name": _text(info.chip_name), "npu_name": _text(getattr(info, "npu_name", b""))}
    return {key: value for key, value in names.items() if value} | ({"ai_cores": info.aicore_cnt or None})


def _pci(dcmi: Dcmi, place: Place) -> dict[str, Any]:
    try:
        info = dcmi.structure("dcmi_get_device_pcie_info_v2", structs.PcieInfoAll(), *place)
    except Refused as refused:
        if refused.status != NO_FUNCTION:
            raise
        info = dcmi.structure("dcmi_get_device_pcie_info", structs.PcieInfo(), *place)
    address = f"{getattr(info, 'domain', 0):04x}:{info.bdf_busid:02x}:{info.bdf_deviceid:02x}.{info.bdf_funcid:x}"
    return {"id": address, "pci_id": f"{info.venderid & 0xFFFF:04x}:{info.deviceid & 0xFFFF:04x}"}


def _memory(dcmi: Dcmi, place: Place) -> dict[str, Any] | None:
    """HBM, or on chips without it DDR, in bytes; null where DCMI has 0 for both."""
    try:
        hbm = dcmi.structure("dcmi_get_device_hbm_info", structs.HbmInfo(), *place)
    except Refused:
        hbm = structs.HbmInfo()
    if hbm.memory_size:
        found = {"total": hbm.memory_size * _MIB, "used": hbm.memory_usage * _MIB}
        return {"memory": found, "memory_type": "hbm", "memory_clock_mhz": hbm.freq or None}
    ddr = dcmi.structure("dcmi_get_device_memory_info_v3", structs.MemoryInfo(), *place)
    if not ddr.memory_size:
        return None
    used = max(ddr.memory_size - ddr.memory_available, 0)
    found = {"total": ddr.memory_size * _MIB, "used": used * _MIB}
    return {"memory": found, "memory_type": "ddr", "memory_clock_mhz": ddr.freq or None}


def _health(dcmi: Dcmi, place: Place) -> str | None:
    number = dcmi.number("dcmi_get_device_health", *place, kind=c_uint)
    if number == _NOT_STARTED:
        return "offline"
    return HEALTH[number] if number < len(HEALTH) else None


def _processes(dcmi: Dcmi, place: Place) -> list[dict[str, Any]]:
    rows, count = (structs.Process * _MOST_PROCESSES)(), c_int(_MOST_PROCESSES)
    dcmi.call("dcmi_get_device_resource_info", *place, rows, byref(count))
    found = cast("Any", rows[: max(min(count.value, _MOST_PROCESSES), 0)])
    return [
        {"pid": row.proc_id, "bytes": row.proc_mem_usage or None, "kind": "compute"} for row in found if row.proc_id > 0
    ]


def _percent(dcmi: Dcmi, place: Place) -> int | None:
    return _within(dcmi.number("dcmi_get_device_utilization_rate", *place, _AICORE, kind=c_uint), 0, 100)


def _celsius(dcmi: Dcmi, place: Place) -> int | None:
    """0 is a sensor without a reading, as in npu-smi, which asks DCMI."""
    return _within(dcmi.number("dcmi_get_device_temperature", *place), -99, 199) or None


def _watts(dcmi: Dcmi, place: Place) -> float | None:
    """DCMI counts tenths; the second chip of a card has 0."""
    tenths = _within(dcmi.number("dcmi_get_device_power_info", *place), 1, 99999)
    return tenths / 10 if tenths else None


def _clock(which: int) -> Question:
    return lambda dcmi, place: _within(dcmi.number("dcmi_get_device_frequency", *place, which, kind=c_uint), 1, 99999)


def _logic(dcmi: Dcmi, place: Place) -> int | None:
    logic = c_int()
    dcmi.call("dcmi_get_device_logic_id", byref(logic), *place)
    return _within(logic.value, 0, _MOST_DEVICES)


def _phy(dcmi: Dcmi, place: Place) -> int | None:
    """The number N of the chip's /dev/davinciN."""
    logic = _logic(dcmi, place)
    if logic is None:
        return None
    return _within(dcmi.number("dcmi_get_device_phyid_from_logicid", logic, kind=c_uint), 0, _MOST_DEVICES)


FIELDS: dict[str, Question] = {
    "chip_info": _chip,
    "pci": _pci,
    "memory_info": _memory,
    "health": _health,
    "logic": _logic,
    "phy": _phy,
    "utilization": _percent,
    "temperature_c": _celsius,
    "power_w": _watts,
    "aicore_clock_mhz": _clock(_AICORE_NOW),
    "aicore_clock_max_mhz": _clock(_AICORE_MOST),
    "processes": _processes,
}
LIVE = (
    *("pci", "memory_info", "health", "utilization", "temperature_c", "power_w", "aicore_clock_mhz"),
    *("aicore_clock_max_mhz", "processes", "phy"),
)


def _within(value: int, least: int, most: int) -> int | None:
    """`value`, or null where it stands for unknown."""
    return value if least <= value <= most else None


def _text(value: bytes) -> str | None:
    """Printable text without what DCMI puts for unknown."""
    found = value.split(b"\0")[0].decode("utf-8", "replace").strip()
    return found if found and found.isprintable() and found.upper() not in {"NA", "N/A", "-", "UNKNOWN"} else None

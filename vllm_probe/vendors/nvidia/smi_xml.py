"""`nvidia-smi -q -x`, of every schema from nvsmi_device_v10 to v13, in the form of NVML's report."""

import re
from typing import TYPE_CHECKING, Any

from vllm_probe.vendors.nvidia.codes import COMPUTE_MODES, EVENT_REASONS
from vllm_probe.vendors.nvidia.smi_words import gone, is_known, parse_address

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MIB, _END = 1 << 20, "</nvidia_smi_log>"
_REASONS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "application_clocks",
    "sw_power_cap": "power_cap",
    "hw_slowdown": "hardware_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "software_thermal",
    "hw_thermal_slowdown": "hardware_thermal",
    "hw_power_brake_slowdown": "power_brake",
    "display_clocks_setting": "display_clock",
}
_NUMBERS = {
    "minor": ("minor_number",),
    "utilization": ("utilization/gpu_util",),
    "temperature_c": ("temperature/gpu_temp",),
    "sm_clock_mhz": ("clocks/sm_clock",),
    "sm_clock_max_mhz": ("max_clocks/sm_clock",),
    "memory_clock_mhz": ("clocks/mem_clock",),
    "memory_clock_max_mhz": ("max_clocks/mem_clock",),
    "max_generation": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "current_generation": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "max_width": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "current_width": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
}
_WATTS = {
    "power_w": (
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    "power_limit_w": (
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        "power_readings/power_limit",
    ),
    "power_default_w": ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
}
_FLAGS = {
    "ecc": "ecc_mode/current_ecc",
    "mig": "mig_mode/current_mig",
    "display_active": "display_active",
    "persistence": "persistence_mode",
}
_VIRTUAL_MODE = "gpu_virtualization_mode/virtualization_mode"
_VIRTUALIZATION = {"None": "none", "Pass-Through": "passthrough", "VGPU": "vgpu", "Host VGPU": "vgpu_host"}


def parse_xml(text: str) -> dict[str, Any]:
    """Driver, CUDA version and the devices that are there, whatever `attached_gpus` says; none where it is no XML."""
    from xml.etree import ElementTree as ET

    start, end = text.find("<nvidia_smi_log"), text.find(_END)  # warnings stand around it
    try:
        root = ET.fromstring(text[max(start, 0) : end + len(_END) if end >= 0 else None])  # noqa: S314 - expat bounds entities, and no DTD is left
    except (ET.ParseError, ValueError):
        return {"devices": []}
    if root.tag != "nvidia_smi_log":
        return {"devices": []}
    report = {"driver": _text(root, "driver_version"), "cuda_version": _text(root, "cuda_version")}
    return _known(report) | {"devices": [_device(gpu) for gpu in root.findall("gpu")]}


def _device(gpu: "Element") -> dict[str, Any]:
    device: dict[str, Any] = {
        "id": parse_address(_text(gpu, "pci/pci_bus_id") or gpu.get("id") or ""),
        "pci_id": _pci_id(_text(gpu, "pci/pci_device_id")),
        "name": _text(gpu, "product_name"),
        "uuid": _text(gpu, "uuid"),
        "status": gone(*(gpu.findtext(path) or "" for path in ("product_name", "uuid", "fb_memory_usage/total"))),
        "memory": _memory(gpu),
        "event_reasons": _event_reasons(gpu),
        "compute_mode": _compute_mode(_text(gpu, "compute_mode")),
        "processes": _processes(gpu),
        "virtualization": _VIRTUALIZATION.get(_text(gpu, _VIRTUAL_MODE) or ""),
        "licence": _licence(gpu),
        "parts": [_known(_part(part)) for part in gpu.findall("mig_devices/mig_device")] or None,
    }
    device |= {name: _first(gpu, paths, int) for name, paths in _NUMBERS.items()}
    device |= {name: _first(gpu, paths, float) for name, paths in _WATTS.items()}
    device |= {name: {"Enabled": True, "Disabled": False}.get(_text(gpu, path) or "") for name, path in _FLAGS.items()}
    return _known(device)


def _part(part: "Element") -> dict[str, Any]:
    return {
        "gpu_instance": _first(part, ("gpu_instance_id",), int),
        "compute_instance": _first(part, ("compute_instance_id",), int),
        "multiprocessors": _first(part, ("device_attributes/shared/multiprocessor_count",), int),
        "memory": _memory(part),
    }


def _memory(element: "Element") -> dict[str, int] | None:
    words = ("total", "free", "used", "reserved")
    sizes = {word: _first(element, (f"fb_memory_usage/{word}",), int) for word in words}
    known = {word: size * _MIB for word, size in sizes.items() if size is not None}
    return known if known.get("total") else None


def _event_reasons(gpu: "Element") -> list[str] | None:
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        found = gpu.find(group)
        if found is not None and len(found):
            active = {
                _REASONS.get(row.tag.removeprefix(prefix)) for row in found if (row.text or "").strip() == "Active"
            }
            return [word for word, _ in EVENT_REASONS.values() if word in active]
    return None


def _processes(gpu: "Element") -> list[dict[str, Any]] | None:
    group = gpu.find("processes")
    if group is None or (group.text or "").strip() == "N/A":
        return None
    rows = []
    for row in group.findall("process_info"):
        pid, size = _first(row, ("pid",), int), _first(row, ("used_memory",), int)
        if pid:
            kind = "graphics" if _text(row, "type") == "G" else "compute"
            rows.append({"pid": pid, "bytes": None if size is None else size * _MIB, "kind": kind})
    return rows


def _licence(gpu: "Element") -> str | None:
    text = _text(gpu, "vgpu_software_licensed_product/license_status")
    return None if text is None else "licensed" if text.lower().startswith("licensed") else "unlicensed"


def _compute_mode(text: str | None) -> str | None:
    word = (text or "").lower().replace(" ", "_")
    return word if word in COMPUTE_MODES else None


def _pci_id(text: str | None) -> str | None:
    match = re.fullmatch(r"(?:0x)?([0-9A-Fa-f]{4})10[Dd][Ee]", text or "")
    return f"10de:{match[1].lower()}" if match else None


def _text(element: "Element", path: str) -> str | None:
    """Null where the tool writes one of its words for unknown."""
    found = (element.findtext(path) or "").strip()
    return found if is_known(found) or path == _VIRTUAL_MODE else None


def _first(element: "Element", paths: tuple[str, ...], kind: type[int | float]) -> Any:
    """The number at the first of `paths` that has one, without its unit."""
    for path in paths:
        match = re.match(r"(-?\d{1,15})(\.\d{1,6})?(?![\d.])", _text(element, path) or "")
        if match:
            return kind(match[0]) if kind is float else int(match[1])
    return None


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

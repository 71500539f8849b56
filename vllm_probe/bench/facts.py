"""What is looked up rather than timed, and the sheet on which each value stands with how it was obtained."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Measurement, Source, Status
from vllm_probe.core.device import Device
from vllm_probe.core.primitive import MemoryReading
from vllm_probe.core.values import JsonValue

_LANES = (("avx512", 16), ("avx2", 8), ("sse4_2", 4), ("neon", 4))
_MATRIX = ("amx", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "bf16", "i8mm", "sme")
_UNTOLD = "no source gives it"
_UNASKED = "neither the driver nor the adapter tells"
_HOST = "host memory is device memory"


@dataclass(slots=True)
class Sheet:
    """A capability document being written.

    Attributes:
        values: the document without its header.
        measurements: JSON pointer to how the value was obtained.
        unknown: JSON pointer to why there is no value.
    """

    values: dict[str, JsonValue] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def put(self, pointer: str, value: JsonValue, measurement: Measurement) -> None:
        """Writes `value`; null or empty is a gap, for the measurement's reason."""
        *path, key = pointer.split("/")[1:]
        place = self.values
        for part in path:
            place = place.setdefault(part, {})
        place[key] = value
        self.measurements[pointer] = measurement
        if value in (None, [], {}):
            self.unknown[pointer] = measurement.reason or ""
        else:
            self.unknown.pop(pointer, None)

    def fact(self, pointer: str, value: JsonValue, why: str = "", *, gap: str = _UNTOLD) -> None:
        """Writes a value that was looked up and `why` it holds, or the reason `gap` when there is none."""
        if value in (None, [], {}):
            self.put(pointer, value, Measurement(source="queried", status="skipped", reason=gap))
        else:
            source: Source = "derived" if why else "queried"
            self.put(pointer, value, Measurement(source=source, status="measured", reason=why or None))

    def gap(self, pointer: str, status: Status, reason: str, empty: JsonValue = None) -> None:
        """Says why there is no measured value."""
        self.put(pointer, empty, Measurement(source="measured", status=status, reason=reason))


def known_facts(adapter: HardwareAdapter[Any], unknown: Mapping[str, str]) -> Sheet:
    """All about the device of an open adapter that needs no timing.

    `unknown` tells why the probe left values of the device out, by JSON pointer from the device.
    """
    sheet, device = Sheet(), adapter.device
    reading, on_host = memory_of(adapter), device.kind == "cpu"
    _identity(sheet, device, adapter, unknown)
    sizes = {
        "total_bytes": (device.memory.reported_bytes or reading.total_bytes, "/memory/reported_bytes"),
        "usable_bytes": (device.memory.usable_bytes or reading.free_bytes, "/memory/usable_bytes"),
        "kind": (device.memory.kind, "/memory/kind"),
    }
    for name, (value, pointer) in sizes.items():
        sheet.fact(f"/memory/{name}", value, gap=unknown.get(pointer, _UNTOLD))
    sheet.fact("/memory/alignment_bytes", adapter.alignment_bytes)
    sheet.fact("/memory/managed_memory_supported", on_host or None, _HOST, gap=_UNASKED)
    caches: dict[str, int] = device.details.get("caches") or {}
    sheet.fact("/cache", dict(caches))
    for level, size in caches.items():
        sheet.fact(f"/cache/{level}", size)
    _groups(sheet, adapter)
    sheet.fact("/execution/memory_fence_scope", adapter.memory_fence_scope)
    return sheet


def memory_of(adapter: HardwareAdapter[Any]) -> MemoryReading:
    """Memory of the device, unknown where the adapter fails over it."""
    try:
        return adapter.memory()
    except Exception:  # noqa: BLE001 a value that cannot be looked up costs no measurement
        return MemoryReading(total_bytes=None, free_bytes=None)


def software_of(adapter: HardwareAdapter[Any]) -> dict[str, str]:
    """Versions below the adapter, none where it fails over them."""
    try:
        return adapter.software()
    except Exception:  # noqa: BLE001 a value that cannot be looked up costs no measurement
        return {}


def _identity(sheet: Sheet, device: Device, adapter: HardwareAdapter[Any], unknown: Mapping[str, str]) -> None:
    address, _, part = device.id.partition("/")
    on_host = device.kind == "cpu"
    for name in ("id", "vendor", "kind", "name", "arch"):
        sheet.fact(f"/device/{name}", getattr(device, name), gap=unknown.get(f"/{name}", _UNTOLD))
    sheet.fact("/device/also", [], gap="the document is of this device alone")
    no_driver = "a CPU has no driver" if on_host else _UNTOLD
    sheet.fact("/device/driver", device.driver, gap=unknown.get("/driver", no_driver))
    sheet.fact("/device/bus_ids", [] if on_host else [address], gap="a CPU is not on a bus")
    sheet.fact("/device/partition", part or None, gap="it is the whole device")
    sheet.fact("/device/num_units", adapter.num_units or device.details.get("threads"), gap=_UNASKED)
    sheet.fact("/device/torch", software_of(adapter).get("torch"), gap="measured without torch")


def _groups(sheet: Sheet, adapter: HardwareAdapter[Any]) -> None:
    """Group width as the adapter states it, else of a CPU: fp32 lanes of its vectors; SVE has a length of its own."""
    isa = adapter.device.details.get("isa") or []
    lanes = sorted({width for name, width in _LANES if name in isa})
    native, supported = (lanes[-1] if lanes and "sve" not in isa else None), lanes
    whys = ("fp32 lanes of the widest vectors", "fp32 lanes that code can be limited to")
    if adapter.native_group_width:
        native, supported = adapter.native_group_width, sorted(adapter.supported_group_widths)
        whys = ("", "") if supported else ("", "the native one, and no other is known")
    sheet.fact("/execution/group_width/native", native, whys[0], gap=_UNASKED)
    sheet.fact("/execution/group_width/supported", supported or [native][: bool(native)], whys[1], gap=_UNASKED)
    sheet.fact(
        "/execution/matrix_instructions", [name for name in isa if name.startswith(_MATRIX)], gap="none is known"
    )

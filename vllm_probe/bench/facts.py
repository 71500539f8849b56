"""What is looked up rather than timed, and the sheet on which each value stands with how it was obtained."""

from dataclasses import dataclass, field
from typing import Any

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Measurement, Source, Status
from vllm_probe.core.device import Device
from vllm_probe.core.values import JsonValue

_LANES = (("avx512", 16), ("avx2", 8), ("sse4_2", 4), ("neon", 4))
_MATRIX = ("amx", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "bf16", "i8mm", "sme")
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

    def fact(self, pointer: str, value: JsonValue, why: str = "", *, gap: str = "no source gives it") -> None:
        """Writes a value that was looked up and `why` it holds, or the reason `gap` when there is none."""
        if value in (None, [], {}):
            self.put(pointer, value, Measurement(source="queried", status="skipped", reason=gap))
        else:
            source: Source = "derived" if why else "queried"
            self.put(pointer, value, Measurement(source=source, status="measured", reason=why or None))

    def gap(self, pointer: str, status: Status, reason: str, empty: JsonValue = None) -> None:
        """Says why there is no measured value."""
        self.put(pointer, empty, Measurement(source="measured", status=status, reason=reason))


def known_facts(adapter: HardwareAdapter[Any]) -> Sheet:
    """All about the device of an open adapter that needs no timing."""
    sheet, device = Sheet(), adapter.device
    reading, on_host = adapter.memory(), device.kind == "cpu"
    _identity(sheet, device, adapter.software().get("torch"))
    sheet.fact("/memory/total_bytes", device.memory.reported_bytes or reading.total_bytes)
    sheet.fact("/memory/usable_bytes", device.memory.usable_bytes or reading.free_bytes)
    sheet.fact("/memory/kind", device.memory.kind)
    sheet.fact("/memory/alignment_bytes", adapter.alignment_bytes)
    sheet.fact("/memory/managed_memory_supported", on_host or None, _HOST, gap=_UNASKED)
    caches: dict[str, int] = device.details.get("caches") or {}
    sheet.fact("/cache", dict(caches))
    for level, size in caches.items():
        sheet.fact(f"/cache/{level}", size)
    _vectors(sheet, device.details.get("isa") or [])
    sheet.fact("/execution/memory_fence_scope", adapter.memory_fence_scope)
    return sheet


def _identity(sheet: Sheet, device: Device, torch: str | None) -> None:
    address, _, part = device.id.partition("/")
    on_host = device.kind == "cpu"
    for name in ("id", "vendor", "kind", "name", "arch"):
        sheet.fact(f"/device/{name}", getattr(device, name))
    sheet.fact("/device/also", [], gap="the document is of this device alone")
    sheet.fact("/device/driver", device.driver, gap="a CPU has no driver" if on_host else "no source gives it")
    sheet.fact("/device/bus_ids", [] if on_host else [address], gap="a CPU is not on a bus")
    sheet.fact("/device/partition", part or None, gap="it is the whole device")
    sheet.fact("/device/num_units", device.details.get("threads"))
    sheet.fact("/device/torch", torch, gap="measured without torch")


def _vectors(sheet: Sheet, isa: list[str]) -> None:
    """Group width of a CPU: fp32 lanes of its vector instructions; SVE has a length of its own."""
    lanes = sorted({width for name, width in _LANES if name in isa})
    native = lanes[-1] if lanes and "sve" not in isa else None
    sheet.fact("/execution/group_width/native", native, "fp32 lanes of the widest vectors")
    sheet.fact("/execution/group_width/supported", lanes or None, "fp32 lanes that code can be limited to")
    sheet.fact(
        "/execution/matrix_instructions", [name for name in isa if name.startswith(_MATRIX)], gap="none is known"
    )

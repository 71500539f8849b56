"""A capability document for a person: every value with how it was obtained."""

import re

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render.console import JUDGEMENT_STYLES, figure, heading, pairs, table
from vllm_probe.core.capability import Capability, Dma, Measurement
from vllm_probe.core.units import format_bytes

_ACCESSES = ("read_gb_s", "copy_gb_s", "triad_gb_s", "streaming_copy_gb_s", "cached_read_gb_s")
_RATE = "GOP/s"  # 1e9 operations a second, of floats or of integers
_ADDRESS = re.compile(r"\b((?:https?://)?(?:[a-z0-9-]+\.)+[a-z]{2,})/[^\s,;()]+")


def render(capability: Capability) -> Group:
    """Compute rates, the rate by rows, bandwidth and identity."""
    device = capability.device
    title = " ".join(filter(None, (device.id, device.name))) or "any device"
    parts: list[RenderableType] = [
        Text.assemble((title, "bold"), f", {capability.device_type}, {_made(capability)}"),
        heading("matrix product"),
        _compute(capability),
    ]
    if any(unit.curve for unit in capability.compute_units.values()):
        parts += [heading(f"matrix product by activation rows, {_RATE}"), _curves(capability)]
    parts += [heading("memory"), _bandwidth(capability), Text(), pairs(_facts(capability))]
    if any(_ADDRESS.search(about.reason or "") for about in capability.measurements.values()):
        parts.append(Text("addresses in full: --json", style="dim"))
    return Group(*parts)


def _made(capability: Capability) -> str:
    measured = f"measured {capability.created_at}" if capability.created_at else "written by hand"
    return f"schema {capability.schema_version}, {measured}"


def _compute(capability: Capability) -> RenderableType:
    rows = table("format", _RATE, "spread", "verdict", "how", right=(_RATE, "spread"))
    for dtype, unit in sorted(capability.compute_units.items(), key=lambda item: -(item[1].throughput_gflops or 0)):
        about = capability.measurements.get(f"/compute_units/{dtype}/throughput_gflops")
        rows.add_row(dtype, figure(unit.throughput_gflops), *_about(about))
    return rows


def _bandwidth(capability: Capability) -> RenderableType:
    rows = table("access", "GB/s", "spread", "verdict", "how", right=("GB/s", "spread"))
    values = {key: getattr(capability.memory, key) for key in (*_ACCESSES, "bandwidth_gb_s")}
    if values["bandwidth_gb_s"] in [values[key] for key in _ACCESSES if values[key] is not None]:
        del values["bandwidth_gb_s"]  # it repeats a row above
    for key, value in values.items():
        about = capability.measurements.get(f"/memory/{key}")
        if about or value is not None:
            rows.add_row(key.removesuffix("_gb_s"), figure(value), *_about(about))
    return rows


def _curves(capability: Capability) -> RenderableType:
    curves = {dtype: dict(unit.curve) for dtype, unit in capability.compute_units.items() if unit.curve}
    rows = table("rows", *curves, right=("rows", *curves))
    for count in sorted({count for curve in curves.values() for count in curve}):
        rows.add_row(str(count), *(figure(curve.get(count)) for curve in curves.values()))
    return rows


def _about(about: Measurement | None) -> tuple[str, Text, str]:
    if about is None:
        return "", Text("given", style="dim"), ""
    spread = "" if about.spread_pct is None else f"{about.spread_pct:.1f} %"
    word: str = about.status
    if about.status == "measured":
        word = about.verdict or ("measured" if about.source == "measured" else about.source)
    how = about.reason or about.implementation or about.source
    return spread, Text(word, style=JUDGEMENT_STYLES.get(word, "")), _ADDRESS.sub(r"\1/...", how)


def _facts(capability: Capability) -> list[tuple[str, RenderableType]]:
    memory, execution = capability.memory, capability.execution
    caches = ", ".join(f"{level} {format_bytes(size)}" for level, size in sorted(capability.cache.items()))
    capacity = "" if memory.total_bytes is None else format_bytes(memory.total_bytes)
    if memory.usable_bytes is not None:
        capacity = f"{format_bytes(memory.usable_bytes)} usable" + (f" of {capacity}" if capacity else "")
    facts = {
        "capacity": capacity or "not stated",
        "caches": caches,
        "alignment": f"{memory.alignment_bytes} bytes" if memory.alignment_bytes else "",
        "matrix instructions": ", ".join(execution.matrix_instructions),
        "fence scope": execution.memory_fence_scope or "",
        "transfers": _transfers(capability.dma),
    }
    return [(name, text) for name, text in facts.items() if text]


def _transfers(dma: Dma) -> str:
    """What is known of copy engines and of what to overlap on them."""
    engines, overlapped = dma.engine_count, dma.max_concurrent_transfers
    known = [
        *([f"{engines} copy engine" + "s" * (engines != 1)] if engines is not None else []),
        *([f"{overlapped} worth overlapping"] if overlapped is not None else []),
    ]
    return ", ".join(known)

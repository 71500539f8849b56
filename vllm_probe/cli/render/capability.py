"""A capability document for a person: every value with how it was obtained."""

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render.console import JUDGEMENT_STYLES, figure, heading, pairs, table
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.units import format_bytes

_ACCESSES = ("read_gb_s", "copy_gb_s", "triad_gb_s", "streaming_copy_gb_s", "cached_read_gb_s")


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
        parts += [heading("matrix product by activation rows, GFLOP/s"), _curves(capability)]
    parts += [heading("memory"), _bandwidth(capability), Text(), pairs(_facts(capability))]
    return Group(*parts)


def _made(capability: Capability) -> str:
    measured = f"measured {capability.created_at}" if capability.created_at else "written by hand"
    return f"schema {capability.schema_version}, {measured}"


def _compute(capability: Capability) -> RenderableType:
    rows = table("format", "GFLOP/s", "spread", "verdict", "how", right=("GFLOP/s", "spread"))
    for dtype, unit in sorted(capability.compute_units.items(), key=lambda item: -(item[1].throughput_gflops or 0)):
        about = capability.measurements.get(f"/compute_units/{dtype}/throughput_gflops")
        rows.add_row(dtype, figure(unit.throughput_gflops), *_about(about))
    return rows


def _bandwidth(capability: Capability) -> RenderableType:
    rows = table("access", "GB/s", "spread", "verdict", "how", right=("GB/s", "spread"))
    values = {key: getattr(capability.memory, key) for key in (*_ACCESSES, "bandwidth_gb_s")}
    if any(values[key] for key in _ACCESSES):
        del values["bandwidth_gb_s"]  # it repeats one of them
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
    return (
        spread,
        Text(word, style=JUDGEMENT_STYLES.get(word, "")),
        about.reason or about.implementation or about.source,
    )


def _facts(capability: Capability) -> list[tuple[str, RenderableType]]:
    memory, execution = capability.memory, capability.execution
    caches = ", ".join(f"{level} {format_bytes(size)}" for level, size in sorted(capability.cache.items()))
    facts = {
        "capacity": f"{format_bytes(memory.usable_bytes)} usable of {format_bytes(memory.total_bytes)}",
        "caches": caches,
        "alignment": f"{memory.alignment_bytes} bytes" if memory.alignment_bytes else "",
        "matrix instructions": ", ".join(execution.matrix_instructions),
        "fence scope": execution.memory_fence_scope or "",
        "transfers": f"{capability.dma.max_concurrent_transfers} worth overlapping"
        if capability.dma.engine_count
        else "",
    }
    return [(name, text) for name, text in facts.items() if text]

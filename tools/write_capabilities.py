"""Writes the documents of capabilities/ that no machine measured, and the page that lists all.

`--check` fails when one is stale.

tools/capabilities.toml is the source. Its keys:
    like: the family whose keys a device, or a family, starts from.
    sheet, part: what stands for `{sheet}` and `{part}` in a reason.
    units, clock_ghz, ops: number and name of the units that multiply, their clock, and what one of them does in a cycle
        by format, a multiply-add counted as two. The rates follow, to 0.1 TFLOP/s.
    rate: by format what stands before and after the formula (`note`, `then`), a published rate in its place (`is`,
        `why`) and its clock where that is another, or why there is none (`gap`).
    a JSON pointer: a value (`is`), where it is from (datasheet unless `from` says otherwise) and its reason (`why`), or
        why there is none (`gap`). A bare value tells which device it is.
    confidence, status, method: as in the document.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_probe.core.capability import (
    Capability,
    ComputeUnit,
    Dma,
    Execution,
    Measurement,
    MemoryCapability,
    WeightOnly,
)
from vllm_probe.core.codec import dumps, join, to_json
from vllm_probe.core.files import read_json
from vllm_probe.core.values import COMPUTE_DTYPES, JsonValue

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "capabilities.toml"
FOLDER = ROOT / "capabilities"
PAGE = ROOT / "docs" / "reference" / "descriptors.md"
HEADER = """# Descriptors

The capability documents that are shipped. `vllm-probe capability show NAME` prints one, each value with its source and
each gap with its reason; `vllm-probe negotiate --model M --capability NAME` shows the config that it gives.

Rates are theoretical peaks in TFLOP/s (int8: TOP/s): dense, never with sparsity, a multiply-add counted as two. What
accumulates in fp32, and the rate that third parties reached, stands in the document. Memory is in GiB, bandwidth in 1e9
bytes per second. A dash is a format that the device does not have, or a value that no source gives. A document is of
what torch sees as one device: one of the two dies of an MI250X, a Max 1550 or an Ascend 910C, not the card.

| document | device | memory | GB/s | fp32 | bf16 | fp8 | int8 | source |
|---|---|--:|--:|--:|--:|--:|--:|---|
"""

_KIND = "this document describes a kind of device, not one of them"
_BENCH = "no measurement was published with its method: run `vllm-probe bench`"
_DRIVER = "a driver tells it: run `vllm-probe bench`"
_NOWHERE = ("datasheet", "no source gives it")
_GAPS = {
    **dict.fromkeys(
        ("max_threads", "usable_bytes", "engine_count", "managed_memory_supported", "memory_fence_scope"),
        ("queried", _DRIVER),
    ),
    **dict.fromkeys(("bus_ids", "driver", "id", "torch"), ("datasheet", _KIND)),
    **dict.fromkeys(("cache", "total_bytes", "throughput_gflops", "num_units"), _NOWHERE),
    "also": ("datasheet", "no other name of it is known"),
    "partition": ("datasheet", "it is the whole card"),
    "alignment_bytes": ("datasheet", "no source gives it: negotiate takes what its device type needs"),
}
_INT4 = "both operands int4; weights alone in int4 are multiplied in a wider format and do not reach it"
_UNITS = {"_gflops": "GFLOP/s", "_gb_s": "GB/s", "_bytes": "bytes", "_us": "us"}


def devices() -> dict[str, dict[str, Any]]:
    """Name of each document to what the table says of its device, families included."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: _inherited(entry, table["family"]) for name, entry in table["device"].items()}


def document(device: dict[str, Any]) -> JsonValue:
    """The capability document of one device: every value has a source, every gap a reason."""
    facts = {**{key: fact for key, fact in device.items() if key.startswith("/")}, **_rates(device)}
    value: Any = to_json(_skeleton(device["device_type"]))
    for pointer, fact in facts.items():
        _place(value, pointer, fact.get("is") if isinstance(fact, dict) else fact)
    places = {"sheet": device["sheet"], "part": device["part"]}
    notes = {pointer: _note(pointer, facts.get(pointer, {}), places) for pointer in _leaves(value)}
    if stray := facts.keys() - notes.keys():
        raise KeyError(f"{device['/device/name']}: a document has no {sorted(stray)}")
    value["measurements"] = {pointer: to_json(note) for pointer, note in notes.items()}
    value["unknown"] = {pointer: note.reason for pointer, note in notes.items() if note.status != "measured"} | {
        f"/{key}": "compiled from published sources, not measured by this tool"
        for key in ("created_at", "host_fingerprint", "tool_version")
    }
    return value


def page() -> str:
    """The table of all documents in capabilities/, measured ones included."""
    table, lines = devices(), []
    for path in sorted(FOLDER.glob("*.capability.json")):
        name, value = path.name.removesuffix(".capability.json"), read_json(path)
        memory, rates = value["memory"], value["compute_units"]
        total = f"{memory['total_bytes'] / (1 << 30):.4g}" if memory["total_bytes"] else "-"
        tera = [(rates[word]["throughput_gflops"] or 0) / 1000 for word in ("fp32", "bf16", "fp8_e4m3", "int8")]
        cells = [total, *(f"{rate:.4g}" if rate else "-" for rate in (memory["bandwidth_gb_s"], *tera))]
        source = table[name]["sheet"] if name in table else "measured with `vllm-probe bench`"
        lines.append(f"| `{name}` | {' | '.join([value['device']['name'], *cells, source])} |\n")
    return HEADER + "".join(lines)


def _inherited(entry: dict[str, Any], families: dict[str, Any]) -> dict[str, Any]:
    base = _inherited(families[entry["like"]], families) if "like" in entry else {"ops": {}, "rate": {}}
    rate = {word: base["rate"].get(word, {}) | entry.get("rate", {}).get(word, {}) for word in COMPUTE_DTYPES}
    return base | entry | {"ops": base["ops"] | entry.get("ops", {}), "rate": rate}


def _skeleton(device_type: str) -> Capability:
    return Capability(
        schema_version="2.0",
        device_type=device_type,
        compute_units={word: ComputeUnit() for word in COMPUTE_DTYPES},
        memory=MemoryCapability(),
        dma=Dma(),
        weight_only={"int4": WeightOnly(), "int8": WeightOnly()},
        execution=Execution(group_width={"native": None, "optimal": None, "supported": None}),
    )


def _rates(device: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Pointer to the fact of each rate, and of what else a format that the device does not have leaves open."""
    facts: dict[str, dict[str, Any]] = {}
    for word in COMPUTE_DTYPES:
        rate, unit = device["rate"][word], f"/compute_units/{word}"
        if "gap" in rate:
            absent = {"status": "unsupported", **rate}
            facts[f"{unit}/throughput_gflops"] = absent
            if absent["status"] == "unsupported":
                facts |= {f"{unit}/{key}": {**absent, "from": "measured"} for key in ("curve", "sustained_gflops")}
        elif "is" in rate or word in device["ops"]:
            facts[f"{unit}/throughput_gflops"] = _rate(word, rate, device)
    return facts


def _rate(word: str, rate: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    why = rate.get("why", "{sheet}")
    clock = rate.get("clock_ghz", device.get("clock_ghz"))
    fact = {"from": "datasheet", "method": "2 operations a multiply-add, theoretical peak", **rate}
    fact["clock_mhz"] = clock and 1000 * clock
    if "why" not in rate and word in device["ops"]:
        (count, name), ops = device["units"], device["ops"][word]
        why = f"{count} {name} x {clock} GHz x {ops} operations"
        fact |= {"from": "derived", "is": rate.get("is") or round(count * clock * ops / 100) * 100}
    note = rate.get("note", _INT4 if word == "int4" else "")
    return {**fact, "why": "dense, " + "; ".join(filter(None, (note, why, "{part}", rate.get("then"))))}


def _place(value: Any, pointer: str, fact: JsonValue) -> None:
    """Sets `fact` at `pointer`; null leaves what stands there."""
    *path, last = pointer.split("/")[1:]
    for key in path:
        value = value[key]
    if fact is not None:
        value[last] = fact


def _leaves(value: JsonValue, pointer: str = "") -> Iterator[str]:
    """Pointers of the values and gaps, the header and the notes left out."""
    for key, item in value.items():
        at = join(pointer, key)
        if isinstance(item, dict) and item:
            yield from _leaves(item, at)
        elif pointer or key in {"cache", "primitives"}:
            yield at


def _note(pointer: str, fact: Any, places: dict[str, str]) -> Measurement:
    stated = fact if isinstance(fact, dict) else {"is": fact, "why": "which device this document describes"}
    source, gap = _GAPS.get(pointer.rpartition("/")[2], ("measured", _BENCH))
    has_value = "is" in stated
    return Measurement(
        source=stated.get("from", "datasheet" if has_value else source),
        status=stated.get("status", "measured" if has_value else "skipped"),
        reason=stated.get("why" if has_value else "gap", gap).format_map(places),
        confidence=stated.get("confidence"),
        method=stated.get("method"),
        clock_mhz=stated.get("clock_mhz"),
        unit=_unit(pointer),
    )


def _unit(pointer: str) -> str | None:
    if pointer.startswith("/cache/"):
        return "bytes"
    return next((unit for ending, unit in _UNITS.items() if pointer.endswith(ending)), None)


def main() -> int:
    """Exit status: 1 when `--check` found a stale file."""
    texts = {
        FOLDER / f"{name}.capability.json": lambda device=device: dumps(document(device))
        for name, device in devices().items()
    }
    stale = 0
    for path, text in (*texts.items(), (PAGE, page)):
        if "--check" not in sys.argv:
            path.write_text(text(), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text():
            sys.stderr.write(f"{path} is stale: run `python tools/write_capabilities.py`\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())

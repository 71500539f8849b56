"""The descriptors on the search path, place by place."""

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vllm_probe.cli.render.console import figure, heading, table
from vllm_probe.core.units import format_bytes
from vllm_probe.vendors.listing import Descriptor

_RATES = {"fp32": ("fp32",), "16-bit": ("bf16", "fp16"), "int8": ("int8",)}
_NOTE = "\nfp32, 16-bit and int8 in TFLOP/s or TOPS; `vllm-probe capability show NAME` has all of one"


def render(found: tuple[Descriptor, ...]) -> Group:
    """What each describes and says, in the order of the search."""
    parts: list[RenderableType] = []
    for place, group in groupby(found, key=lambda each: each.place):
        parts += [heading(place), _rows(group)]
    return Group(*parts, Text(_NOTE))


def _rows(group: Iterable[Descriptor]) -> Table:
    rows = table("name", "device", "memory", "GB/s", *_RATES, "serves", right=("memory", "GB/s", *_RATES))
    rows.columns[0].no_wrap = True
    for each in group:
        if each.error:
            rows.add_row(each.name, Text(f"not read: {each.error}", style="red"))
            continue
        rates = [max((each.gflops.get(word, 0) for word in words), default=0) for words in _RATES.values()]
        kind = ", ".join(filter(None, (each.device_type, each.arch)))
        rows.add_row(
            Text(each.name, style="bold green" if each.serves else ""),
            Text.assemble(each.device or "any", (f"\n{kind}", "dim")),
            format_bytes(each.memory_bytes) if each.memory_bytes else "",
            figure(each.bandwidth_gb_s),
            *(figure(rate / 1000 or None) for rate in rates),
            ", ".join(each.serves),
        )
    return rows

"""The search for a descriptor, step by step."""

from rich.console import Group
from rich.text import Text

from vllm_probe.cli.render.console import table
from vllm_probe.core.device import Device
from vllm_probe.vendors.descriptors import SearchResult


def render(device: Device, results: tuple[SearchResult, ...]) -> Group:
    """Where was looked, in order, and the one that is used."""
    rows = table("place", "path", "")
    for found in results:
        style = "bold green" if found.used else "dim"
        rows.add_row(found.place.name, str(found.path), Text("used: " * found.used + found.reason, style=style))
    used = any(found.used for found in results)
    note = "" if used else "none describes it: `vllm-probe bench` measures it and keeps the result"
    return Group(Text(f"descriptors for {device.id} ({device.name or device.vendor})", style="bold"), rows, Text(note))

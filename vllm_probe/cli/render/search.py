"""The search for a descriptor, step by step."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from rich.console import Group
from rich.text import Text

from vllm_probe.cli.render.console import table
from vllm_probe.core.device import Device
from vllm_probe.vendors.descriptors import SearchResult

_OTHER_TYPE = re.compile(r"is for device type (\S+), not \S+")


def render(device: Device, results: tuple[SearchResult, ...]) -> Group:
    """Where was looked, in order, and the one that is used; those for other device types are counted by place."""
    rows, counted = table("place", "path", ""), False
    for place, group in groupby(results, key=lambda found: found.place):
        found = list(group)
        others = [match[1] for each in found if (match := _OTHER_TYPE.fullmatch(each.reason))]
        for each in found:
            if not _OTHER_TYPE.fullmatch(each.reason):
                style = "bold green" if each.used else "dim"
                rows.add_row(place.name, str(each.path), Text("used: " * each.used + each.reason, style=style))
        if others:
            rows.add_row(place.name, str(place.path), Text(_counted(others), style="dim"))
            counted = True
    notes = (
        []
        if any(found.used for found in results)
        else ["none describes it: `vllm-probe bench` measures it and keeps the result"]
    )
    if counted:
        notes.append("`vllm-probe capability list` shows those for other device types")
    return Group(
        Text(f"descriptors for {device.id} ({device.name or device.vendor})", style="bold"), rows, *map(Text, notes)
    )


def _counted(types: Iterable[str]) -> str:
    counts = sorted(Counter(types).items())
    return "for other device types: " + ", ".join(f"{count} {name}" for name, count in counts)

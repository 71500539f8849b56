"""Vendor plug-ins for a person."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vllm_probe.cli.render.console import table
from vllm_probe.core.plugin import VendorPlugin
from vllm_probe.vendors.plugins import RefusedPlugin

_LEGEND = """
An adapter that derives from TorchAdapter can serve; any other can be benched, checked and negotiated for.
Without one, devices are detected and diagnosed only."""


def render(loaded: tuple[VendorPlugin, ...], refused: tuple[RefusedPlugin, ...]) -> Group:
    """Loaded plug-ins by name with what they bring, then refused ones with the reason."""
    rows = table("plug-in", "device types", "adapter", "state")
    for plugin in sorted(loaded, key=lambda each: each.name):
        adapter = (plugin.adapter or "none").rpartition(":")[2]
        rows.add_row(plugin.name, ", ".join(plugin.device_types), adapter, Text("loaded", style="green"))
    return Group(rows, *((Text(), _refused(refused)) if refused else ()), Text(_LEGEND, style="dim"))


def _refused(refused: tuple[RefusedPlugin, ...]) -> Table:
    rows = table("refused", "from", "why")
    for plugin in refused:
        rows.add_row(Text(plugin.name, style="bold red"), plugin.distribution, plugin.reason)
    return rows

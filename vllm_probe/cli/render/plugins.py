"""Vendor plug-ins for a person."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vllm_probe.cli.render.console import table
from vllm_probe.core.plugin import VendorPlugin
from vllm_probe.vendors.plugins import RefusedPlugin


def render(loaded: tuple[VendorPlugin, ...], refused: tuple[RefusedPlugin, ...]) -> Group:
    """Loaded plug-ins with what they bring, then refused ones with the reason."""
    rows = table("plug-in", "device types", "adapter", "state")
    for plugin in loaded:
        adapter = (plugin.adapter or "none").rpartition(":")[2]
        rows.add_row(plugin.name, ", ".join(plugin.device_types), adapter, Text("loaded", style="green"))
    return Group(rows, Text(), _refused(refused)) if refused else Group(rows)


def _refused(refused: tuple[RefusedPlugin, ...]) -> Table:
    rows = table("refused", "from", "why")
    for plugin in refused:
        rows.add_row(Text(plugin.name, style="bold red"), plugin.distribution, plugin.reason)
    return rows

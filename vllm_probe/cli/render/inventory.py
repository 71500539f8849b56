"""The document of `detect` for a person."""

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render import findings
from vllm_probe.cli.render.console import heading, pairs, table, verdict
from vllm_probe.core.device import Device, DeviceMemory, Inventory
from vllm_probe.core.units import format_bytes


def render(found: Inventory) -> Group:
    """Devices with their verdicts, who would take which, the software, and what is not known."""
    devices = table("device", "name", "arch", "memory", "verdict")
    for device in found.devices:
        devices.add_row(device.id, _name(device), device.arch or "?", _memory(device.memory), verdict(device.verdict))
    parts: list[RenderableType] = [
        devices,
        Text(),
        pairs(
            [
                ("vllm-probe takes", f"{found.picked.id or 'none'}: {found.picked.reason}"),
                ("vLLM would take", f"{found.vllm_pick.id or 'none'}: {found.vllm_pick.reason}"),
                ("software", _software(found)),
            ]
        ),
    ]
    if found.findings:
        parts += [findings.render(found.findings)]
    if found.unknown:
        parts += [
            heading("not known"),
            pairs((pointer, Text(why, style="dim")) for pointer, why in found.unknown.items()),
        ]
    return Group(*parts)


def _name(device: Device) -> str:
    facts = device.details
    parts = [device.name or "?"]
    if cores := facts.get("physical_cores"):
        parts.append(f"{cores} cores, {facts.get('threads') or '?'} threads to use")
    served = f"adapter {device.adapter or 'none'}, descriptor {device.descriptor or 'none'}"
    return "\n".join([*parts, served])


def _memory(memory: DeviceMemory) -> str:
    total = f"of {format_bytes(memory.reported_bytes)} {memory.kind or ''}".rstrip()
    return f"{format_bytes(memory.usable_bytes)} usable\n{total}"


def _software(found: Inventory) -> str:
    software = found.software
    installed = [f"{name} {value}" for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if value]
    absent = [name for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if not value]
    parts = [found.platform, f"kernel {software.kernel or '?'}", f"Python {software.python or '?'}", *installed]
    parts += [f"no {name}" for name in absent]
    return ", ".join([*parts, *([f"in {software.container}"] if software.container else [])])

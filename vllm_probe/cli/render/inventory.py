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
    served = [
        (f"{device.id} is served by", f"adapter {device.adapter or 'none'}, descriptor {device.descriptor or 'none'}")
        for device in found.devices
    ]
    parts: list[RenderableType] = [
        devices,
        Text(),
        pairs(
            [
                ("vllm-probe takes", f"{found.picked.id or 'none'}: {found.picked.reason}"),
                ("vLLM would take", f"{found.vllm_pick.id or 'none'}: {found.vllm_pick.reason}"),
                *served,
                ("software", _software(found)),
            ]
        ),
    ]
    if found.findings:
        parts += [findings.render(found.findings)]
    if found.unknown:
        parts += [heading("not known"), pairs(_unknown(found), "dim")]
    return Group(*parts)


def _name(device: Device) -> str:
    cores, threads = device.details.get("physical_cores"), device.details.get("threads")
    return f"{device.name or '?'}\n{cores} cores, {threads or '?'} threads" if cores else device.name or "?"


def _memory(memory: DeviceMemory) -> str:
    total = f"of {format_bytes(memory.reported_bytes)} {memory.kind or ''}".rstrip()
    return f"{format_bytes(memory.usable_bytes)} usable\n{total}"


def _unknown(found: Inventory) -> list[tuple[str, RenderableType]]:
    """What is null, together where the reason is the same."""
    names: dict[str, list[str]] = {}
    for pointer, why in found.unknown.items():
        match pointer.split("/")[1:]:
            case ["picked" | "vllm_pick", _]:  # said above
                continue
            case ["devices", index, "details", *path]:
                names.setdefault(why, []).append(f"{found.devices[int(index)].id} {' '.join(path)}")
            case ["devices", index, *_, name]:
                names.setdefault(why, []).append(f"{found.devices[int(index)].id} {name}")
            case path:
                names.setdefault(why, []).append(path[-1])
    return [("\n".join(each), Text(why, style="dim")) for why, each in names.items()]


def _software(found: Inventory) -> str:
    software = found.software
    installed = [f"{name} {value}" for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if value]
    absent = [name for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if not value]
    parts = [found.platform, f"kernel {software.kernel or '?'}", f"Python {software.python or '?'}", *installed]
    parts += [f"no {name}" for name in absent]
    return ", ".join([*parts, *([f"in {software.container}"] if software.container else [])])

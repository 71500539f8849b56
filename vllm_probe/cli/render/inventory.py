"""The document of `detect` for a person."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render import findings
from vllm_probe.cli.render.console import VERDICT_STYLES, heading, pairs, table
from vllm_probe.core.device import Choice, Device, DeviceMemory, Inventory
from vllm_probe.core.units import format_bytes, format_count

_NUMBERS = ("nvml", "cuda", "hip", "xpu", "level_zero", "npu", "davinci", "kfd", "drm_card", "drm_render", "accel")
_NAMED = 3
"""So many devices are named where the same is true of several."""


def render(found: Inventory) -> Group:
    """Devices with their verdicts and numbers, who would take which, the software, and what is not known."""
    parts = [_devices(found.devices)]
    if found.devices:
        parts += [Text(), pairs(_grouped((device.id, device.verdict.reason) for device in found.devices))]
    if any(device.indices for device in found.devices):
        parts += [heading("numbers"), _numbers(found.devices)]
    parts += [
        Text(),
        pairs(
            [
                ("vllm-probe takes", _pick(found.picked, found.devices)),
                ("vLLM would take", _pick(found.vllm_pick, found.devices)),
                ("software", _software(found)),
            ]
        ),
    ]
    served = (
        (each.id, f"adapter {each.adapter or 'none'}, descriptor {each.descriptor or 'none'}") for each in found.devices
    )
    if found.devices:
        parts += [heading("adapters and descriptors"), pairs(_grouped(served))]
    parts += _stacks(found)
    if found.findings:
        parts += [findings.render(found.findings)]
    if unknown := _unknown(found):
        parts += [heading("without a value"), pairs(unknown, "dim")]
    return Group(*parts)


def _devices(devices: Sequence[Device]) -> RenderableType:
    if not devices:
        return Text("no device is found")
    rows = table("device", "name", "arch", "memory", "verdict")
    for column in (0, 2, 3, 4):
        rows.columns[column].no_wrap = True
    for device in devices:
        code = device.verdict.code
        rows.add_row(
            device.id, _name(device), device.arch or "?", _memory(device.memory), Text(code, VERDICT_STYLES[code])
        )
    return rows


def _name(device: Device) -> str:
    cores, threads = device.details.get("physical_cores"), device.details.get("threads")
    parts = f"{format_count(cores, 'core')}, {format_count(threads, 'thread')}" if cores else ""
    return "\n".join(filter(None, (device.name or "?", parts)))


def _memory(memory: DeviceMemory) -> str:
    free, total = format_bytes(memory.usable_bytes), format_bytes(memory.reported_bytes)
    if memory.reported_bytes is None:
        size = free if memory.usable_bytes is not None else "?"
    else:
        unit = total.partition(" ")[2]
        size = f"{free.removesuffix(f' {unit}')} of {total}"
    return size if memory.kind in {None, "dedicated"} else f"{size}\n{memory.kind}"


def _numbers(devices: Sequence[Device]) -> RenderableType:
    """The device in each numbering, where it has one."""
    known = {name for device in devices for name in device.indices}
    names = [*(name for name in _NUMBERS if name in known), *sorted(known.difference(_NUMBERS))]
    rows = table("device", *(name.replace("_", " ") for name in names))
    rows.columns[0].no_wrap = True
    for device in devices:
        if device.indices:
            rows.add_row(device.id, *(str(device.indices.get(name, "")) for name in names))
    return rows


def _pick(choice: Choice, devices: Sequence[Device]) -> str:
    """What is taken and why, then why not the others, except where their verdict says it."""
    said = {device.id: device.verdict.reason for device in devices}
    others = ((id_, why) for id_, why in choice.others.items() if why != said.get(id_))
    word = "" if choice.id is None else "not "
    lines = [f"{word}{_in_line(ids)}: {why}" for ids, why in _grouped(others)]
    return "\n".join([f"{choice.id or 'none'}: {choice.reason}", *lines])


def _stacks(found: Inventory) -> list[RenderableType]:
    """What each family needs at least, what here is older, and the command for torch where there is none."""
    least, commands = [], []
    for device in found.devices:
        stack = device.details.get("stack", {})
        needs = [" ".join(item).removeprefix("runtime ") for item in stack.get("least", {}).items()]
        least.append((device.id, "; ".join([*([", ".join(needs)] if needs else []), *stack.get("short", ())])))
        means = stack.get("install") or stack.get("advice")
        if means and found.software.torch is None:
            commands.append((device.id, means))
    rows = _grouped(least)
    parts: list[RenderableType] = [heading("needed at least"), pairs(rows)] if rows or commands else []
    for ids, command in _grouped(commands):
        label = Text(f"torch for {_in_line(ids)}:")
        parts += [label, Text(f"  {command}", style="bold", no_wrap=True, overflow="ignore")]
    return parts


def _grouped(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Ids on the left, together where the text on the right is the same."""
    ids: dict[str, list[str]] = {}
    for id_, text in rows:
        ids.setdefault(text, []).append(id_)
    return [(_together(each), text) for text, each in ids.items() if text]


def _together(ids: Sequence[str]) -> str:
    return "\n".join(ids) if len(ids) <= _NAMED else f"{ids[0]}\nand {len(ids) - 1} more"


def _in_line(ids: str) -> str:
    return ids.replace("\nand", " and").replace("\n", ", ")


def _unknown(found: Inventory) -> list[tuple[str, RenderableType]]:
    """What is null: devices on the left, what is not known of them and why on the right."""
    names: dict[tuple[str, str], list[str]] = {}
    for pointer, why in found.unknown.items():
        match pointer.split("/")[1:]:
            case ["picked" | "vllm_pick", _] | ["software", "torch" | "vllm"]:  # said above
                continue
            case ["devices", index, "driver"] if found.devices[int(index)].kind == "cpu":  # it needs none
                continue
            case ["devices", index, "descriptor"] if not found.devices[int(index)].usable:  # first it must run
                continue
            case ["devices", index, *path]:
                name = " ".join(reversed(path[-2:])) if path[-2:-1] == ["frequency_mhz"] else path[-1]
                names.setdefault((name, why), []).append(found.devices[int(index)].id)
            case path:
                names.setdefault((path[-1], why), []).append("this machine")
    whose: dict[tuple[str, str], list[str]] = {}
    for (name, why), ids in names.items():
        whose.setdefault((_together(list(dict.fromkeys(ids))), why), []).append(name.replace("_", " "))
    return list(_grouped_lines((ids, f"{', '.join(each)}: {why}") for (ids, why), each in whose.items()))


def _grouped_lines(rows: Iterable[tuple[str, str]]) -> list[tuple[str, RenderableType]]:
    lines: dict[str, list[str]] = {}
    for ids, text in rows:
        lines.setdefault(ids, []).append(text)
    return [(ids, Text("\n".join(each), style="dim")) for ids, each in lines.items()]


def _software(found: Inventory) -> str:
    software = found.software
    installed = [f"{name} {value}" for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if value]
    absent = [name for name, value in (("torch", software.torch), ("vLLM", software.vllm)) if not value]
    parts = [found.platform, f"kernel {software.kernel or '?'}", f"Python {software.python or '?'}", *installed]
    parts += [f"no {name}" for name in absent]
    return ", ".join([*parts, *([f"in {software.container}"] if software.container else [])])

"""What a user must know of the devices that a config is planned for, and which descriptors come near one."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.api.looking import judged_devices
from vllm_probe.core.errors import DeviceNotFound, ProbeError

if TYPE_CHECKING:
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.device import Device
    from vllm_probe.vendors.registry import PortableDeviceManager

_MOST_NEAR = 3
_QUANTIZED = "https://huggingface.co/models?other=base_model:quantized:"
_GUIDES = {"ascend": "https://docs.vllm.ai/projects/ascend/en/latest/user_guide/feature_guide/quantization.html"}
"""Pages on the making of checkpoints, for methods that vLLM's own pages do not treat."""


def planned_device(config: "RuntimeConfig", manager: "PortableDeviceManager") -> "Device":
    """The device of this machine that `config` is for.

    Raises:
        DeviceNotFound: there is none such.
        DeviceUnavailable: none of its type can be used.
    """
    from vllm_probe.detect.select import select_device

    try:
        return select_device(judged_devices(manager), config.device or config.device_type, manager)
    except DeviceNotFound as error:
        engine = "" if config.engine == "bundled" else f" --engine {config.engine}"
        here = f"`vllm-probe negotiate {shlex.quote(config.model)}{engine}` plans for what is here"
        message = f"the config is for {planned_words(config)}, which is not here"
        raise DeviceNotFound(message, hint=f"{error.hint}: serve it where that is, or {here}") from error


def planned_words(config: "RuntimeConfig") -> str:
    """`nvidia (h100-sxm-80gb)`: what a config is for, with its descriptor where no device of any machine is named."""
    from vllm_probe.vendors.descriptors import descriptor_name

    if config.device:
        return f"{config.device} ({config.device_type})"
    return f"{config.device_type} ({descriptor_name(Path(config.capability.partition(' (sha256:')[0]))})"


def obtaining(config: "RuntimeConfig") -> str:
    """Where the checkpoint that `config` requires may be, and how it is made."""
    guide = _GUIDES.get(config.quantization, "https://docs.vllm.ai/en/stable/features/quantization/")
    made = f"{guide} says how it is made"
    if config.model.count("/") != 1 or Path(config.model).exists():
        return made
    return f"{_QUANTIZED}{config.model} lists those that are published, {made}"


def device_notes(on: "Device | None", document: "Capability", devices: "Sequence[Device]") -> Iterator[str]:
    """Why `on` cannot run what is planned for it, whose figures `document` has, and what else is there and blocked.

    Without `on` each of `devices` that is blocked tells why nothing here runs it, and one that is not how it is planned
    for.
    """
    from vllm_probe.detect.select import unfit

    if on and (reason := unfit(on)):
        yield f"{_shown(on)} cannot be used here now: {_clause(reason)}; run `vllm-probe doctor`"
    if on and (other := other_than(on, document)):
        yield (
            f"the descriptor is of {other}, {on.id} is {on.name or on.arch}: the rates are those of the other device, "
            "the memory is no more than this one has"
        )
    here = next((each for each in devices if each.kind != "cpu" and unfit(each) is None), None)
    if on is None and here and (other := other_than(here, document)):
        yield (
            f"the descriptor is of {other}, which is not here: planned for that alone; "
            f"--device {here.id} plans for {here.name or here.arch}"
        )
    if on is None or on.kind == "cpu":
        yield from blocked(devices)


def blocked(devices: "Sequence[Device]") -> Iterator[str]:
    """A line for each accelerator that is there and cannot be used, of those that some build of vLLM runs."""
    from vllm_probe.detect.select import unfit
    from vllm_probe.detect.stack import runs

    for device in devices:
        if device.kind != "cpu" and runs(device) and (reason := unfit(device)):
            yield f"{_shown(device)} is there and not used: {_clause(reason)}; run `vllm-probe doctor`"


def offer(on: "Device", devices: "Sequence[Device]", manager: "PortableDeviceManager", fingerprint: str) -> str:
    """What to name with `--capability` where nothing describes `on`, and what is there and blocked."""
    near = near_descriptors(on, manager, fingerprint)
    named = f", such as {', '.join(near)}," if near else ""
    there = "".join(f"; {line}" for line in blocked(devices) if not line.startswith(_shown(on)))
    return f"name a descriptor with --capability{named} of those that `vllm-probe capability list` shows{there}"


def near_descriptors(on: "Device", manager: "PortableDeviceManager", fingerprint: str) -> tuple[str, ...]:
    """At most three descriptors of devices of the same type: by architecture, then by memory, then by name."""
    from difflib import SequenceMatcher

    from vllm_probe.vendors.descriptors import descriptor_files, descriptor_name, load_capability, search_path

    plugin, size = manager.plugin_for(on.vendor), on.memory.reported_bytes
    ranked = []
    for place in search_path(manager, fingerprint):
        for file in descriptor_files(place):
            try:
                found = load_capability(file)
            except ProbeError:
                continue
            if plugin and found.device_type in plugin.device_types:
                total = found.memory.total_bytes
                gap = abs(total - size) if total and size else 0
                unlike = 1 - SequenceMatcher(None, found.device.name or "", on.name or "").ratio()
                ranked.append((found.device.arch != on.arch, gap, unlike, descriptor_name(file)))
    return tuple(dict.fromkeys(name for *_, name in sorted(ranked)))[:_MOST_NEAR]


def other_than(on: "Device", document: "Capability") -> str | None:
    """What `document` describes, where that is another device than `on`."""
    identity = document.device
    if identity.name and on.name:
        return None if on.name in (identity.name, *identity.also) else identity.name
    if identity.arch and on.arch and identity.arch != on.arch:
        return identity.name or f"a device of {identity.arch}"
    return None


def _shown(device: "Device") -> str:
    return f"{device.id} ({device.name or device.vendor})"


def _clause(reason: str) -> str:
    return reason.rstrip(".")

"""Which device is meant: the default, or what `--device` says."""

import re
from collections.abc import Sequence

from vllm_probe.core.device import Choice, Device
from vllm_probe.core.errors import BadUsage, DeviceNotFound, DeviceUnavailable
from vllm_probe.vendors.registry import PortableDeviceManager

_PICKED_KINDS = ("gpu", "npu", "cpu")


def default_device(devices: Sequence[Device]) -> Device | None:
    """A usable gpu before npu before cpu, then the one with more usable memory, unknown last, then by id; no igpu."""
    usable = (device for device in devices if device.usable and device.visible and device.kind in _PICKED_KINDS)
    return min(usable, key=_rank, default=None)


def default_choice(devices: Sequence[Device]) -> Choice:
    """The default device, why it, and why none of the others."""
    picked = default_device(devices)
    others = {device.id: _why_not(device, picked) for device in devices if device is not picked}
    if picked is None:
        left = next((device for device in devices if unfit(device) is None), None)
        reason = f"none is taken by itself, --device {left.id} takes it" if left else "no device is usable"
        return Choice(id=None, reason=reason, others=others)
    return Choice(id=picked.id, reason=_why(picked, devices), others=others)


def unfit(device: Device) -> str | None:
    """Why a device cannot be taken at all, null when it can."""
    return None if device.usable and device.visible else device.verdict.reason


def select_device(devices: Sequence[Device], wanted: str | None, manager: PortableDeviceManager) -> Device:
    """The device that `wanted` means: an id, a vendor or device type, `vendor:N`, or the start of one id.

    Raises:
        DeviceNotFound: nothing here is called that.
        DeviceUnavailable: devices of that vendor exist and none is usable.
        BadUsage: the start of more than one id.
    """
    named = [device for device in devices if wanted in {None, device.id}]
    if wanted is None:
        chosen = default_device(named)
        if chosen is None:
            if any(unfit(device) is None for device in named):
                message = "no device here is taken without being named: each is an integrated GPU, or cannot be used"
                raise DeviceUnavailable(message, hint=default_choice(named).reason)
            raise DeviceUnavailable("no device here is usable", hint="run `vllm-probe doctor`")
        return chosen
    word, _, number = wanted.rpartition(":") if re.fullmatch(r"\w+:\d{1,3}", wanted) else (wanted, "", "")
    plugin = manager.plugin_for(word)
    family = [device for device in devices if device.vendor == (plugin.name if plugin else word)]
    if not named and number:
        named = family[int(number) : int(number) + 1]
    elif not named and family:
        return _first_usable(word, family)
    named = named or [device for device in devices if device.id.startswith(wanted)]
    if len(named) > 1:
        raise BadUsage(f"{wanted} begins more than one device id", hint=f"say which: {_listed(named)}")
    if not named:
        raise DeviceNotFound(f"there is no device {wanted!r}", hint=f"there is {_listed(devices) or 'none at all'}")
    return named[0]


def _first_usable(word: str, family: Sequence[Device]) -> Device:
    for device in family:
        if device.usable:
            return device
    reason = f"{family[0].id}: {family[0].verdict.reason}"
    raise DeviceUnavailable(f"no {word} device is usable; {reason}", hint="run `vllm-probe doctor`")


def _why(picked: Device, devices: Sequence[Device]) -> str:
    if picked.kind == "cpu":
        return "no usable discrete GPU or NPU, so the CPU"
    sizes = [each.memory.usable_bytes for each in devices if unfit(each) is None and each.kind == picked.kind]
    if None not in sizes:
        return f"the usable {picked.kind} with most memory"
    if len(sizes) == 1:
        return f"the only usable {picked.kind}"
    if picked.memory.usable_bytes is None:
        return (
            f"the first usable {picked.kind} by its id; how much {_unknown(picked, 'they have', 'their')} is not known"
        )
    return f"the usable {picked.kind} with most memory, of those of which it is known how much is free"


def _why_not(device: Device, picked: Device | None) -> str:
    if (reason := unfit(device)) is not None:
        return reason
    if picked is None or device.kind not in _PICKED_KINDS:
        return "an integrated GPU is only taken when --device names it"
    if device.kind != picked.kind:
        return f"a usable {picked.kind} goes before it"
    mine, taken = device.memory.usable_bytes, picked.memory.usable_bytes
    if taken is None:
        return f"{picked.id} comes first by its id; how much {_unknown(device, 'they have', 'their')} is not known"
    if mine is None:
        return f"how much {_unknown(device, 'it has', 'its')} is not known, and that of {picked.id} is"
    return f"{picked.id} has more usable memory" if mine < taken else f"it has no more usable memory than {picked.id}"


def _unknown(device: Device, has: str, its: str) -> str:
    """Memory, or only what is free of it, where its size is known."""
    return f"memory {has}" if device.memory.reported_bytes is None else f"of {its} memory is free"


def _rank(device: Device) -> tuple[int, int, str]:
    return _PICKED_KINDS.index(device.kind), -(device.memory.usable_bytes or 0), device.id


def _listed(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.id} ({device.vendor})" for device in devices)

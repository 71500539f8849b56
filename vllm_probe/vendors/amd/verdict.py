"""Whether a GPU can be used here, from what KFD, its nodes and the ROCm runtime say."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_probe.core.device import Device, Verdict
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.amd.kfd import Node
from vllm_probe.vendors.amd.masks import Mask
from vllm_probe.vendors.layer0 import UNASKED

_OPTIONS = " ".join(f"--device {node}" for node in PLUGIN.container.nodes)
_ERRNO = {
    errno.EACCES: "a security module keeps this process out of {node} although its mode does not; see "
    "`sudo ausearch -m avc -ts recent` on the host",
    errno.EPERM: "the device cgroup denies {node}; start the container with `" + _OPTIONS + "`",
    errno.ENOENT: "{node} is not there",
    errno.ENODEV: "no driver answers behind {node}; load amdgpu and pass the node in anew",
    errno.ENXIO: "no driver answers behind {node}; load amdgpu and pass the node in anew",
    errno.EINVAL: "{node} is not the node that the kernel has now; pass it into the container anew",
    errno.ENOMEM: "the kernel had no memory to open {node}; see `sudo dmesg`",
}
"""What it means that a node does not open; the errors that rocminfo prints behind `Unable to open /dev/kfd`."""
_HSA = {
    4096: "an error that it does not name; see `sudo dmesg | grep -i -E 'kfd|amdgpu'`",
    4104: "there is no GPU that KFD lets it use; see `sudo dmesg | grep -i kfd`",
}
"""hsa_status_t: https://github.com/ROCm/ROCR-Runtime, inc/hsa.h."""
_NO_KFD = (
    "there is no /dev/kfd, without which ROCm finds no GPU: amdgpu was built without CONFIG_HSA_AMD, or knows no chip "
    "here that computes; see `sudo dmesg | grep -i kfd`"
)
_PARTS = {"DPX": 2, "TPX": 3, "QPX": 4}
"""Partitions in a mode; CPX has one for each of the card's dies, of which the chips have different numbers."""
_SKIPPED = (
    "amdgpu drives it and KFD does not list it, so ROCm cannot use it: the slot lacks PCIe atomics, or the chip is not "
    "supported; see `sudo dmesg | grep -i kfd`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found out for all GPUs of the machine.

    Attributes:
        listed: KFD shows GPUs or processors.
        refused: KFD refuses to tell of some node.
        errors: node to the errno of opening it, 0 where it opens; nodes that were not opened are left out.
        denials: node to what its mode denies this process, and the way in.
        status: what `hsa_init` gave, null where it was not or could not be asked.
        silence: why there is no status.
        broken: it is there and could not be asked.
        asleep: addresses of GPUs that asking would wake.
    """

    listed: bool
    refused: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    denials: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    silence: str = ""
    broken: bool = False
    asleep: frozenset[str] = frozenset()


def judged(device: Device, node: Node | None, found: Machine, mask: Mask | None) -> Device:
    """`device` with its verdict; what only an environment variable hides stays usable."""
    if device.verdict.code == "unusable":
        return _without_hip(device)
    against = _against(device, node, found)
    if mask:
        hides = f"the environment variable {mask.name}={mask.value} hides it; run `unset {mask.name}`"
        device = replace(device, visible=False)
        if against is None:
            return replace(device, usable=True, verdict=Verdict(code="hidden", reason=hides))
        if against.code == "unknown":
            against = Verdict(code="hidden", reason=f"{hides}; whether it can be used was not checked")
    elif not device.visible:
        device = replace(device, visible=True)
    if against is not None:
        return replace(_without_hip(device), usable=False, verdict=against)
    where = f"KFD lists it as node {node.number} and " if node else ""
    return replace(device, usable=True, verdict=Verdict(code="usable", reason=f"{where}the ROCm runtime starts"))


def split(device: Device, parts: Sequence[Device], mode: str | None, refused: int) -> Device:
    """A card that is split into `parts`, which compute in its place; KFD refuses to tell of `refused` nodes."""
    how = f"it is split in mode {mode}" if mode else "it is split"
    able = [part for part in parts if part.verdict.code != "unusable"]
    reason = f"{how}, so only its parts compute: {_listed(able)}" if able else f"{how}, and none of its parts computes"
    missing = _PARTS.get(mode or "", 0) - len(parts)
    if missing > 0:
        says = "refuses to tell of" if refused else "does not list"
        reason += f"; KFD {says} {missing} of its {missing + len(parts)} parts"
    elif refused and mode not in _PARTS:
        reason += f"; KFD refuses to tell of {refused} more, of this card or another"
    return replace(_without_hip(device), usable=False, verdict=Verdict(code="unusable", reason=reason))


def _listed(parts: Sequence[Device]) -> str:
    """The first id, and the ends of the others: `to` the last where none is missing between."""
    ends = [part.id.rpartition("/")[2] for part in parts]
    numbers = [int(end.rpartition("-")[2]) for end in ends]
    whole = len(parts) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{parts[0].id} to {ends[-1]}" if whole else ", ".join([parts[0].id, *ends[1:]])


def _against(device: Device, node: Node | None, found: Machine) -> Verdict | None:
    """Why it cannot be used, null where the runtime starts."""
    if device.id in found.asleep:
        return _unknown(f"it is asleep, and nothing was asked that would wake it; {UNASKED}")
    if found.errors.get("/dev/kfd") == errno.ENOENT:
        return _unusable(_NO_KFD)
    if node is None and found.listed:
        why = f"KFD refuses to tell of it: {_ERRNO[errno.EPERM].format(node='its render node')}"
        return _unusable(why if found.refused else _SKIPPED)
    for path in ("/dev/kfd", f"/dev/dri/renderD{device.indices.get('drm_render')}"):
        number = found.errors.get(path, 0)
        if number:
            text = _ERRNO.get(number, f"{{node}} does not open: {errno.errorcode.get(number, number)}")
            return _unusable(found.denials.get(path) or text.format(node=path))
    if found.status:
        meaning = _HSA.get(found.status, "see `sudo dmesg | grep -i -E 'kfd|amdgpu'`")
        return _unusable(f"the ROCm runtime does not start, hsa_init gives {found.status}: {meaning}")
    if found.broken:
        return _unusable(f"the ROCm runtime does not start: {found.silence}; install it anew")
    if found.status is None:
        listed = f"KFD lists it as node {node.number}; " if node else ""
        return _unknown(f"{listed}{found.silence}, so whether torch and vLLM can use it was not checked")
    return None


def _without_hip(device: Device) -> Device:
    indices = {name: number for name, number in device.indices.items() if name != "hip"}
    sources = {pointer: source for pointer, source in device.sources.items() if pointer != "/indices/hip"}
    return replace(device, indices=indices, sources=sources)


def _unusable(reason: str) -> Verdict:
    return Verdict(code="unusable", reason=reason)


def _unknown(reason: str) -> Verdict:
    return Verdict(code="unknown", reason=reason)

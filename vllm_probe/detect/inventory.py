"""What is on a machine, which device to take, and what was lost on the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from vllm_probe.core.device import Choice, Device, Finding, Inventory, Software
from vllm_probe.core.document import Stamp
from vllm_probe.core.rows import Row
from vllm_probe.core.system import Host
from vllm_probe.detect.checks.container import CONTAINERS, node_access
from vllm_probe.detect.checks.toolkit import nvidia_nodes
from vllm_probe.detect.engine_pick import vllm_choice, vllm_vendor
from vllm_probe.detect.select import default_choice
from vllm_probe.detect.stack import runs, weigh
from vllm_probe.detect.verdict import judge, nearest_first
from vllm_probe.vendors.by_hand import OTHERWISE, check_by_hand
from vllm_probe.vendors.pci import accelerators
from vllm_probe.vendors.registry import PortableDeviceManager
from vllm_probe.vendors.software import container_kind, read_software

_HINTS = {
    0x10DE: "the --gpus all option",
    0x1002: "--device=/dev/kfd and --device=/dev/dri mounts",
    0x8086: "--device=/dev/dri mount",
}
_SLOWDOWN = "predicted slowdown: unknown, the device was never measured here"
_NEUTRAL_NODES = ("/dev/dxg", "/dev/accel/accel*")  # whose device no name tells
_UNHANDLED = Row(
    "PLG-09",
    "degrades",
    cause="<label> not detected, falling back to <fallback>: <reason>.",
    fix=(("shell", "vllm-probe adapter list", "See which vendors the installed plug-ins cover.", "none"),),
)
_UNUSED = Row(
    "PLG-09",
    "degrades",
    cause="<label> is not used, falling back to <fallback>: <reason>.",
    fix=(("shell", "vllm-probe doctor", "Do what the reason says; doctor knows more of many faults.", "none"),),
)
_UNASKED = replace(_UNUSED, fix=(("host", "<tool>", f"See whether its driver answers; {OTHERWISE}.", "none"),))
_UNKNOWN = Row("PLG-09", "info", cause="The <label> at <address> is no accelerator that is known here.")


def take_inventory(
    host: Host,
    manager: PortableDeviceManager,
    stamp: Stamp,
    descriptor_of: Callable[[Device], str | None],
    known: Sequence[Finding] = (),
) -> Inventory:
    """Every device of `host`, judged, with the software that would run on it; no device is woken or initialised.

    `descriptor_of` names the capability document that serves a device, or gives null; `known` was found before.
    """
    probed = manager.probe_devices()
    software = read_software(host)
    refused = [*node_access(host, probed.devices, ""), *nvidia_nodes(host, probed.devices, "")]
    devices = tuple(
        replace(
            judge(weigh(device, software, host.env, probed.devices), (*probed.findings, *refused)),
            descriptor=descriptor_of(device),
        )
        for device in probed.devices
    )
    picks = {
        "picked": default_choice(devices),
        "vllm_pick": vllm_choice(devices, software.vllm, vllm_vendor(host, software)),
    }
    picked = next((device for device in devices if device.id == picks["picked"].id), None)
    platform = host.platform()
    return Inventory(
        schema_version="1.0",
        **stamp.header(),
        platform=f"{platform.system} {platform.machine}",
        software=software,
        devices=devices,
        picked=picks["picked"],
        vllm_pick=picks["vllm_pick"],
        findings=(
            *manager.findings(),
            *known,
            *probed.findings,
            *nearest_first(host, _lost(host, manager, devices, refused, picked)),
        ),
        unknown={f"/devices{pointer}": reason for pointer, reason in probed.unknown.items()}
        | dict(_why_null(devices, software, picks)),
    )


def _lost(
    host: Host,
    manager: PortableDeviceManager,
    devices: tuple[Device, ...],
    refused: list[Finding],
    picked: Device | None,
) -> Iterator[Finding]:
    """One finding for each accelerator that is no usable device, naming what takes its place."""
    inside = container_kind(host) in CONTAINERS
    fallback = "nothing" if picked is None else "CPU" if picked.kind == "cpu" else picked.id
    reasons = {finding.device: finding for finding in refused}
    listed = {device.id.partition("/")[0] for device in devices}  # a part stands for its function
    covered = {vendor: plugin.name for plugin in manager.plugins for vendor in plugin.pci_vendors}
    for function in accelerators(host):
        finding = reasons.get(function.address)
        facts = (function.evidence, _SLOWDOWN)
        if finding is not None:
            hint = f" Please check {_HINTS[function.vendor]}." if inside else ""
            lost = f"{function.label} not detected, falling back to {fallback}.{hint} {finding.cause}"
            yield replace(finding, cause=lost, evidence=(*finding.evidence, facts[1]))
        elif function.address not in listed and function.kind:
            plugin = covered.get(function.vendor)
            reason = f"the plug-in {plugin} does not list it" if plugin else "no installed plug-in covers its vendor"
            yield _UNHANDLED.finding(function.address, facts, label=function.label, fallback=fallback, reason=reason)
        elif function.address not in listed:
            yield _UNKNOWN.finding(function.address, facts[:1], label=function.label, address=function.address)
    yield from _unused(host, devices, set(reasons), fallback)
    known = {fact["path"] for device in devices for fact in device.details.get("nodes", ())}
    for node in (path for pattern in _NEUTRAL_NODES for path in host.glob(pattern) if path not in known):
        yield _UNKNOWN.finding(None, (f"{node}: no device listed here has it",), label="device node", address=node)


def _unused(host: Host, devices: tuple[Device, ...], told: set[str | None], fallback: str) -> Iterator[Finding]:
    """One finding for each cause, of the first device that it keeps out; `told` are those that have a finding."""
    split = {device.details.get("parent") for device in devices}  # their parts take their place
    alike: dict[tuple[str, str], list[Device]] = {}
    for device in devices:
        if device.kind in {"gpu", "npu"} and runs(device) and not device.usable and device.id not in {*told, *split}:
            nodes = [fact["path"] for fact in device.details.get("nodes", ())]
            why = reduce(lambda text, node: text.replace(node, "its node"), nodes, device.verdict.reason)
            alike.setdefault((device.name or device.vendor, why), []).append(device)
    if alike:
        from vllm_probe.detect.causes import left_out  # reads the rows of the doctor
    for (name, why), several in alike.items():
        reasons = {device.verdict.reason for device in several}
        label = f"{name} at {', '.join(device.id for device in several)}"
        facts = [f"{each.id}: {each.vendor} {each.kind}, driver {each.driver or 'none'}" for each in several]
        reason = why if len(reasons) > 1 else reasons.pop()
        tool, id_ = check_by_hand(several[0]), several[0].id
        row = _UNASKED if tool else _UNUSED
        finding = row.finding(id_, (*facts, _SLOWDOWN), label=label, fallback=fallback, reason=reason, tool=tool)
        yield replace(finding, severity="latent") if left_out(host, several[0], devices) else finding


def _why_null(devices: tuple[Device, ...], software: Software, picks: dict[str, Choice]) -> Iterator[tuple[str, str]]:
    for name, choice in picks.items():
        if choice.id is None:
            yield f"/{name}/id", choice.reason
    for index, device in enumerate(devices):
        if device.descriptor is None:
            yield f"/devices/{index}/descriptor", "no capability document serves it; `vllm-probe bench` writes one"
    for name, reason in (
        ("python", "the recording does not tell"),
        ("torch", "not installed"),
        ("vllm", "not installed"),
        ("kernel", "the system does not tell"),
        ("container", "not in a container"),
    ):
        if getattr(software, name) is None:
            yield f"/software/{name}", reason

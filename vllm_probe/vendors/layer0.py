"""Layer 0: what the PCI bus, /dev and drivers tell of a device. No library is asked, no node opened, nothing woken."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.files import read_json
from vllm_probe.core.plugin import ContainerAccess, ProbeResult, VendorPlugin
from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue, Kind, MemoryKind
from vllm_probe.vendors.nodes import group_word, node_facts, read_identity
from vllm_probe.vendors.pci import ROOT, PciFunction, accelerators
from vllm_probe.vendors.software import container_kind

Reading: TypeAlias = tuple[Device, dict[str, str]]
"""A device, and by JSON pointer within it why a value is null."""

Fact: TypeAlias = tuple[Any, str]
"""A value and its source, or null and the reason."""

Gate: TypeAlias = tuple[str, list[dict[str, JsonValue]]]
"""A node pattern of which at least one node must be open to this process, and the nodes that match it."""

Record: TypeAlias = dict[str, Any]

_MEMORY_KINDS: dict[Kind, MemoryKind] = {"gpu": "dedicated", "igpu": "shared"}
_TAKEN = {
    "vfio-pci": "for a virtual machine",
    "xen-pciback": "for a virtual machine",
    "pci-stub": "to keep every other driver away",
    "uio_pci_generic": "for a program of its own",
    "nouveau": "which draws and does not compute",
    "nvidiafb": "which draws and does not compute",
    "radeon": "which draws and does not compute",
}
UNASKED = "whether its library, torch and vLLM can use it was not checked"
NOT_GIVEN = "this container was not given"
_MEMORY = "no library was asked for its memory"


def bus_devices(host: Host, plugin: VendorPlugin) -> list[Reading]:
    """The vendor's functions on the PCI bus; where there is none, the nodes that no other vendor has.

    `layer0.json` in the vendor's folder, which a plug-in from elsewhere lacks, holds, the first three always:
    `source` and `brand` of the names; `chips`: by PCI vendor, lists of chip, arch, kind, memory, `driver`, where it is
    one of several, and `ids` with names; `gates`: by kind, node patterns (`a|b`: either), of each of which one node
    must be open to this process; `drivers`: by kind, what lets it compute; `masks`: by kind, variables that can hide
    it; `version`: a file and what matches the driver's version in it, where /sys/module does not tell it; `minor`: a
    file with `{address}` and what matches the number of the device's own node in it; `alone`: nodes that no other
    vendor has; `tools`: by kind, the vendor's command that asks the driver.
    """
    functions = [each for each in accelerators(host) if each.kind and each.vendor in plugin.pci_vendors]
    path = Path(__file__).parent / plugin.name / "layer0.json"
    record: Record = {"source": "", "brand": plugin.name, "chips": {}, "gates": {}}
    record = read_json(path) if path.is_file() else record
    if functions:
        return [_function(host, plugin, function, record) for function in functions]
    return [
        _node(host, plugin.name, node, record) for node in (host.glob(record["alone"]) if "alone" in record else ())
    ]


def bus_alone(host: Host, plugin: VendorPlugin, why: str) -> ProbeResult:
    """`bus_devices` of a vendor whose own probe told nothing, and `why`: what is not known is so for that reason."""
    shown = []
    for device, unknown in bus_devices(host, plugin):
        verdict = replace(device.verdict, reason=why) if device.verdict.code == "unknown" else device.verdict
        gaps = {pointer: why if pointer.startswith("/memory/") else reason for pointer, reason in unknown.items()}
        shown.append((replace(device, verdict=verdict), gaps))
    return result(shown)


def _function(host: Host, plugin: VendorPlugin, function: PciFunction, record: Record) -> Reading:
    number, chips = f"{function.device:04x}", record["chips"].get(f"{function.vendor:04x}", ())
    chip: Record = next((chip for chip in chips if number in chip["ids"]), {})
    kind: Kind = chip.get("kind") or function.kind or "gpu"
    gates = _gates(host, function, kind, record)
    drivers = [chip["driver"]] if "driver" in chip else _of(record.get("drivers", {}), kind)
    verdict = _verdict(host, plugin.container, function, drivers, gates)
    mask = _mask(host, _of(record.get("masks", {}), kind))
    if mask and verdict.code == "unknown":
        verdict = Verdict(code="hidden", reason=f"the environment variable {mask} hides it; {UNASKED}")
    unknown, source = f"the id table does not know {function.pci_id}", f"id table, {function.pci_id}"
    return reading(
        function.address,
        plugin.name,
        kind,
        verdict=verdict,
        visible=not mask,
        name=(f"{record['brand']} {chip['ids'][number]}", source) if chip else (None, unknown),
        arch=(chip["arch"], source) if "arch" in chip else (None, "the id does not tell it" if chip else unknown),
        driver=_driver(host, function.driver, record),
        memory=chip.get("memory", _MEMORY_KINDS.get(kind)),
        nodes=[fact for _, facts in gates for fact in facts],
        indices=_indices(host, function),
        links=_links(host, function),
        details={"pci_id": function.pci_id, "chip": chip.get("chip")},
    )


def _node(host: Host, vendor: str, node: str, record: Record) -> Reading:
    unseen = "the bus does not show the device, only its node is there"
    fact = node_facts(host, node, read_identity(host))
    return reading(
        f"{vendor}:{re.sub(r'[^0-9]', '', node.rpartition('/')[2])}",
        vendor,
        next(iter(record["gates"])),
        verdict=node_verdict(host, fact, unseen),
        name=(None, unseen),
        nodes=[fact],
    )


def _gates(host: Host, function: PciFunction, kind: Kind, record: Record) -> list[Gate]:
    """Sysfs or the driver tell the function's own nodes; where neither does, any that match may be its own."""
    identity, gates = read_identity(host), []
    for gate in _of(record["gates"], kind):
        pattern = next((each for each in gate.split("|") if host.glob(each)), gate.split("|")[0])
        folder, _, name = pattern.rpartition("/")
        nodes = [f"{folder}/{path.rpartition('/')[2]}" for path in host.glob(f"{ROOT}/{function.address}/*/{name}")]
        there = host.glob(pattern)
        if "minor" in record and pattern == record["alone"]:
            own = _of_minor(host, record, function.address)
            nodes = [own] if own else nodes
            if own is None and _inside(host):  # which tells of the devices that it was given, and maybe of no other
                taken = {_of_minor(host, record, each.address) for each in accelerators(host)}
                there = tuple(node for node in there if node not in taken)
        found = nodes or there or (pattern,)
        gates.append((pattern, [node_facts(host, node, identity) for node in found]))
    return gates


def _of_minor(host: Host, record: Record, address: str) -> str | None:
    """The node of the function at `address`, null where its driver does not tell its number."""
    file, regex = record["minor"]
    match = re.search(regex, host.read_text(file.format(address=address)) or "")
    return record["alone"].replace("[0-9]*", match[1]) if match else None


def _driver(host: Host, driver: str | None, record: Record) -> Fact:
    if driver is None:
        return None, "no driver is bound to it"
    places = [record["version"]] if "version" in record and driver not in _TAKEN else []
    for path, regex in (*places, (f"/sys/module/{driver.replace('-', '_')}/version", r"(\S+)")):
        if match := re.search(regex, host.read_text(path) or ""):
            return f"{driver} {match[1]}", path
    return driver, "driver link"


def _verdict(
    host: Host, access: ContainerAccess, function: PciFunction, drivers: Sequence[str], gates: list[Gate]
) -> Verdict:
    driver, lacking = function.driver, ""
    if driver is None:
        load = "; ".join(f"sudo modprobe {each}" for each in drivers)
        return _unusable("no driver is bound to it" + (f"; run `{load}` on the host" if load else ""))
    if driver in _TAKEN and driver not in drivers:
        return _unusable(f"it is bound to {driver}, {_TAKEN[driver]}")
    inside = _inside(host)
    for pattern, facts in gates:
        states = {fact["state"]: fact for fact in facts}
        if "not opened" not in states and "denied" in states:
            return _unusable(_denial(host, states["denied"]))
        if "not opened" not in states and inside:
            options = f"--device {pattern}" if pattern in access.nodes else access_options(access, pattern)
            options += "`, N its number on the host" if re.search(r"N( |$)", options) else "`"
            node = facts[0]["path"] if facts[0]["path"] != pattern or not host.glob(pattern) else "its node"
            return _unusable(f"{NOT_GIVEN} {node}; start it with `{options}")
        lacking += "" if "not opened" in states else f", {pattern} is not there"
    sleeps = (
        ", it is asleep and nothing was asked that would wake it (`detect --wake` would)" if function.asleep else ""
    )
    return Verdict(code="unknown", reason=f"the driver {driver} is bound{lacking}{sleeps}; {UNASKED}")


def asleep(host: Host, plugin: VendorPlugin) -> frozenset[str]:
    """Addresses of the vendor's functions that asking their driver would wake; one that is taken sleeps on."""
    return frozenset(
        each.address
        for each in accelerators(host)
        if each.asleep and each.vendor in plugin.pci_vendors and each.driver not in {None, *_TAKEN}
    )


def reading(  # noqa: PLR0913 - a device has that many values
    id_: str,
    vendor: str,
    kind: Kind,
    *,
    verdict: Verdict,
    name: Fact,
    arch: Fact = (None, "nothing here tells it"),
    driver: Fact = (None, "nothing here tells it"),
    memory: MemoryKind | None = None,
    reported: Fact = (None, _MEMORY),
    nodes: Iterable[dict[str, JsonValue]] = (),
    indices: dict[str, int] | None = None,
    links: tuple[dict[str, JsonValue], ...] = (),
    visible: bool = True,
    details: Mapping[str, JsonValue] | None = None,
) -> Reading:
    """A device with the source of each value, and why the others are null."""
    facts = {"/name": name, "/arch": arch, "/driver": driver, "/memory/reported_bytes": reported}
    unknown = {pointer: why for pointer, (value, why) in facts.items() if value is None}
    unknown |= {f"/memory/{each}_bytes": _MEMORY for each in ("usable", "used")}
    unknown |= {} if memory else {"/memory/kind": "nothing here tells it"}
    device = Device(
        id=id_,
        vendor=vendor,
        kind=kind,
        name=name[0],
        arch=arch[0],
        driver=driver[0],
        memory=DeviceMemory(reported_bytes=reported[0], kind=memory),
        indices=indices or {},
        links=links,
        visible=visible,
        verdict=verdict,
        sources={pointer: source for pointer, (value, source) in facts.items() if value is not None},
        details={"nodes": list(nodes)} | {key: value for key, value in (details or {}).items() if value is not None},
    )
    return device, unknown | {"/adapter": "no adapter here runs it"}


def result(readings: Iterable[Reading]) -> ProbeResult:
    """What a probe gives."""
    found = list(readings)
    return ProbeResult(
        devices=tuple(device for device, _ in found),
        unknown={f"/{i}{pointer}": why for i, (_, unknown) in enumerate(found) for pointer, why in unknown.items()},
    )


def node_verdict(host: Host, fact: Mapping[str, JsonValue], known: str) -> Verdict:
    """Of a device of which only its node is known."""
    if fact["state"] == "denied":
        return _unusable(_denial(host, fact))
    return Verdict(code="unknown", reason=f"{known}; {UNASKED}")


def _denial(host: Host, fact: Mapping[str, JsonValue]) -> str:
    """That the mode of a node keeps this process out, and the way in."""
    node, group = fact["path"], fact["gid"]
    join = f'run `sudo usermod -aG {group_word(host, str(group), str(node))} "$USER"`'
    way = f"start the container with `--group-add {group}`" if _inside(host) else join
    return f"{node} has mode {fact['mode']} and group {group}, in which this process is not; {way}"


def _inside(host: Host) -> bool:
    return container_kind(host) not in {None, "wsl"}


def access_options(access: ContainerAccess, own: str = "") -> str:
    """What `docker run` needs to give a container the vendor's devices; `N` numbers a node like the pattern `own`."""
    runtime = [f"--runtime={access.runtime}"] if access.runtime else []
    nodes = [re.sub(r"0$", "N", node) if fnmatchcase(node, own) else node for node in access.nodes]
    env = [f"-e {name}={value}" for name, value in access.env.items()]
    return " ".join([*runtime, *env, *(f"--device {node}" for node in nodes)])


def _mask(host: Host, names: Sequence[str]) -> str | None:
    """The variable that hides every device: empty or -1. Which ones a list of numbers hides, a library must tell."""
    values = {name: host.env(name) for name in names}
    return next(
        (f"{name}={value}" for name, value in values.items() if value is not None and value in {"", "-1"}), None
    )


def _unusable(reason: str) -> Verdict:
    return Verdict(code="unusable", reason=reason)


def _of(by_kind: Mapping[str, Sequence[str]], kind: Kind) -> Sequence[str]:
    return by_kind.get("gpu" if kind == "igpu" else kind, ())


def _indices(host: Host, function: PciFunction) -> dict[str, int]:
    words = {"card": "drm_card", "renderD": "drm_render", "accel": "accel"}
    paths = [path for folder in ("drm", "accel") for path in host.glob(f"{ROOT}/{function.address}/{folder}/*")]
    found = (re.search(r"/(card|renderD|accel)([0-9]{1,4})$", path) for path in paths)
    return {words[match[1]]: int(match[2]) for match in found if match}


def _links(host: Host, function: PciFunction) -> tuple[dict[str, JsonValue], ...]:
    """Speed and width of the PCIe link, at most and, where the device is awake, now; an idle link is slower."""
    files = {"max_speed": "max_link_speed", "max_width": "max_link_width", "numa_node": "numa_node"}
    if not function.asleep:
        files |= {"current_speed": "current_link_speed", "current_width": "current_link_width"}
    link: dict[str, JsonValue] = {}
    for key, file in files.items():
        text = (host.read_text(f"{ROOT}/{function.address}/{file}") or "").strip()
        if re.fullmatch(r"[0-9]{1,4}", text):
            link[key] = int(text)
        elif re.match(r"[0-9.]{1,8} GT/s", text):
            link[key] = text
    return ({"kind": "pcie", **link},) if link else ()

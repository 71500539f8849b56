"""Finds the capability document that describes a device, and says why every other one was passed over."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.device import Device
from vllm_probe.core.errors import InvalidJson, ProbeError, SchemaViolation, UnknownName, UnsupportedVersion
from vllm_probe.core.files import read_json
from vllm_probe.core.mistaken import damaged, misshapen
from vllm_probe.core.resources import resource_dir
from vllm_probe.core.system import Host
from vllm_probe.core.units import format_bytes
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.registry import PortableDeviceManager
from vllm_probe.vendors.software import installed

_KNOWN_MAJORS = {"1", "2"}
_SUFFIX = ".capability.json"
COMPILED = "compiled"
"""Folder of compiled code within the state folder of a machine."""

_RESERVED = 0.12  # of its memory a driver keeps up to this share: 180 of the 192 GB of a B200


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One step of the search.

    Attributes:
        name: what it is, in words.
        path: folder, or a file that the user named.
        shipped: whether a release put descriptors there, not this machine.
    """

    name: str
    path: Path
    shipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One file that was looked at, or a place where there was none.

    Attributes:
        place: where the search was.
        path: the file, or the folder when it holds no descriptor.
        used: whether this one is taken.
        reason: why, or why not.
        capability: what it holds, null when it cannot be read, or ships with a release for another device.
    """

    place: Place
    path: Path
    used: bool = False
    reason: str
    capability: Capability | None = None


def load_capability(path: Path) -> Capability:
    """The capability document at `path`, of version 1 or 2.

    Raises:
        UnreadableFile, InvalidJson: it is not a JSON file.
        UnsupportedVersion: a later release wrote it.
        SchemaViolation: with the JSON pointer of what is missing or wrong, or the kind of document that it is.
    """
    try:
        return decode_capability(read_json(path), str(path))
    except InvalidJson as error:
        raise damaged(error, "capability") from error


def decode_capability(value: JsonValue, source: str) -> Capability:
    """The capability document that `value` is; errors name `source`, see `load_capability`."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    if isinstance(version, str) and re.match(r"[0-9]+\.", version) and version.split(".")[0] not in _KNOWN_MAJORS:
        raise UnsupportedVersion(
            f"{source} is a capability document of version {version[:20]}",
            hint="this release reads versions 1 and 2: update vllm-probe",
        )
    try:
        return codec.from_json(Capability, value)
    except SchemaViolation as error:
        hint = f"run `vllm-probe capability validate {shlex.quote(source)}`"
        raise misshapen(error, value, "capability", source, hint) from error


def search_path(manager: PortableDeviceManager, fingerprint: str) -> tuple[Place, ...]:
    """Where descriptors are looked for on the machine `fingerprint`, first match first."""
    host = manager.host
    named = (host.env("VLLM_PROBE_CAPABILITY_PATH") or "").split(os.pathsep)
    state, data = state_folder(host, fingerprint), _home_folder(host, "XDG_DATA_HOME", ".local/share")
    return (
        Place(name="current folder", path=Path()),
        *(Place(name="VLLM_PROBE_CAPABILITY_PATH", path=Path(folder)) for folder in named if folder),
        Place(name="machine-wide", path=Path("/etc/vllm-probe/capabilities")),
        *((Place(name="measured here", path=state),) if state else ()),
        *((Place(name="your own", path=data / "capabilities"),) if data else ()),
        *_plugin_places(manager),
        Place(name="bundled", path=resource_dir("capabilities"), shipped=True),
    )


def state_folder(host: Host, fingerprint: str) -> Path | None:
    """Where measurements of the machine `fingerprint` are kept; null when there is no home to keep them in."""
    folder = _home_folder(host, "XDG_STATE_HOME", ".local/state")
    return folder / fingerprint.replace(":", "_") if folder else None


def file_name(device_id: str) -> str:
    """Name of the descriptor file of a device."""
    return re.sub("[:/]", "_", device_id) + _SUFFIX


def descriptor_name(path: Path) -> str:
    """What a user calls the descriptor in the file at `path`: its name without the ending."""
    return path.name.removesuffix(_SUFFIX)


def descriptor_files(place: Place) -> tuple[Path, ...]:
    """The descriptors at `place`: `capability.json` first, then by name."""
    if place.path.is_file():
        return (place.path,)
    plain = place.path / "capability.json"
    return (*((plain,) if plain.is_file() else ()), *sorted(place.path.glob(f"*{_SUFFIX}")))


def named_capability(name: str, manager: PortableDeviceManager, fingerprint: str) -> tuple[Path, Capability]:
    """The descriptor that a user named, as `named_file`.

    Raises:
        UnknownName: there is none, with near misses.
        InputError: the file cannot be used, see `load_capability`.
    """
    path = named_file(name, manager, fingerprint)
    return path, load_capability(path)


def named_file(name: str, manager: PortableDeviceManager, fingerprint: str) -> Path:
    """The file that a user named: its path, or its stem on the search path.

    Raises:
        UnknownName: neither, with near misses.
    """
    path = Path(name)
    if path.is_file() or path.suffix == ".json" or len(path.parts) > 1:
        return path
    known: dict[str, Path] = {}
    for place in search_path(manager, fingerprint):
        for file in descriptor_files(place):
            known.setdefault(descriptor_name(file), file)
    if name not in known:
        from difflib import get_close_matches

        near = [each for each in sorted(known) if name and each.startswith(name.lower())]
        near = near or get_close_matches(name.lower(), known, n=5, cutoff=0.4)
        hint = f"did you mean {', '.join(near[:5])}? " if near else "give a file, or one of those that "
        hint += "`vllm-probe capability list` shows" + (" all" if near else "")
        raise UnknownName(f"no capability descriptor is called {name!r}", hint=hint)
    return known[name]


def find_descriptors(
    device: Device, manager: PortableDeviceManager, fingerprint: str, *, replayed: bool = False
) -> tuple[SearchResult, ...]:
    """Every descriptor on the search path in order, at most one of them used: the first that describes `device`.

    On a replay only those of plug-ins and our own count, since the others describe the machine it runs on.
    """
    torch = installed(manager.host, "torch")
    results: list[SearchResult] = []
    for place in search_path(manager, fingerprint):
        if replayed and not place.shipped:
            results.append(SearchResult(place=place, path=place.path, reason="not looked at on a replay"))
            continue
        files = descriptor_files(place)
        if not files:
            results.append(SearchResult(place=place, path=place.path, reason="no descriptor there"))
        for file in files:
            try:
                sketch = _sketch(file, file.stat().st_mtime_ns) if place.shipped else load_capability(file)
                against = _mismatch(sketch, device, manager, place)
                capability = None if against else load_capability(file) if place.shipped else sketch
            except ProbeError as error:
                results.append(SearchResult(place=place, path=file, reason=str(error)))
                continue
            if capability:
                against = (
                    _elsewhere(capability, device, place)
                    if capability.host_fingerprint not in {None, fingerprint}
                    else _stale(capability, device, torch)
                )
            taken = any(result.used for result in results)
            reason = against or ("an earlier one is used" if taken else "describes the device")
            used = not against and not taken
            results.append(SearchResult(place=place, path=file, used=used, reason=reason, capability=capability))
    return tuple(results)


@cache
def _sketch(file: Path, changed_ns: int) -> Capability:  # noqa: ARG001 - of the key
    """Whom the shipped document at `file` is for: the rest of its many values is read where it is for the device."""
    value = read_json(file)
    parts = {key: value[key] for key in ("device_type", "device", "memory", "host_fingerprint") if key in value}
    return decode_capability({"compute_units": {}, "memory": {}, "dma": {}, **parts}, str(file))


def datasheet_of(device: Device, manager: PortableDeviceManager, fingerprint: str) -> tuple[str, Capability] | None:
    """Name and content of the shipped descriptor of such a card that nobody measured; null when there is none."""
    for result in find_descriptors(device, manager, fingerprint):
        sheet, shipped = result.capability, result.place.shipped
        if sheet and shipped and sheet.host_fingerprint is None and not _mismatch(sheet, device, manager, result.place):
            return descriptor_name(result.path), sheet
    return None


def _mismatch(capability: Capability, device: Device, manager: PortableDeviceManager, place: Place) -> str | None:
    """Why the document describes another kind of device. A user may spell a name in any way, a release may not."""
    plugin = manager.plugin_for(device.vendor)
    types = plugin.device_types if plugin else (device.vendor,)
    if capability.device_type not in types:
        return f"is for device type {capability.device_type}, not {types[0]}"
    if _differ(capability.device.arch, device.arch):
        return f"is for {capability.device.arch}, not {device.arch}"
    return _other_card(capability, device) if place.shipped else None


def _other_card(capability: Capability, device: Device) -> str | None:
    """Why a shipped document describes another card: its name, or under one name another size of memory."""
    identity, seen = capability.device, device.memory.reported_bytes
    if identity.name and device.name not in (identity.name, *identity.also):
        return f"is for {identity.name}, not {device.name or 'a device whose name is unknown'}"
    size = capability.memory.total_bytes
    if size and seen and abs(seen - size) > size * _RESERVED:
        return f"is for {format_bytes(size)} of memory, not {format_bytes(seen)}"
    return None


def _elsewhere(capability: Capability, device: Device, place: Place) -> str | None:
    """Why a document measured on another machine does not serve here.

    What a release ships for a card serves every card of that name. A device that lives in the host's memory is as
    fast as that host, so no other machine's figures hold for it.
    """
    name = capability.device.name
    if place.shipped and device.memory.kind != "shared" and name and name == device.name:
        return None
    return f"was measured on another machine ({capability.host_fingerprint}); name it with --capability to use it"


def _stale(capability: Capability, device: Device, torch: str | None) -> str | None:
    """Why a document of this machine, or of none, does not hold any more."""
    identity = capability.device
    if _differ(identity.id, device.id):
        return f"is for the device {identity.id}"
    for what, then, now in (("driver", identity.driver, device.driver), ("torch", identity.torch, torch)):
        if _differ(then, now):
            return f"is stale: {what} was {then} and is {now}"
    return None


def _differ(then: str | None, now: str | None) -> bool:
    return then is not None and now is not None and then != now


def _plugin_places(manager: PortableDeviceManager) -> Iterator[Place]:
    for plugin in manager.plugins:
        package, _, folder = (plugin.capabilities or "").partition(":")
        spec = find_spec(package) if package else None
        for location in (spec and spec.submodule_search_locations) or ():
            yield Place(name=f"plug-in {plugin.name}", path=Path(location) / folder, shipped=True)


def _home_folder(host: Host, variable: str, default: str) -> Path | None:
    home = host.env("HOME") or host.env("USERPROFILE")
    base = host.env(variable) or (home and f"{home}/{default}")
    return Path(base) / "vllm-probe" if base else None

"""What is here and what is wrong: hosts, plug-ins, inventory, descriptors, diagnosis."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.core.errors import InvalidJson, SchemaViolation, UnknownName, UnwritableOutput

if TYPE_CHECKING:
    from vllm_probe.core.device import Device, Diagnosis, Finding, Inventory
    from vllm_probe.core.mistaken import Wanted
    from vllm_probe.core.system import Host
    from vllm_probe.vendors.descriptors import SearchResult
    from vllm_probe.vendors.listing import Descriptor
    from vllm_probe.vendors.registry import PortableDeviceManager


@contextmanager
def naming(path: Path, wanted: "Wanted") -> Iterator[None]:
    """Says of an error in the document at `path` where it is and what makes or takes such a document."""
    try:
        yield
    except (InvalidJson, SchemaViolation) as error:
        from vllm_probe.core.files import read_json
        from vllm_probe.core.mistaken import damaged, misshapen

        if isinstance(error, InvalidJson):
            raise damaged(error, wanted) from error
        hint = f"compare it with `vllm-probe schema {wanted}`"
        raise misshapen(error, read_json(path), wanted, str(path), hint) from error


def open_host(replay: Path | None = None) -> "Host":
    """This machine, or the one recorded at `replay`.

    Raises:
        UnreadableFile, InvalidJson, SchemaViolation, UnsupportedVersion: the recording cannot be used.
    """
    if replay:
        from vllm_probe.host.replay import load_host

        scene = replay / "scene.json" if replay.is_dir() else replay
        with naming(scene, "scene"):
            return load_host(scene)
    from vllm_probe.host.local import LocalHost

    return LocalHost()


def is_replay(host: "Host") -> bool:
    """Whether `host` stands for another machine."""
    from vllm_probe.host.local import LocalHost

    return not isinstance(host, LocalHost)


def discover(host: "Host") -> "PortableDeviceManager":
    """The vendor plug-ins, and those that were refused.

    Raises:
        BadUsage: `VLLM_PROBE_PLUGINS` names a plug-in that does not exist.
    """
    from vllm_probe.vendors.registry import PortableDeviceManager

    return PortableDeviceManager.discover(host)


def inventory(host: "Host | None" = None, *, vendor: str | None = None, wakes: bool = False) -> "Inventory":
    """What is on this machine, or on `host`; with `vendor` that vendor's devices only.

    Nothing that sleeps is asked, unless `wakes`: then it wakes.

    Raises:
        UnknownName: no plug-in is called `vendor`.
    """
    from vllm_probe.detect.inventory import take_inventory
    from vllm_probe.host.fingerprint import make_stamp

    host = host or open_host()
    host.wakes = wakes
    manager, stamp = discover(host), make_stamp(host)
    if vendor:
        plugin = manager.plugin_for(vendor)
        if plugin is None:
            known = ", ".join(plugin.name for plugin in manager.plugins)
            raise UnknownName(f"no vendor plug-in is called {vendor!r}", hint=f"the plug-ins here are {known}")
        manager = type(manager)(host, (plugin,), manager.refused, manager.distributions)

    def descriptor_of(device: "Device") -> str | None:
        return next((str(found.path) for found in search(device, manager, stamp.host_fingerprint) if found.used), None)

    return take_inventory(host, manager, stamp, descriptor_of, _broken(manager, stamp.host_fingerprint))


def judged_devices(manager: "PortableDeviceManager") -> "tuple[Device, ...]":
    """The devices of the manager's host, judged; without the search for their descriptors."""
    from vllm_probe.detect.inventory import take_inventory
    from vllm_probe.host.fingerprint import make_stamp

    return take_inventory(manager.host, manager, make_stamp(manager.host), lambda _: None).devices


def search(device: "Device", manager: "PortableDeviceManager", fingerprint: str) -> "tuple[SearchResult, ...]":
    """Every capability descriptor on the search path of the manager's host, and which of them describes `device`."""
    from vllm_probe.vendors.descriptors import find_descriptors

    return find_descriptors(device, manager, fingerprint, replayed=is_replay(manager.host))


def descriptors(host: "Host | None" = None) -> "tuple[Descriptor, ...]":
    """Every capability descriptor on the search path of this machine or of `host`, with the devices it serves."""
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import search_path
    from vllm_probe.vendors.listing import list_descriptors

    host = host or open_host()
    manager, fingerprint = discover(host), host_fingerprint(host)
    found = {device.id: search(device, manager, fingerprint) for device in judged_devices(manager)}
    return list_descriptors(search_path(manager, fingerprint), found)


def doctor(
    host: "Host | None" = None, *, log: str | None = None, log_path: str | None = None, record: Path | None = None
) -> "Diagnosis":
    """What is wrong on this machine, or on `host`, or in the text `log`, and what fixes it.

    `log_path` is the file that the text is from, which commands that fix something name.

    With `record` everything that this, `inventory` and `negotiate` read of the machine is also written, scrubbed, to
    `scene.json` in that new folder.

    Raises:
        UnwritableOutput: the folder holds a recording already or cannot be written.
    """
    from vllm_probe.detect.doctor import diagnose
    from vllm_probe.host.fingerprint import make_stamp

    host = host or open_host()
    transcripts = _transcripts(host)
    manager, stamp = discover(host), make_stamp(host)
    broken = _broken(manager, stamp.host_fingerprint)
    if record is None:
        return diagnose(host, manager, stamp, log, transcripts, log_path, known=broken)
    from vllm_probe.host.record import RecordingHost, write_recording
    from vllm_probe.models.cache import cache_folder

    if (record / "scene.json").exists():
        raise UnwritableOutput(f"{record} holds a recording already", hint="name a new folder")
    recorder = RecordingHost(host)
    found = diagnose(recorder, discover(recorder), make_stamp(recorder), log, transcripts, log_path, known=broken)
    inventory(recorder)
    cache_folder(recorder)
    write_recording(recorder, record)
    return found


def _broken(manager: "PortableDeviceManager", fingerprint: str) -> "tuple[Finding, ...]":
    """What cannot be read among the descriptors of this machine; those beside a replay are another's."""
    if is_replay(manager.host):
        return ()
    from vllm_probe.vendors.broken import broken_descriptors

    return tuple(broken_descriptors(manager, fingerprint))


def _transcripts(host: "Host") -> tuple[str, ...]:
    """What commands printed that a recording holds and nothing here runs."""
    if not is_replay(host):
        return ()
    from vllm_probe.host.replay import ReplayHost

    return host.transcripts() if isinstance(host, ReplayHost) else ()

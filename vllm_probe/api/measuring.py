"""Measuring: `bench`, and where its documents go."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.api.looking import discover, open_host
from vllm_probe.core.errors import DeviceUnavailable, UnwritableOutput
from vllm_probe.core.progress import Progress, silent

if TYPE_CHECKING:
    from vllm_probe.bench.expectations import Expectations
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.device import Device, Inventory
    from vllm_probe.core.system import Host
    from vllm_probe.vendors.registry import PortableDeviceManager

_log = logging.getLogger(__name__)


def bench(  # noqa: PLR0913 - the options of the command
    host: "Host | None" = None,
    *,
    device: str | None = None,
    quick: bool = False,
    only: frozenset[str] = frozenset(),
    sustained_s: float | None = None,
    output: Path | None = None,
    progress: Progress = silent,
) -> "tuple[Capability, ...]":
    """Measures the picked device, the one that `device` names, or `all` usable ones.

    Each document is written to `output`: a file, or for `all` a folder. One that measured everything is also kept for
    this machine. After every test the document so far stands in `<file>.partial`, from which the next run goes on.
    Compiled implementations are tried where `only` names primitives, and from then on unless it is to be quick.

    Raises:
        UnwritableOutput: before anything is measured.
        DeviceNotFound, DeviceUnavailable, MissingExtra: the device cannot be used.
        UnknownName: `only` names no measurement.
        Interrupted: on Ctrl-C, with the place of the partial document.
    """
    from vllm_probe.bench.plan import GROUPS, NEEDED, make_plan
    from vllm_probe.bench.store import measure
    from vllm_probe.core.codec import dumps
    from vllm_probe.core.files import make_folder, require_writable, write_private
    from vllm_probe.detect.inventory import take_inventory
    from vllm_probe.detect.select import select_device
    from vllm_probe.host.fingerprint import make_stamp
    from vllm_probe.vendors.descriptors import COMPILED, file_name, state_folder

    host = host or open_host()
    manager, stamp = discover(host), make_stamp(host)
    inventory = take_inventory(host, manager, stamp, lambda _: None)
    devices = inventory.devices
    every = device == "all"
    chosen = [on for on in devices if on.usable] if every else [select_device(devices, device, manager)]
    state = state_folder(host, stamp.host_fingerprint)
    keeps = not only or only >= NEEDED
    if not keeps and only.issubset(GROUPS):
        _log.warning("only %s is measured: the result is not kept for this machine", ", ".join(sorted(only)))
    try:
        if state:
            make_folder(state)
            require_writable(state / "capability.json")
    except UnwritableOutput as error:
        _log.warning("the result is not kept for this machine: %s", error)
        state = None
    if output and every:
        make_folder(output)
    made = []
    for on in chosen:
        if not on.usable:
            raise DeviceUnavailable(f"{on.id} cannot be used: {on.verdict.reason}", hint="run `vllm-probe doctor`")
        kept = state / file_name(on.id) if state and keeps else None
        if kept and (quick or only) and _is_whole(kept, host):
            _log.warning("the result is not kept for this machine: %s holds a whole bench", kept)
            kept = None
        target = output / file_name(on.id) if output and every else output or kept
        if target:
            require_writable(target)
        known = _expectations(on, manager, stamp.host_fingerprint, inventory)
        plan = make_plan(on, quick, only, known, host, sustained_s)
        adapter = manager.adapter_for(on)
        if state and ("primitives" in only or (not quick and any((state / COMPILED).glob("*/*")))):
            adapter.compile_folder = state / COMPILED
        made.append(measure(adapter, plan, stamp, target, progress))
        if kept and kept != target:
            write_private(kept, dumps(made[-1]))
    return tuple(made)


def _is_whole(kept: Path, host: "Host") -> bool:
    """Whether the document at `kept` leaves nothing out and was measured with the torch that is here."""
    from vllm_probe.core.errors import InputError
    from vllm_probe.vendors.descriptors import load_capability
    from vllm_probe.vendors.software import installed

    try:
        document = load_capability(kept)
    except InputError:
        return False
    left_out = any(" leaves " in reason for reason in document.unknown.values())
    return not left_out and document.device.torch in {None, installed(host, "torch")}


def _expectations(
    device: "Device", manager: "PortableDeviceManager", fingerprint: str, inventory: "Inventory"
) -> "Expectations":
    from vllm_probe.bench.expectations import Expectations, published
    from vllm_probe.vendors.descriptors import datasheet_of

    name, datasheet = datasheet_of(device, manager, fingerprint) or ("", None)
    where = f"/devices/{next(i for i, each in enumerate(inventory.devices) if each.id == device.id)}"
    unknown = {key.removeprefix(where): why for key, why in inventory.unknown.items() if key.startswith(f"{where}/")}
    return Expectations(device=device, datasheet=datasheet, published=published(name), unknown=unknown)

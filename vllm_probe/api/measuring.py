"""Measuring: `bench`, and where its documents go."""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_probe.api.looking import discover, open_host
from vllm_probe.core.errors import DeviceHung, DeviceUnavailable, ProbeError, Unavailable, UnwritableOutput
from vllm_probe.core.progress import Progress, silent

if TYPE_CHECKING:
    from vllm_probe.bench.expectations import Expectations
    from vllm_probe.bench.plan import BenchPlan
    from vllm_probe.core.adapter import HardwareAdapter
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.device import Device, Inventory
    from vllm_probe.core.document import Stamp
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
        DeviceUnavailable: of `all`, some cannot, which cost no other; the error has the documents of those.
        UnknownName: `only` names no measurement.
        Interrupted: on Ctrl-C, with the place of the partial document.
    """
    from vllm_probe.bench.plan import GROUPS, NEEDED
    from vllm_probe.detect.inventory import take_inventory
    from vllm_probe.detect.select import select_device
    from vllm_probe.host.fingerprint import make_stamp

    host = host or open_host()
    manager, stamp = discover(host), make_stamp(host)
    inventory = take_inventory(host, manager, stamp, lambda _: None)
    keeps = not only or only >= NEEDED
    if not keeps and only.issubset(GROUPS):
        _log.warning("only %s is measured: the result is not kept for this machine", ", ".join(sorted(only)))
    state = _state(host, stamp)
    run = _Run(host, manager, stamp, inventory, quick, only, sustained_s, state, state if keeps else None, progress)
    if device == "all":
        return run.measure_all(output)
    return (run.measure(select_device(inventory.devices, device, manager), output),)


def _state(host: "Host", stamp: "Stamp") -> Path | None:
    """The folder of this machine's own documents, null where none can be written."""
    from vllm_probe.core.files import make_folder, require_writable
    from vllm_probe.vendors.descriptors import state_folder

    state = state_folder(host, stamp.host_fingerprint)
    try:
        if state:
            make_folder(state)
            require_writable(state / "capability.json")
    except UnwritableOutput as error:
        _log.warning("the result is not kept for this machine: %s", error)
        return None
    return state


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of `bench`: what all of its devices have in common.

    Attributes:
        state: folder of this machine's own documents, null where none can be written.
        keeps_in: the same where the documents of this run are for it.
        hung: devices that hang in this process.
    """

    host: "Host"
    manager: "PortableDeviceManager"
    stamp: "Stamp"
    inventory: "Inventory"
    quick: bool
    only: frozenset[str]
    sustained_s: float | None
    state: Path | None
    keeps_in: Path | None
    progress: Progress
    hung: list[str] = field(default_factory=list)

    def measure_all(self, folder: Path | None) -> "tuple[Capability, ...]":
        """Every usable device, each apart from the others; the documents go to `folder`."""
        from vllm_probe.core.files import make_folder, require_writable
        from vllm_probe.vendors.descriptors import file_name

        chosen = [on for on in self.inventory.devices if on.usable]
        if folder:
            make_folder(folder)
            for on in chosen:
                require_writable(folder / file_name(on.id))
        made: list[Capability] = []
        failed: dict[str, Unavailable] = {}
        for on in chosen:
            try:
                made.append(self.measure(on, folder and folder / file_name(on.id)))
            except Unavailable as error:
                failed[on.id] = error
                self.hung.extend([on.id] if isinstance(error, DeviceHung) else [])
        if failed:
            raise _failure(failed, tuple(made))
        return tuple(made)

    def measure(self, on: "Device", output: Path | None) -> "Capability":
        """The document of `on`, written to `output` and kept."""
        from vllm_probe.bench.store import measure
        from vllm_probe.core.codec import dumps
        from vllm_probe.core.files import require_writable, write_private

        if not on.usable:
            raise DeviceUnavailable(f"{on.id} cannot be used: {on.verdict.reason}", hint="run `vllm-probe doctor`")
        kept = self._kept(on)
        target = output or kept
        if target:
            require_writable(target)
        plan, adapter = self._plan(on), self._adapter(on)
        made = measure(adapter, plan, self.stamp, target, self.progress)
        if kept and kept != target:
            write_private(kept, dumps(made))
        return made

    def _kept(self, on: "Device") -> Path | None:
        """Where the document of `on` is kept for this machine, if it is."""
        from vllm_probe.vendors.descriptors import file_name

        kept = self.keeps_in and self.keeps_in / file_name(on.id)
        if kept and (self.quick or self.only) and _is_whole(kept, self.host):
            _log.warning("the result is not kept for this machine: %s holds a whole bench", kept)
            return None
        return kept

    def _plan(self, on: "Device") -> "BenchPlan":
        from vllm_probe.bench.plan import make_plan

        known = _expectations(on, self.manager, self.stamp.host_fingerprint, self.inventory)
        plan = make_plan(on, self.quick, self.only, known, self.host, self.sustained_s)
        return replace(plan, doubts=tuple(f"{each} hangs in the same process" for each in self.hung))

    def _adapter(self, on: "Device") -> "HardwareAdapter[Any]":
        from vllm_probe.bench.doubt import describe
        from vllm_probe.vendors.descriptors import COMPILED

        try:
            adapter = self.manager.adapter_for(on)
        except (ProbeError, ModuleNotFoundError):
            raise
        except (Exception, SystemExit) as error:  # isolation point: a plug-in's constructor may raise anything
            message = f"{on.id} cannot be opened: {describe(error)}"
            raise DeviceUnavailable(message, hint="run `vllm-probe doctor`") from error
        if self.state and ("primitives" in self.only or (not self.quick and any((self.state / COMPILED).glob("*/*")))):
            adapter.compile_folder = self.state / COMPILED
        return adapter


def _failure(causes: "dict[str, Unavailable]", measured: "tuple[Capability, ...]") -> DeviceUnavailable:
    """The one error of several devices, by id, with the documents of the others."""
    told = (str(error) if id_ in str(error) else f"{id_}: {error}" for id_, error in causes.items())
    message = f"{len(causes)} of {len(causes) + len(measured)} devices were not measured: {'; '.join(told)}"
    hung = any(isinstance(error, DeviceHung) for error in causes.values())
    hint = "; ".join(dict.fromkeys(error.hint for error in causes.values()))
    failure = (DeviceHung if hung else DeviceUnavailable)(message, hint=hint)
    failure.measured = measured
    return failure


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

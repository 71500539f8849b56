"""Where a bench writes: a partial document after every test, the finished one at the end."""

import logging
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from threading import Event
from typing import Any

from vllm_probe.bench.doubt import describe
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.run import HUNG, BenchRun
from vllm_probe.bench.trail import Trail
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import dumps
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import DeviceHung, DeviceUnavailable, InputError, Interrupted, ProbeError
from vllm_probe.core.files import is_private, is_stream, write_private
from vllm_probe.core.progress import Progress
from vllm_probe.core.worker import Worker
from vllm_probe.vendors.descriptors import load_capability

_log = logging.getLogger(__name__)

_GRACE_S = 5.0
"""Time for the test that runs to end once Ctrl-C was pressed."""


def measure(
    adapter: HardwareAdapter[Any], plan: BenchPlan, stamp: Stamp, target: Path | None, progress: Progress
) -> Capability:
    """Runs `plan` on the device of `adapter` and writes the document to `target`, if there is one.

    Until the end `target` stays as it was and `<target>.partial` holds what is measured, which the next run of the
    same machine takes up. A device or pipe gets the finished document only.

    Raises:
        Interrupted: on Ctrl-C, saying where the partial document is.
        DeviceUnavailable: it cannot be opened.
        DeviceHung: a call into the device did not return; it still runs, in a thread of its own.
        UnwritableOutput: the folder went away or is full.
    """
    bench = _Bench(adapter, plan, stamp, target, progress)
    try:
        with redirect_stdout(sys.stderr):  # what the adapter prints; a document may follow on stdout
            made = bench.run()
        if target:
            write_private(target, dumps(made))
    except KeyboardInterrupt:
        hint = "run the same command again "
        hint += "to go on from there" if bench.keeps else "to measure from the start"
        raise Interrupted(f"interrupted, {bench.kept}", hint=hint) from None
    bench.forget()
    return made


class _Bench:
    """One run, in a thread that a hanging device keeps for itself."""

    def __init__(
        self, adapter: HardwareAdapter[Any], plan: BenchPlan, stamp: Stamp, target: Path | None, progress: Progress
    ) -> None:
        self.partial = target.with_name(f"{target.name}.partial") if target and not is_stream(target) else None
        self._trail = Trail(self.partial and self.partial.with_name(f"{self.partial.name}.trail"))
        self._adapter, self._plan, self._stamp, self._progress = adapter, plan, stamp, progress
        self._stop = Event()
        self._step = "the opening of the device"
        self._running: BenchRun | None = None

    def run(self) -> Capability:
        worker = Worker(self._work)
        try:
            worker.start()
            if worker.wait(self._plan.stop_s):
                return worker.result()
        except KeyboardInterrupt:
            self._stop.set()
            worker.wait(_GRACE_S)
            raise
        finally:
            self._trail.end()
            if worker.wait(0.0):
                self._close()
        raise self._hung()

    @property
    def keeps(self) -> bool:
        """Whether there is something on disk of an unfinished run."""
        return bool(self.partial and self.partial.exists())

    @property
    def kept(self) -> str:
        """What that is, in words."""
        return f"{self.partial} keeps what was measured" if self.keeps else "nothing was kept"

    def forget(self) -> None:
        """Removes what only an unfinished run needs."""
        if self.partial:
            self.partial.unlink(missing_ok=True)
        self._trail.forget()

    def _work(self) -> Capability:
        self._open()
        earlier = _earlier(self.partial)
        self._running = BenchRun(self._adapter, self._plan, self._stamp, earlier)
        if earlier and self._running.resumed:
            self._trail.take_up()
            _log.warning("went on from %s: %s", (earlier.created_at or "")[11:16], self.partial)
            if self._trail.last:
                _log.warning("the process ended during %s", self._trail.last)
        else:
            self._trail.forget()  # it tells of another run
        return self._running.run(self._save, self._begin, self._trail.fatal)

    def _open(self) -> None:
        """Opens the adapter.

        Raises:
            DeviceUnavailable: it raised something of its own.
        """
        try:
            self._adapter.open()
        except ProbeError:
            raise
        except (Exception, SystemExit) as error:  # isolation point: a driver may raise anything
            message = f"{self._adapter.device.id} cannot be opened: {describe(error)}"
            raise DeviceUnavailable(message, hint="run `vllm-probe doctor`") from error

    def _close(self) -> None:
        """Closes the adapter; what goes wrong then costs nothing that was measured."""
        closing = Worker(self._adapter.close)
        try:
            closing.start()
            if closing.wait(_GRACE_S):
                closing.result()
            else:
                _log.warning("%s did not close within %g s", self._adapter.device.id, _GRACE_S)
        except Exception as error:  # noqa: BLE001 isolation point: a driver may raise anything
            _log.warning("%s did not close: %s", self._adapter.device.id, describe(error))

    def _begin(self, step: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._step = step
        self._trail.begin(step)
        self._progress(step, done, total)

    def _save(self, document: Capability) -> None:
        if self.partial:
            write_private(self.partial, dumps(document), is_ours=True)

    def _hung(self) -> DeviceHung:
        """The error of a test that never ended; what the others gave until then is written down with it."""
        if self._running:
            self._save(self._running.given_up(self._step))
        said = f"{self._step}{HUNG}: bench was given up after {self._plan.stop_s:g} s"
        hint = "`vllm-probe doctor` looks for what holds the device"
        hint += "; the same command goes on without that test" if self._running and self.keeps else ""
        return DeviceHung(f"{self._adapter.device.id}: {said}, {self.kept}", hint=hint)


def _earlier(partial: Path | None) -> Capability | None:
    with suppress(InputError):  # written by another release
        return load_capability(partial) if partial and is_private(partial) else None
    return None

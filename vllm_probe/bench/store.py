"""Where a bench writes: a partial document after every test, the finished one at the end."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from vllm_probe.bench.plan import NOT_RUN, BenchPlan
from vllm_probe.bench.run import run_bench
from vllm_probe.bench.worker import Worker
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import dumps
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import DeviceHung, InputError, Interrupted
from vllm_probe.core.files import is_stream, write_private
from vllm_probe.core.progress import Progress
from vllm_probe.vendors.descriptors import load_capability

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
        DeviceHung: a call into the device did not return; it still runs, in a thread of its own.
        UnwritableOutput: the folder went away or is full.
    """
    bench = _Bench(adapter, plan, stamp, target, progress)
    made = bench.run()
    if target:
        write_private(target, dumps(made))
    if bench.partial:
        bench.partial.unlink(missing_ok=True)
    return made


class _Bench:
    """One run, in a thread that a hanging device keeps for itself."""

    def __init__(
        self, adapter: HardwareAdapter[Any], plan: BenchPlan, stamp: Stamp, target: Path | None, progress: Progress
    ) -> None:
        self.partial = target.with_name(f"{target.name}.partial") if target and not is_stream(target) else None
        self._adapter, self._plan, self._stamp, self._progress = adapter, plan, stamp, progress
        self._stop = Event()
        self._step = "the opening of the device"
        self._last: Capability | None = None

    def run(self) -> Capability:
        worker = Worker(self._work)
        try:
            if worker.wait(self._plan.stop_s):
                return worker.result()
        except KeyboardInterrupt:
            self._stop.set()
            worker.wait(_GRACE_S)
            hint = "run the same command again to go on from there"
            raise Interrupted(f"interrupted, {self._kept()}", hint=hint) from None
        raise self._hung()

    def _work(self) -> Capability:
        try:
            self._adapter.open()
            return run_bench(
                self._adapter,
                self._plan,
                self._stamp,
                resume_from=_earlier(self.partial),
                save=self._save,
                progress=self._begin,
            )
        finally:
            self._adapter.close()

    def _begin(self, step: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._step = step
        self._progress(step, done, total)

    def _save(self, document: Capability) -> None:
        self._last = document
        if self.partial:
            write_private(self.partial, dumps(document))

    def _hung(self) -> DeviceHung:
        """The error of a test that never ended, written down for it and for what comes after it."""
        said = f"{self._step} did not end: bench was given up after {self._plan.stop_s:g} s"
        if self._last:
            self._save(_given_up(self._last, said))
        hint = "`vllm-probe doctor` looks for what holds the device; --only leaves a test out"
        return DeviceHung(f"{self._adapter.device.id}: {said}, {self._kept()}", hint=hint)

    def _kept(self) -> str:
        there = self.partial and self.partial.exists()
        return f"{self.partial} keeps what was measured" if there else "nothing was kept"


def _given_up(document: Capability, reason: str) -> Capability:
    """`document` with the error that ended it in place of all that had not run."""
    pending = {pointer for pointer, why in document.unknown.items() if why == NOT_RUN}
    abouts = {
        pointer: replace(about, status="error", reason=reason) if pointer in pending else about
        for pointer, about in document.measurements.items()
    }
    unknown = document.unknown | dict.fromkeys(pending, reason)
    return replace(document, measurements=abouts, unknown=unknown)


def _earlier(partial: Path | None) -> Capability | None:
    with suppress(InputError):  # absent, or written by another release
        return load_capability(partial) if partial else None
    return None

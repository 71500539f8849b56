"""Where a bench writes: a partial document after every test, the finished one at the end."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.run import run_bench
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import dumps
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import InputError, Interrupted
from vllm_probe.core.files import is_stream, write_private
from vllm_probe.core.progress import Progress
from vllm_probe.vendors.descriptors import load_capability


def measure(
    adapter: HardwareAdapter[Any], plan: BenchPlan, stamp: Stamp, target: Path | None, progress: Progress
) -> Capability:
    """Runs `plan` on the device of `adapter` and writes the document to `target`, if there is one.

    Until the end `target` stays as it was and `<target>.partial` holds what is measured, which the next run of the
    same machine takes up. A device or pipe gets the finished document only.

    Raises:
        Interrupted: on Ctrl-C, saying where the partial document is.
        UnwritableOutput: the folder went away or is full.
    """
    partial = target.with_name(f"{target.name}.partial") if target and not is_stream(target) else None

    def save(document: Capability) -> None:
        if partial:
            write_private(partial, dumps(document))

    try:
        adapter.open()
        made = run_bench(adapter, plan, stamp, resume_from=_earlier(partial), save=save, progress=progress)
    except KeyboardInterrupt:
        kept = f"{partial} keeps what was measured" if partial and partial.exists() else "nothing was kept"
        raise Interrupted(f"interrupted, {kept}", hint="run the same command again to go on from there") from None
    finally:
        adapter.close()
    if target:
        write_private(target, dumps(made))
    if partial:
        partial.unlink(missing_ok=True)
    return made


def _earlier(partial: Path | None) -> Capability | None:
    with suppress(InputError):  # absent, or written by another release
        return load_capability(partial) if partial else None
    return None

"""`vllm-probe bench`: what a device can really do."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vllm_probe.cli.options import AsJson

if TYPE_CHECKING:
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.errors import DeviceUnavailable

_ACCESSES = ("/memory/read_gb_s", "/memory/copy_gb_s", "/memory/triad_gb_s")

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def bench(
    ctx: typer.Context,
    device: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Device id, vendor or device type, or all.", show_default="the picked device"),
    ] = None,
    emit: Annotated[
        Path | None,
        typer.Option(
            "--emit",
            "--output",
            metavar="FILE",
            help="Write the capability document there; with all, to that folder.",
            show_default="kept for this machine only",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="About 8 s on an idle machine instead of 30: fewer rounds and curves.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Measure these only, with commas between: gemm, memory, copies, overlap, launch, weight-only, "
            "primitives, group-width, thermal.",
            show_default="everything",
        ),
    ] = None,
    sustained: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=1, max=3600, help="Hold the load that long for the sustained rate.", show_default="4"
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Say what is slower than in that document; exit 1 if anything is.",
            show_default="nothing is compared",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measures number formats and memory of a device, and writes them down as its capability document.

    The document is also kept for this machine, where negotiate finds it. Interrupted, the same command goes on.
    """
    from vllm_probe.core.codec import dumps
    from vllm_probe.core.files import require_writable, write_private

    ctx.obj.refuse_replay("bench")
    baseline = None if compare is None else _baseline(ctx, compare, device)
    chosen = frozenset() if only is None else _groups(only)
    kept_back = emit if baseline and emit and emit.is_file() else None
    if kept_back:
        require_writable(kept_back)
    made, failed = _measured(
        ctx, device=device, quick=quick, only=chosen, sustained_s=sustained, output=None if kept_back else emit
    )
    for document in [made] if as_json and device == "all" else made:
        ctx.obj.emit(document, as_json=as_json, renderer="capability")
    for document in made:
        if disturbed := disturbance(document):
            ctx.obj.say(disturbed)
    if baseline:
        saved = f"{kept_back} stays as it was" if kept_back else f"this run is in {emit}" if emit else ""
        _judge(ctx, baseline, made[0], as_json, saved)
    if kept_back:
        write_private(kept_back, dumps(made[0]))
    if emit and not as_json:
        ctx.obj.say(f"saved {emit}; next: vllm-probe negotiate --model MODEL{_naming(made, emit, device)}")
    if failed:
        _fail(failed)


def _groups(listed: str) -> frozenset[str]:
    """The measurements that a list with commas names; an empty one is refused, since all would run instead."""
    from vllm_probe.bench.plan import GROUPS
    from vllm_probe.core.errors import BadUsage

    found = frozenset(filter(None, (word.strip() for word in listed.split(","))))
    if not found:
        hint = f"the measurements are {', '.join(GROUPS)}; leave --only out for everything"
        raise BadUsage(f"--only {listed!r} names no measurement", hint=hint)
    return found


def _measured(ctx: typer.Context, **options: Any) -> "tuple[tuple[Capability, ...], DeviceUnavailable | None]":
    """The documents, and the error of those devices of all that have none; with that alone the process ends."""
    from vllm_probe import api
    from vllm_probe.core.errors import DeviceUnavailable

    try:
        with ctx.obj.progress("bench") as progress:
            return api.bench(ctx.obj.host, progress=progress, **options), None
    except DeviceUnavailable as error:
        if not error.measured:
            _fail(error)
        return error.measured, error


def _fail(error: "DeviceUnavailable") -> NoReturn:
    """Ends with `error`: where a device hangs, without waiting for its thread."""
    from vllm_probe.cli.exits import leave
    from vllm_probe.core.errors import DeviceHung

    if isinstance(error, DeviceHung):
        leave(error)
    raise error


def _baseline(ctx: typer.Context, name: str, device: str | None) -> "tuple[str, Capability]":
    """The document to compare with, read before anything is measured."""
    from vllm_probe import api
    from vllm_probe.core.errors import BadUsage
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import named_capability

    if device == "all":
        raise BadUsage("--compare takes the document of one device", hint="name the device with --device")
    host = ctx.obj.host
    path, document = named_capability(name, api.discover(host), host_fingerprint(host))
    return str(path), document


def _judge(
    ctx: typer.Context, baseline: "tuple[str, Capability]", made: "Capability", as_json: bool, saved: str
) -> None:
    """Says what changed against the baseline; `saved` tells what became of the file that was named for this run.

    Raises:
        Slower: a value is.
    """
    from vllm_probe.core.errors import Slower
    from vllm_probe.vendors.difference import compare, measured_in_both

    found = measured_in_both(compare(*baseline, "this run", made))
    names = baseline[1].device.name, made.device.name
    if None not in names and names[0] != names[1]:
        ctx.obj.say(f"warning: {baseline[0]} is of another device: {names[0]}, this is {names[1]}")
    if not as_json:
        from vllm_probe.cli.render import difference

        ctx.obj.show(difference.render(found))
    if slower := [change.pointer for change in found.changes if change.outcome == "SLOWER"]:
        message = f"{len(slower)} of the measured values are slower than in {baseline[0]}, or gone: {', '.join(slower)}"
        hint = "run it again on an idle machine; `vllm-probe doctor` looks for throttling"
        hint += f"; {saved}" if saved else ""
        raise Slower(message, hint=hint)


def disturbance(document: "Capability") -> str | None:
    """What is to be said of values that other work on the machine made doubtful, null when there are none."""
    tests = [
        about
        for pointer, about in document.measurements.items()
        if about.samples and (pointer.startswith(_ACCESSES) or re.search(r"/curve/\d+$", pointer))
    ]
    robbed, varied = (sum(about.status == status for about in tests) for status in ("throttled", "noisy"))
    reasons = (
        (robbed, f"in {robbed} of {len(tests)} tests others had the processor, so these values are too low"),
        (varied, f"in {varied} of {len(tests)} tests repetitions differed, so these values are uncertain"),
    )
    said = "; ".join(text for count, text in reasons if count)
    return f"{document.device.id}: the machine was busy: {said}; repeat when idle" if said else None


def _naming(made: "tuple[Capability, ...]", emit: Path, device: str | None) -> str:
    """The option that names the document, where negotiate in this folder does not find it by itself."""
    from vllm_probe.vendors.descriptors import Place, descriptor_files, file_name

    file = emit / file_name(made[0].device.id or "") if device == "all" and made else emit
    found = descriptor_files(Place(name="current folder", path=Path()))
    return "" if file in found else f" --capability {file}"

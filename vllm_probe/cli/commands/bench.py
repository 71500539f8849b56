"""`vllm-probe bench`: what a device can really do."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_probe.cli.options import AsJson

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
    quick: Annotated[bool, typer.Option("--quick", help="At most 8 s instead of 30: fewer rounds and curves.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="LIST", help="Measure these only: gemm, memory.", show_default="everything")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measures number formats and memory of a device, and writes them down as its capability document.

    The document is also kept for this machine, where negotiate finds it. Interrupted, the same command goes on.
    """
    from vllm_probe import api

    ctx.obj.refuse_replay("bench")
    chosen = frozenset(filter(None, (word.strip() for word in (only or "").split(","))))
    with ctx.obj.progress("bench") as progress:
        made = api.bench(ctx.obj.host, device=device, quick=quick, only=chosen, output=emit, progress=progress)
    for document in [made] if as_json and device == "all" else made:
        ctx.obj.emit(document, as_json=as_json, renderer="capability")
    if emit:
        ctx.obj.say(f"saved {emit}; next: vllm-probe negotiate --model MODEL")

"""`vllm-probe detect`: what is here, and is it usable."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_probe.cli.options import AsJson

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def detect(
    ctx: typer.Context,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the inventory document there.", show_default="not saved")
    ] = None,
    vendor: Annotated[
        str | None, typer.Option(metavar="V", help="Look for this vendor's devices only.", show_default="all")
    ] = None,
    wake: Annotated[bool, typer.Option("--wake", help="Ask devices that sleep too, which wakes them.")] = False,
) -> None:
    """Lists every accelerator and says whether it can be used here, and which one would be taken."""
    from vllm_probe import api

    found = api.inventory(ctx.obj.host, vendor=vendor, wakes=wake)
    ctx.obj.emit(found, as_json=as_json, output=output, renderer="inventory")

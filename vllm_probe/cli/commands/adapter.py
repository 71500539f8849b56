"""`vllm-probe adapter`: the vendor plug-ins, and the way to one more."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_probe.cli.options import AsJson

Name = Annotated[str, typer.Argument(metavar="NAME", help="Vendor name, as `adapter list` shows it.")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    help="Vendor plug-ins: which were loaded or refused and why, whether one is right, and how to begin another.",
)


@app.command("list")
def list_plugins(ctx: typer.Context) -> None:
    """Lists the plug-ins that were loaded and those that were refused, with the reason.

    VLLM_PROBE_PLUGINS=name,name restricts what may load.
    """
    from vllm_probe import api
    from vllm_probe.cli.render import plugins

    manager = api.discover(ctx.obj.host)
    ctx.obj.show(plugins.render(manager.plugins, manager.refused))


@app.command()
def check(
    ctx: typer.Context,
    name: Name,
    device: Annotated[
        str | None,
        typer.Option(metavar="ID", help="One of its devices.", show_default="the first usable one"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Runs the conformance suite on the adapter of a plug-in: order, memory, copies, fences, every primitive.

    Exits with 1 when a check fails. What the adapter does not have is skipped, with the reason. Where stderr is no
    terminal, `--log-level info` names each check as it begins, so that the last is the one that crashed.
    """
    from vllm_probe import api

    ctx.obj.refuse_replay("adapter check")
    with ctx.obj.progress("adapter check") as progress:
        report = api.check_adapter(name, ctx.obj.host, device=device, progress=progress)
    ctx.obj.emit(report, as_json=as_json, renderer="conformance")
    return int(report.failed > 0)


@app.command()
def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new vendor: small letters, digits and _.")],
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to put it.", show_default="the current folder")
    ] = None,
) -> None:
    """Writes a package with a minimal adapter that works: install it, check it, then make it your device's.

    Nothing that exists is overwritten.
    """
    from vllm_probe import api

    folder = api.scaffold_adapter(name, output or Path())
    ctx.obj.say(f"wrote {folder}; next: pip install -e {folder} && vllm-probe adapter check {name}")

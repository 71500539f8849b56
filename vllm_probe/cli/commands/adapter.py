"""`vllm-probe adapter`: the vendor plug-ins."""

import typer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    help="Vendor plug-ins: which were loaded, which refused, and why.",
)


@app.callback()
def adapter() -> None:
    """Keeps `list` a sub-command while it is the only one."""


@app.command("list")
def list_plugins(ctx: typer.Context) -> None:
    """Lists the plug-ins that were loaded and those that were refused, with the reason.

    VLLM_PROBE_PLUGINS=name,name restricts what may load.
    """
    from vllm_probe import api
    from vllm_probe.cli.render import plugins

    manager = api.discover(ctx.obj.host)
    ctx.obj.show(plugins.render(manager.plugins, manager.refused))

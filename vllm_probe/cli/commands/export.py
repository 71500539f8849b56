"""`vllm-probe export`: a runtime config as a file of another system."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def export(
    ctx: typer.Context,
    form: Annotated[
        Literal["vllm", "docker", "compose", "k8s"],
        typer.Argument(
            metavar="FORM",
            help="File for `vllm serve --config`, `docker run` line, Compose file, or Kubernetes manifest.",
        ),
    ],
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="Runtime config.", show_default="runtime.json")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Save it there.", show_default="stdout")] = None,
) -> None:
    """Writes a runtime config as a file of another system, with the options that its vLLM version knows.

    Images, device nodes, groups and shared memory are those that the vendor of its device needs. Comments say what
    vLLM would take by itself, what was changed, and why.
    """
    from vllm_probe import api
    from vllm_probe.cli.streams import write
    from vllm_probe.core.errors import BadUsage
    from vllm_probe.core.files import require_writable, write_private

    if output and form == "vllm" and output.suffix not in (".yaml", ".yml"):
        raise BadUsage(f"vLLM reads {output} only under a name that ends in .yaml", hint=f"--output {output}.yaml")
    if output:
        require_writable(output)
    exported = api.export(form, config, ctx.obj.host, file=str(output) if output else None)
    if output is None:
        write(exported.text)
        return
    write_private(output, exported.text)
    ctx.obj.say(f"saved {output}; next: {exported.command}")

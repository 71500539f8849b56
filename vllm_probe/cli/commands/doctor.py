"""`vllm-probe doctor`: what is wrong, and the exact command that fixes it."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_probe.cli.options import AsJson

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def doctor(
    ctx: typer.Context,
    as_json: AsJson = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also record what was read here, scrubbed, as DIR/scene.json for --replay.",
            show_default="not recorded",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            allow_dash=True,
            help="Explain the error text or log in FILE too; - is stdin.",
            show_default="none",
        ),
    ] = None,
) -> int:
    """Says what is wrong with the accelerators here, why, and how to fix it. Nothing is changed.

    Exits with 1 when a finding blocks.
    """
    from vllm_probe import api

    name = str(log) if log and str(log) != "-" else None
    found = api.doctor(ctx.obj.host, log=_log_text(log), log_path=name, record=record)
    ctx.obj.emit(found, as_json=as_json, renderer="diagnosis")
    if record:
        ctx.obj.say(f"recorded {record / 'scene.json'}: look through it, then attach it to a bug report")
    return int(any(finding.blocking for finding in found.findings))


def _log_text(path: Path | None) -> str | None:
    from vllm_probe.cli.streams import read_stdin
    from vllm_probe.core.files import read_document

    if path is None:
        return None
    return read_stdin() if str(path) == "-" else read_document(path)

"""`vllm-probe schema`: the JSON Schemas of the documents."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="capability, doctor, inventory, runtime or scene.")],
) -> None:
    """Prints the JSON Schema (Draft 2020-12) of a document."""
    from vllm_probe.cli.streams import write
    from vllm_probe.core.schema import schema_text

    write(schema_text(name))

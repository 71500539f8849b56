"""Options that several commands have."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the document instead of text.")]
"""`--json`: stdout is exactly what the document's file would hold."""

Device = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Device id, vendor or device type.", show_default="the picked device"),
]
"""`--device`: which one is meant."""

"""The help of every command: typer's, with names that are never cut, through our own stream."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NoReturn

import typer
from rich.table import Table
from rich.text import Text
from typer import rich_utils

from vllm_probe.cli.streams import write

_CELLS = 6
"""Of an option in typer's table: its name, its short name, the two that say no, what it takes, and the help."""


class _Options(Table):
    """Has all names of an option in one column, which is never narrowed: typer cuts them where a line is short."""

    def add_row(self, *cells: Any, **style: Any) -> None:
        """Adds a row, that of an option with its names together."""
        if len(cells) < _CELLS:
            super().add_row(*cells, **style)
            return
        *required, name, short, no, short_no, takes, text = cells
        names = Text(", ").join(each for each in (name, short, no, short_no) if each.plain)
        super().add_row(*required, names, takes, text, **style)
        self.columns[len(required)].no_wrap = True


vars(rich_utils)["Table"] = _Options


class _Kept(io.StringIO):
    """Takes what is for stdout, and looks like it."""

    def isatty(self) -> bool:
        """Whether stdout is a terminal."""
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def show(inherited: Callable[[Any, Any], None], ctx: Any, formatter: Any) -> NoReturn:
    """Prints the help that `inherited` prints, and leaves: click would print a line of its own behind it.

    Raises:
        UnwritableOutput: as `write`.
        typer.Exit: always else.
    """
    kept = _Kept()
    with redirect_stdout(kept):
        inherited(ctx, formatter)
    write(kept.getvalue())
    raise typer.Exit

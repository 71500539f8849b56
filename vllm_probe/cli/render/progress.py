"""Progress of long steps: a bar for who watches on a terminal, and elsewhere the log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_probe.core.progress import Progress

_logger = logging.getLogger(__name__)


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A bar on stderr with the current step and the time so far."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=None)

        def advance(step: str, done: int, total: int) -> None:
            shown.update(task, description=step, completed=done, total=total)

        yield advance


@contextmanager
def logged(title: str) -> Iterator[Progress]:
    """A line of the log at level info whenever a step begins, so that the last names the one that hangs or crashes."""
    begun = ""

    def advance(step: str, done: int, total: int) -> None:
        nonlocal begun
        if done < total and step != begun:
            begun = step
            _logger.info("%s %d/%d: %s", title, done + 1, total, step)

    yield advance

"""Progress of long steps, always on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from vllm_probe.cli.streams import tell
from vllm_probe.core.progress import Progress


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A bar with the current step and the time so far."""
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
def lines(title: str) -> Iterator[Progress]:
    """One line whenever a step is over, with its name and how many are; parts of a step have none."""
    running, last = "", 0

    def advance(step: str, done: int, total: int) -> None:
        nonlocal running, last
        if running == step and done < total:
            return
        if running and last < done:
            tell(f"{title} {done}/{total}: {running}\n")
        running, last = step, done

    yield advance


@contextmanager
def begins(title: str) -> Iterator[Progress]:
    """One line whenever a step begins, so that the last names the one that hangs or ends the process."""

    def advance(step: str, done: int, total: int) -> None:
        if done < total:
            tell(f"{title} {done + 1}/{total}: {step}\n")

    yield advance

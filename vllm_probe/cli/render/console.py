"""Rich renderables to text, in the words and shapes that all commands share."""

from collections.abc import Iterable

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_probe.core.device import Verdict
from vllm_probe.core.units import format_figure

SEVERITY_STYLES = {"blocks": "bold red", "degrades": "yellow", "latent": "cyan", "info": "dim"}
VERDICT_STYLES = {"usable": "green", "limited": "yellow", "unusable": "bold red", "hidden": "magenta", "unknown": "dim"}

JUDGEMENT_STYLES = {
    **dict.fromkeys(("normal", "measured"), "green"),
    **dict.fromkeys(("low", "noisy", "throttled"), "yellow"),
    **dict.fromkeys(("suspect", "error"), "bold red"),
    **dict.fromkeys(("skipped", "unsupported"), "dim"),
}
BUDGET_STYLES = {
    "boots": "green",
    "unknown": "yellow",
    "kv_too_small": "bold red",
    "oom": "bold red",
    "invalid": "bold red",
}


def as_text(*parts: RenderableType) -> str:
    """What `parts` look like on stdout: its width, and its colours if it has any."""
    console = Console(highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part, crop=False)  # a command that must be typed is never cut
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table with these column heads; the columns named in `right` hold figures."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", collapse_padding=True)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def pairs(rows: Iterable[tuple[str, RenderableType]], style: str = "bold") -> Table:
    """Names on the left and what they are on the right, without lines."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style=style, no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def figure(value: float | None) -> str:
    """A rate or ratio with three digits, or whole above 100; nothing for null."""
    return "" if value is None else format_figure(value)


def verdict(judged: Verdict) -> Text:
    """A verdict in its colour, with its reason."""
    return Text.assemble((judged.code, VERDICT_STYLES[judged.code]), f": {judged.reason}")


def heading(text: str) -> Padding:
    """A title with an empty line above it."""
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))

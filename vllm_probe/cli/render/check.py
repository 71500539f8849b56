"""A start-up log beside the prediction, line by line."""

import shlex

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render.console import heading, table
from vllm_probe.core.config import LogCheck, LoggedFigure, RuntimeConfig
from vllm_probe.core.units import format_bytes

_NO_FIGURES = "it states no figure that is predicted, so that nothing but whether it came up is compared"


def render(config: RuntimeConfig) -> Group:
    """For each log: its figures with what was predicted of them, what it says otherwise, and what is kept of it."""
    return Group(*(part for check in config.checks for part in _parts(config, check)))


def _parts(config: RuntimeConfig, check: LogCheck) -> list[RenderableType]:
    rows = table("line", "quantity", "predicted", "logged", "off by", "band", "")
    rows.columns[1].no_wrap = True
    for figure in check.figures:
        verdict = Text("in", style="green") if figure.is_within else Text("out", style="bold red")
        cells = [figure.predicted, figure.logged, figure.difference, figure.band]
        rows.add_row(str(figure.line), figure.quantity, *(_amount(figure, cell) for cell in cells), verdict)
    word = "as predicted" if check.agrees else "not as predicted"
    parts: list[RenderableType] = [
        Text.assemble(
            (config.model, "bold"), f" on {config.device or config.device_type}, vLLM {check.engine_version}"
        ),
        Text(f"{check.log}: {check.outcome}, {config.budget.verdict} predicted; {word}"),
        *((heading("line by line"), rows) if check.figures else (Text(_NO_FIGURES, style="yellow"),)),
        *(Text(f"note: {note}", style="yellow") for note in check.differences),
    ]
    if check.stored:
        kept = f"residual {_signed(check.residual_bytes)} kept: later predictions of that version and device count it"
        parts += [Text(kept, style="dim"), Text(f"to undo that: rm {shlex.quote(check.stored)}", style="dim")]
    return parts


def _amount(figure: LoggedFigure, value: float) -> str:
    return _signed(round(value)) if figure.quantity.endswith("_bytes") else f"{value:,.2f}".removesuffix(".00")


def _signed(value: int) -> str:
    return f"-{format_bytes(-value)}" if value < 0 else format_bytes(value)

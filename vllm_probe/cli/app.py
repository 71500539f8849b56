"""The command tree: global options, and commands that are imported when they are called."""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer.core import TyperGroup

from vllm_probe.cli.streams import name_levels, write
from vllm_probe.cli.terminal import Terminal

COMMANDS = ("detect", "doctor", "bench", "capability", "negotiate", "export", "serve", "adapter", "schema")


def _parameters(inherited: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """The parameters of a command, which keep null, text and the words of a choice as they are.

    typer 0.29 imports pydantic, a third of its start-up time, even to turn null into null.
    """
    found = inherited(ctx)
    for parameter in found:
        parameter.process_value = partial(_process, parameter)
        if getattr(parameter, "is_flag", False):
            parameter.display_type_rich = _nothing  # it takes no value
    return found


def _nothing(ctx: Any) -> None:
    """What a flag takes."""


def _show_help(inherited: Callable[[Any, Any], None], ctx: Any, formatter: Any) -> None:
    from vllm_probe.cli.render.help import show

    show(inherited, ctx, formatter)


def _adapt(command: Any) -> Any:
    """`command` and those below it with our parameters and help."""
    command.get_params = partial(_parameters, command.get_params)
    command.format_help = partial(_show_help, command.format_help)
    for each in getattr(command, "commands", {}).values():
        _adapt(each)
    return command


def _process(parameter: Any, ctx: Any, value: Any) -> Any:
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    is_text = isinstance(value, str) and (annotation is str or value in get_args(annotation))
    if (value is None and not parameter.required) or is_text:
        return parameter.callback(ctx, parameter, value) if parameter.callback else value
    return type(parameter).process_value(parameter, ctx, value)


class LazyGroup(TyperGroup):
    """Imports `commands/<name>.py` only for the command that is called, or all of them for `--help`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = dict.fromkeys(COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """The global options."""
        return _parameters(super().get_params, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of all."""
        _show_help(super().format_help, ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature is click's
        """The command `cmd_name`, or null."""
        if cmd_name not in COMMANDS:
            return None
        command: Any = typer.main.get_command(import_module(f"vllm_probe.cli.commands.{cmd_name}").app)
        command.name = cmd_name
        return _adapt(command)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from vllm_probe.core.version import __version__

        write(f"vllm-probe {__version__}\n")
        raise typer.Exit


def _drop_colour(wanted: bool) -> None:
    if wanted:
        os.environ["NO_COLOR"] = "1"  # noqa: TID251 - for rich, typer's help and our own children alike


@app.callback()
def options(
    ctx: typer.Context,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Recorded host (folder or scene file) to look at instead of this machine.",
            show_default="this machine",
        ),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(help="Log to stderr from this level on.", show_default="warnings only"),
    ] = None,
    no_color: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option("--no-color", callback=_drop_colour, is_eager=True, help="No colour, as with NO_COLOR=1."),
    ] = False,
    version: Annotated[  # noqa: ARG001 - as above
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Finds every accelerator, measures it, negotiates a runtime config for a model, and runs it.

    detect and doctor say what is here and what is wrong; bench measures it; negotiate turns the measurement into a
    config with a reason for each value; serve runs it. Exit codes: 0 yes, 1 the answer is no, 2 bad input,
    3 something is unavailable, 101 our bug, 130 interrupted.
    """
    name_levels()
    if log_level:
        import logging

        logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    ctx.obj = Terminal(Path(replay) if replay else None)

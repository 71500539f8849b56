"""Runs a command and turns however it ended into an exit code."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from vllm_probe.cli.app import app
from vllm_probe.cli.exits import missing_extra, report
from vllm_probe.cli.patience import await_torch
from vllm_probe.cli.streams import flush, open_stderr, tell
from vllm_probe.core.errors import BadUsage, Bug, InternalError, ProbeError, UnwritableOutput

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the command with `arguments`, those of the process by default.

    Raises:
        KeyboardInterrupt: on Ctrl-C, where the command has not answered that itself.
    """
    open_stderr()
    # torch says so on its first import where NumPy is not installed, and nothing here needs NumPy
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    await_torch()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    except Bug as error:
        return _bug(error)
    except ProbeError as error:
        return report(error)
    except ModuleNotFoundError as error:
        expected = missing_extra(error)
        return report(expected) if expected else _bug(error)
    except OSError as error:
        return _lost_output() or _bug(error)
    except Exception as error:  # noqa: BLE001 - the last resort, which keeps the traceback
        return _bug(error)


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("vllm-probe", arguments) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        flush()
        return end.exit_code
    except _UsageError as error:
        raise _misplaced(error, command, arguments) or _bad_usage(error) from error


def _misplaced(error: Any, group: Any, arguments: list[str]) -> BadUsage | None:
    """The error for a global option behind the command, with the line that was meant."""
    option = getattr(error, "option_name", None)
    known = {name: parameter for parameter in group.params for name in parameter.opts}
    if option not in known:
        return None
    at = next(index for index, word in enumerate(arguments) if word.partition("=")[0] == option)
    end = at + 1 + (not known[option].is_flag and arguments[at] == option)
    meant = ["vllm-probe", *arguments[at:end], *arguments[:at], *arguments[end:]]
    hint = f"global options stand before the command: {' '.join(meant)}"
    return BadUsage(f"{error.ctx.command_path} has no option {option}", hint=hint)


def _bad_usage(error: Any) -> BadUsage:
    message, _, near = error.format_message().replace("Value error, ", "").partition(". Did you mean ")
    path = error.ctx.command_path if error.ctx else "vllm-probe"
    return BadUsage(
        message.rstrip("."), hint=f"did you mean {near}" if near else f"`{path} --help` shows what it takes"
    )


def _lost_output() -> int | None:
    """Exit code where the help or the version could not be written."""
    try:
        flush()
    except UnwritableOutput as error:
        return report(error)
    return None


def _bug(error: Exception) -> int:
    import traceback

    tell("".join(traceback.format_exception(error)))
    message = f"this is a bug in vllm-probe: {type(error).__name__}: {error}"
    hint = "please report it with the lines above and the folder that `vllm-probe doctor --record DIR` writes"
    kind = type(error) if isinstance(error, Bug) else InternalError
    return report(kind(message, hint=hint))

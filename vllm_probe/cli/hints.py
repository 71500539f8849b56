"""Whole commands for hints: the line that was typed with what would change, so that it can be followed as it stands."""

import shlex
from collections.abc import Iterator
from typing import Any

from vllm_probe.api.commands import options_of, words_of


def changed(context: Any, change: str, *, without: tuple[str, ...] = ()) -> str:
    """The command line of `context` with the options of `change` in place of its own, as a shell takes it.

    `--model` in it replaces the argument MODEL too. The options `without` are left out.
    """
    new, typed = options_of(change), dict(_typed(context))
    for name in without:
        typed.pop(name, None)
    named = typed.pop("--model", None), typed.pop("MODEL", None)
    model = next(filter(None, (new.pop("--model", None), *named)), None)
    before = [context.parent.info_name, *words_of(dict(_typed(context.parent))), context.info_name]
    return shlex.join([*before, *([model] if model else []), *words_of(typed | new)])


def _typed(context: Any) -> Iterator[tuple[str, str | None]]:
    """Each option and the argument of the command line by its name, with its value; null for a flag."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            name = parameter.opts[0] if parameter.opts[0].startswith("--") else "MODEL"
            yield name, None if getattr(parameter, "is_flag", False) else str(context.params[parameter.name])

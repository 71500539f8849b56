"""What to do with a document that is damaged, or of another kind than the one that is wanted."""

import shlex
from typing import Literal, TypeAlias

from vllm_probe.core import codec
from vllm_probe.core.errors import InvalidJson, SchemaViolation
from vllm_probe.core.schema import DOCUMENTS
from vllm_probe.core.values import JsonValue

Wanted: TypeAlias = Literal["capability", "runtime", "scene"]

_NAMES = {
    "capability": "a capability document",
    "doctor": "what `vllm-probe doctor --json` says",
    "inventory": "what `vllm-probe detect --json` says",
    "runtime": "a runtime config",
    "scene": "a recorded host",
}
_AGAIN: dict[Wanted, str] = {
    "capability": "mend that place, or write the file again with `vllm-probe bench --emit FILE`",
    "runtime": "run `vllm-probe negotiate` again, which writes it anew",
    "scene": "record the host again with `vllm-probe doctor --record DIR`",
}
_INSTEAD = {
    (
        "capability",
        "runtime",
    ): "run `vllm-probe negotiate --capability {} --model MODEL` first, which writes the config",
    (
        "runtime",
        "capability",
    ): "name a file that `vllm-probe bench --emit FILE` wrote; `vllm-probe serve {}` takes this one",
}


def kind_of(value: JsonValue) -> str | None:
    """Name of the schema of the document that `value` is, null when it is none of ours.

    An inventory has all that a diagnosis must have: the document that knows most of its keys counts.
    """
    fitting = [name for name in DOCUMENTS if _fits(DOCUMENTS[name], value)]
    return max(fitting, key=lambda name: len(codec.hints(DOCUMENTS[name]).keys() & value), default=None)


def _fits(kind: type, value: JsonValue) -> bool:
    try:
        codec.from_json(kind, value)
    except SchemaViolation:
        return False
    return True


def damaged(error: InvalidJson, wanted: Wanted) -> InvalidJson:
    """`error` with the command that makes such a document again."""
    error.hint = _AGAIN[wanted]
    return error


def misshapen(error: SchemaViolation, value: JsonValue, wanted: Wanted, source: str, hint: str) -> SchemaViolation:
    """`error` about `value`, with its file `source`; where it is another document, that and what takes it.

    `hint` is what to do with one of the kind that is wanted.
    """
    kind = kind_of(value)
    if kind is None:
        error.args, error.hint = (f"{source}: {error}",), hint
        return error
    error.args = (f"{source} is {_NAMES[kind]}, not {_NAMES[wanted]}",)
    error.hint = _INSTEAD.get((kind, wanted), f"give {_NAMES[wanted]} instead").format(shlex.quote(source))
    return error

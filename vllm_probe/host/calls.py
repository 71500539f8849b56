"""Native calls: described for a recording, and answered from one."""

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import LibraryFacts
from vllm_probe.core.system import Library
from vllm_probe.core.values import JsonValue

_HANG_S = 3600.0


class RecordedLibrary:
    """A library that answers from a recording.

    A call is looked up as `name(arguments)`, as a recorder writes it, then as `name` and `name` without its version, as
    people write it: there a value is the status when nothing is written out, else what is written out.

    Args:
        facts: the recorded behaviour.
        unlisted: told of a call that is not listed; raises when that may not be.
        sleep: told how long a call hangs.
    """

    def __init__(self, facts: LibraryFacts, unlisted: Callable[[str], None], sleep: Callable[[float], None]) -> None:
        self._facts, self._unlisted, self._sleep = facts, unlisted, sleep

    @property
    def path(self) -> str | None:
        return self._facts.path

    def call(self, symbol: str, *arguments: object) -> int:
        key, outs, calls = call_key(symbol, arguments), out_arguments(arguments), self._facts.calls
        name = next((name for name in (key, symbol, re.sub(r"_v\d$", "", symbol)) if name in calls), None)
        if name is None:
            self._unlisted(key)
        value = calls[name] if name else None
        if value is None:
            raise LibraryUnavailable(f"no function {symbol} (FUNCTION_NOT_FOUND)", hint="the library is too old or new")
        if value == "timeout":
            self._sleep(_HANG_S)
            raise LibraryTimeout(f"{symbol} does not return", hint="run `vllm-probe doctor`")
        try:
            return _replay(value, outs) if name == key else _answer(value, outs)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            message = f"{symbol} cannot answer {value!r}"[:200]
            raise LibraryUnavailable(message, hint="compare the recording with the function") from error


class RecordingLibrary:
    """Passes calls on to `inner` and puts into `calls` what they gave: status and bytes written, none, or a hang."""

    def __init__(self, inner: Library, calls: dict[str, JsonValue]) -> None:
        self._inner, self._calls = inner, calls

    @property
    def path(self) -> str | None:
        return self._inner.path

    def call(self, symbol: str, *arguments: object) -> int:
        key = call_key(symbol, arguments)
        try:
            status = self._inner.call(symbol, *arguments)
        except LibraryUnavailable as error:
            self._calls[key] = "timeout" if isinstance(error, LibraryTimeout) else None
            raise
        self._calls[key] = (status, [_kept(target) for target in out_arguments(arguments)])
        return status


def call_key(symbol: str, arguments: Sequence[object]) -> str:
    """`symbol(arguments)` with the values that go in."""
    shown = (getattr(argument, "value", argument) for argument in arguments if not _is_out(argument))
    return f"{symbol}({', '.join(map(str, shown))})"


def out_arguments(arguments: Sequence[object]) -> list[Any]:
    """The ctypes objects that a call may write: targets of `byref`, and arrays."""
    return [getattr(argument, "_obj", argument) for argument in arguments if _is_out(argument)]


def _kept(target: Any) -> bytes:
    """What was written, without what tells one machine from all others: fields named for a UUID or serial number."""
    data = bytearray(target)
    for name, *_ in getattr(target, "_fields_", ()):
        if "uuid" in name.lower() or "serial" in name.lower():
            field = getattr(type(target), name)
            data[field.offset : field.offset + field.size] = bytes(field.size)
    return bytes(data)


def _is_out(argument: object) -> bool:
    return hasattr(argument, "_obj") or isinstance(argument, ctypes.Array)


def _replay(value: JsonValue, outs: Sequence[Any]) -> int:
    for target, data in zip(outs, value["outs"], strict=True):
        memoryview(target).cast("B")[:] = bytes.fromhex(data)
    return int(value["status"])


def _answer(value: JsonValue, outs: Sequence[Any]) -> int:
    number = int(value, 0) if isinstance(value, str) and re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", value) else value
    if (
        isinstance(value, list)
        and outs
        and _counts(outs[0])
        and all(isinstance(each, ctypes.Array) for each in outs[1:])
    ):
        return _fill(value, *outs)
    if not outs or (isinstance(outs[0], ctypes.Structure) and isinstance(number, int)):
        return int(number)
    for target, item in zip(outs, value if isinstance(value, list) and len(outs) > 1 else [value], strict=False):
        if isinstance(target, ctypes.Structure):
            _set_fields(target, item)
        elif isinstance(target, ctypes.Array):
            target.value = item.encode() if isinstance(item, str) else item
        else:
            target.value = int(item, 0) if isinstance(item, str) else item
    return 0


def _counts(target: object) -> bool:
    return not isinstance(target, ctypes.Structure | ctypes.Array)


def _fill(rows: list[JsonValue], count: Any, array: Any = ()) -> int:
    """Rows of a list that a function counts and writes out: their number, and as many as there is room for."""
    count.value = len(rows)
    for target, row in zip(array, rows, strict=False):
        _set_fields(target, row)
    return 0


def _set_fields(target: Any, item: JsonValue) -> None:
    names = [field[0] for field in target._fields_]
    for name, part in item.items() if isinstance(item, dict) else zip(names, item, strict=False):
        setattr(target, name, part.encode() if isinstance(part, str) else part)

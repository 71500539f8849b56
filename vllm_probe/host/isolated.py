"""Runs a function that native libraries may hang or crash in a child process: `python -m vllm_probe.host.isolated`.

The child writes a JSON object on each line: `begun`, `ended` and `late` name a part of `Host.attempt`, and the last
has the `answer` or the `error`. A child that ends inside a part is followed by one that leaves that part out.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module

from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import CommandResult, Host, T
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost

_HINT = "run `vllm-probe doctor`"
_PATIENCE = 0.5
"""Share of the time left that one part may take, so that as much is left for the others."""
_LAST = 0.3
"""Share of the whole time, with less left of which only parts are asked that have answered before."""
_ANY = ""


def answer(host: Host, function: str) -> JsonValue:
    """What `package.module:function` gives for `host`, as JSON.

    Raises:
        LibraryUnavailable: the function does.
    """
    module, _, name = function.partition(":")
    return codec.to_json(getattr(import_module(module), name)(host))


def in_child(host: Host, function: str, timeout_s: float) -> JsonValue:
    """`answer` for this machine, from a child with the environment of this process.

    Raises:
        LibraryTimeout: no answer within `timeout_s`; the child is killed.
        LibraryUnavailable: the function raised it, or the child ended without an answer, outside of any part.
    """
    deadline, parts = host.now() + timeout_s, dict[str, str | None]()
    while True:
        left = deadline - host.now() if parts else timeout_s
        if left < _LAST * timeout_s:
            parts.setdefault(_ANY, "was left out, because others took all the time")
        patience = left * _PATIENCE
        argv = [sys.executable, "-m", __spec__.name, function, json.dumps(parts), str(patience)]
        ended = host.run(argv, max(left, 0), dict(os.environ))
        said = _lines(ended.stdout)
        if "answer" in said:
            return said["answer"]
        if "error" in said:
            raise LibraryUnavailable(said["error"], hint=_HINT)
        if ended.status == "timeout":
            raise LibraryTimeout(f"{function} did not return within {timeout_s:g} s", hint=_HINT)
        how = f"did not return within {patience:.2g} s" if "late" in said else _end(ended)
        culprits = [part for part in said["begun"] if part not in said["ended"]]
        if not culprits or culprits[-1] in parts:
            raise LibraryUnavailable(f"{function} {how}", hint=_HINT)
        parts |= dict.fromkeys(said["ended"]) | {culprits[-1]: how}


def _lines(text: str) -> dict[str, JsonValue]:
    """What a child wrote: parts begun and ended, and the last of each of the others."""
    said: dict[str, JsonValue] = {"begun": [], "ended": []}
    for line in text.splitlines():
        try:
            ((word, value),) = json.loads(line).items()
        except ValueError:  # it was killed while it wrote
            continue
        if word in {"begun", "ended"}:
            said[word].append(value)
        else:
            said[word] = value
    return said


def _end(ended: CommandResult) -> str:
    code = ended.returncode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "")
    return how + f": {last}" * bool(last)


class _ChildHost(LocalHost):
    """This machine, with parts that are announced before they are tried, and end this process when they hang.

    Args:
        channel: file descriptor for lines.
        parts: by part how it ended an earlier child, null where it did not; under `_ANY` why others are left out.
        patience: seconds that a part may take.
    """

    def __init__(self, channel: int, parts: dict[str, str | None], patience: float) -> None:
        self._channel, self._parts, self._patience = channel, parts, patience

    def say(self, word: str, value: JsonValue) -> None:
        os.write(self._channel, json.dumps({word: value}).encode() + b"\n")

    def attempt(self, part: str, ask: Callable[[], T]) -> T:
        from threading import Timer

        why = self._parts.get(part, self._parts.get(_ANY))
        if why:
            raise LibraryUnavailable(f"{part} {why}", hint=_HINT)
        self.say("begun", part)
        timer = Timer(self._patience, self._give_up, [part])
        timer.daemon = True
        timer.start()
        try:
            return ask()
        finally:
            timer.cancel()
            self.say("ended", part)

    def _give_up(self, part: str) -> None:
        self.say("late", part)
        os._exit(1)


def _main(function: str, parts: str, patience: str) -> None:
    """Answers on what was stdout when the process began; what libraries print goes to stderr."""
    channel = os.dup(1)
    os.dup2(2, 1)
    host = _ChildHost(channel, json.loads(parts), float(patience))
    try:
        host.say("answer", answer(host, function))
    except LibraryUnavailable as error:
        host.say("error", str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])

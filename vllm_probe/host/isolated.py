"""Runs a function that native libraries may hang or crash in a child process: `python -m vllm_probe.host.isolated`."""

import json
import os
import sys
from importlib import import_module

from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue

_HINT = "run `vllm-probe doctor`"


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
        LibraryUnavailable: the function raised it, or the child ended without an answer.
    """
    ended = host.run([sys.executable, "-m", __spec__.name, function], timeout_s, dict(os.environ))
    if ended.status == "timeout":
        raise LibraryTimeout(f"{function} did not return within {timeout_s:g} s", hint=_HINT)
    try:
        said = json.loads(ended.stdout)
    except ValueError:
        code = ended.returncode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "")
        raise LibraryUnavailable(f"{function} {how}" + f": {last}" * bool(last), hint=_HINT) from None
    if "error" in said:
        raise LibraryUnavailable(said["error"], hint=_HINT)
    return said["answer"]


def _main() -> None:
    """Answers on what was stdout when the process began; what libraries print goes to stderr."""
    from vllm_probe.host.local import LocalHost

    channel = os.dup(1)
    os.dup2(2, 1)
    try:
        said = {"answer": answer(LocalHost(), sys.argv[1])}
    except LibraryUnavailable as error:
        said = {"error": str(error)}
    os.write(channel, json.dumps(said).encode())


if __name__ == "__main__":
    _main()

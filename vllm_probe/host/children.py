"""Processes that this one starts and waits for."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from vllm_probe.core.errors import CommandMissing

if TYPE_CHECKING:
    import subprocess

_STDERR = 2


class LocalChild:
    """A process of ours."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        import subprocess

        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


def start(argv: Sequence[str], env: Mapping[str, str] | None, *, apart: bool = False) -> LocalChild:
    """A child with `env` added; `apart`: in a session of its own, and what it writes to stdout goes to stderr.

    Raises:
        CommandMissing: it cannot be started.
    """
    import subprocess

    stdout, variables = _STDERR if apart else subprocess.DEVNULL, os.environ | dict(env or {})
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, env=variables, start_new_session=apart
        )
    except OSError as error:
        raise CommandMissing(f"cannot start {argv[0]}: {error.strerror}", hint="is it installed?") from error
    return LocalChild(process)

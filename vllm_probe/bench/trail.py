"""Which test runs, on disk: one that ends the process cannot say so itself."""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from vllm_probe.core.errors import InputError
from vllm_probe.core.files import is_private, read_document

_FATAL = 2  # once may come from outside, as by `kill -9`
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)


class Trail:
    """A file with a line for each test in which the process ended, and at the end the one that runs.

    It is not synced to the disk, which would take longer than some rounds: it outlives the process, not the machine.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ended: list[str] = []
        self._running = ""

    def take_up(self) -> None:
        """Reads what earlier runs left."""
        with suppress(InputError):
            if self._path and is_private(self._path):
                self._ended = read_document(self._path).splitlines()

    @property
    def fatal(self) -> frozenset[str]:
        """The titles of tests in which the process ended more than once."""
        return frozenset(title for title, count in Counter(self._ended).items() if count >= _FATAL)

    @property
    def last(self) -> str | None:
        """The test in which the process ended the last time."""
        return self._ended[-1] if self._ended else None

    def begin(self, title: str) -> None:
        """Writes down that the test of that title runs."""
        if title != self._running:
            self._running = title
            self._write([*self._ended, title])

    def end(self) -> None:
        """What ran has not ended the process."""
        if self._running:
            self._write(self._ended)

    def forget(self) -> None:
        """Removes the file."""
        if self._path:
            self._path.unlink(missing_ok=True)

    def _write(self, titles: list[str]) -> None:
        if not self._path or not titles:
            self.forget()
            return
        with suppress(OSError), os.fdopen(os.open(self._path, _OPEN, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(f"{title}\n" for title in titles))

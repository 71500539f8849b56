"""The three streams of the process, any of which may be closed, full, or without a reader."""

import os
import re
import sys
from collections.abc import Iterator
from shutil import get_terminal_size
from typing import TextIO

from vllm_probe.core.errors import UnreadableFile, UnwritableOutput

_PROGRAMS = "vllm-probe|vllm serve|pip install|curl|docker|hf|kubectl|sh"
_COMMAND = rf"(?:[A-Z_]+=\S+ )*(?:{_PROGRAMS}) "
_WORD = rf"(?<!\S){_COMMAND}[^,;()`]*[^,;()`\s]|(?:`[^`]*`|\S)+"


def write(text: str) -> None:
    """Writes `text` to stdout; a reader that has gone away changes nothing about how the command ends.

    Raises:
        UnwritableOutput: stdout is closed or full.
    """
    if sys.stdout is None:
        raise _unwritable("it is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise _unwritable(error.strerror) from error


def flush() -> None:
    """Writes what the help and the version left in the buffer; raises as `write`."""
    if sys.stdout is not None:
        write("")


def tell(text: str) -> None:
    """Writes `text` to stderr, or nowhere when nobody can be told."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def fold(text: str) -> str:
    """`text` with its prose in lines of the terminal's width, where stderr is one; no command in it is broken."""
    if not sys.stderr.isatty():
        return text
    width = get_terminal_size().columns
    return "\n".join(
        line if re.match(_COMMAND, line) else "\n  ".join(_lines(line, width)) for line in text.split("\n")
    )


def _lines(text: str, width: int) -> Iterator[str]:
    """`text` in lines of at most `width` columns where its words allow; those after the first are indented by two."""
    line, room = "", width
    for word in re.findall(_WORD, text):
        if line and len(line) + 1 + len(word) > room:
            yield line
            line, room = word, width - 2
        else:
            line = f"{line} {word}" if line else word
    yield line


def open_stderr() -> None:
    """Gives a process that was started without stderr one that takes everything."""
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def name_levels() -> None:
    """Has what is logged without --log-level begin with its level, as in `warning: ...`."""
    import logging

    class Formatter(logging.Formatter):
        """The level in small letters, as in our own lines."""

        def format(self, record: logging.LogRecord) -> str:
            return fold(f"{record.levelname.lower()}: {super().format(record)}")

    if logging.lastResort:
        logging.lastResort.setFormatter(Formatter())


def read_stdin() -> str:
    """All text on stdin; a byte that is not UTF-8 becomes U+FFFD.

    Raises:
        UnreadableFile: stdin is closed.
    """
    if sys.stdin is None:
        raise UnreadableFile("cannot read stdin: it is closed", hint="pipe the text in, or name its file")
    return sys.stdin.buffer.read().decode(errors="replace")


def _drop(stream: TextIO) -> None:
    """Sends what `stream` still holds nowhere, so that the interpreter does not fail on it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unwritable(reason: str | None) -> UnwritableOutput:
    return UnwritableOutput(f"cannot write to stdout: {reason}", hint="send it to a reader or to a file with room")

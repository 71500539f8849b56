"""Bounded reads and atomic, private writes."""

import errno
import json
import os
import re
from collections import Counter
from pathlib import Path
from stat import S_ISREG
from typing import Any

from vllm_probe.core.errors import InvalidJson, UnreadableFile, UnwritableOutput

MAX_DOCUMENT_BYTES = 16 << 20
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_document(path: Path, limit_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """The UTF-8 text of `path`.

    Raises:
        UnreadableFile: absent, no regular file, not permitted, over `limit_bytes`, or not UTF-8.
    """
    try:
        if is_stream(path):  # reading a pipe would wait for whoever writes to it
            raise UnreadableFile(f"{path} is a pipe or device", hint="name a regular file")
        if path.stat().st_size > limit_bytes:
            raise UnreadableFile(f"{path} is larger than {limit_bytes} bytes", hint="is this the right file?")
        with path.open("rb") as file:
            return file.read(limit_bytes + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise UnreadableFile(f"cannot read {path}: {reason}", hint="check the path and its permissions") from error


def parse_json(text: str, source: str, *, is_finite: bool = True) -> Any:
    """The value of JSON `text`; duplicate keys, half a character and absurd nesting are refused.

    Args:
        text: the document.
        source: where it is from, for messages.
        is_finite: NaN and Infinity are refused too; otherwise they are numbers, as Python's `json` writes them.

    Raises:
        InvalidJson: with the line and column.
    """
    try:
        constant = _refuse_constant if is_finite else float
        value = json.loads(text, parse_constant=constant, object_pairs_hook=_unique_keys)
        if _SURROGATE.search(text):
            _refuse_surrogates(value)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidJson(f"{source}: {error.msg} at {place}", hint="mend that place, or get the file again") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidJson(f"{source}: {reason}", hint="mend it, or get the file again") from error
    return value


def read_json(path: Path, *, is_finite: bool = True) -> Any:
    """The JSON value in the file at `path`, at most `MAX_DOCUMENT_BYTES` long; `is_finite` as in `parse_json`."""
    return parse_json(read_document(path), str(path), is_finite=is_finite)


def write_private(path: Path, text: str, *, is_ours: bool = False) -> None:
    """Replaces `path` with `text` in one step, readable by the owner only.

    A crash leaves either the old file or the new one: temporary file in the same folder, fsync, rename. A symbolic
    link stays and its target is replaced; a device or pipe (`/dev/null`, `/dev/stdout`) is written to as it is. A name
    that `is_ours`, which the user did not give, is replaced whatever stands there, so that nobody leads it elsewhere.

    Raises:
        UnwritableOutput: the folder is absent, read-only or full, or `path` is a folder.
    """
    try:
        if is_ours:
            _replace(path, text)
        elif is_stream(path):
            path.write_text(text, encoding="utf-8")
        else:
            _replace(Path(os.path.realpath(path)), text)
    except OSError as error:
        raise _unwritable(path, error) from error


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, pipe or socket, which must never be replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def is_private(path: Path) -> bool:
    """Whether `path` is a file of this user, no link, that nobody else may write to."""
    try:
        stat = path.lstat()
    except OSError:
        return False
    user = os.getuid() if hasattr(os, "getuid") else stat.st_uid
    return S_ISREG(stat.st_mode) and stat.st_uid == user and not (stat.st_mode & 0o022 and os.name == "posix")


def _replace(path: Path, text: str) -> None:
    from tempfile import mkstemp

    handle, temporary = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_writable(path: Path) -> None:
    """Fails now rather than after long work when `write_private` could not write `path`.

    Raises:
        UnwritableOutput: as `write_private`.
    """
    from tempfile import NamedTemporaryFile

    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if is_stream(path):
            return
        with NamedTemporaryFile(prefix=f".{path.name}.", dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def make_folder(path: Path) -> None:
    """Makes the folder `path`, private where it is new.

    Raises:
        UnwritableOutput: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UnwritableOutput:
    return UnwritableOutput(f"cannot write {path}: {error.strerror}", hint="name a writable file with --output")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a string holds half a character, \\u{ord(error.object[error.start]):04x}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {double!r} occurs twice in one object")
    return value

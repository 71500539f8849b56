"""Files of a model folder, which anybody may have written."""

import stat
from pathlib import Path
from typing import TypeVar

from vllm_probe.core.errors import InvalidJson, InvalidModel, UnreadableFile
from vllm_probe.core.files import read_json

T = TypeVar("T")
_AGAIN = "get the model's files again"


def mode_of(path: Path) -> int:
    """Type and permission bits, links followed; 0 when there is nothing.

    Raises:
        UnreadableFile: a folder on the way may not be entered, or `path` cannot be a path.
    """
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(f"cannot read {path}: {reason}", hint="check the path and its permissions") from error


def read_value(path: Path, kind: type[T]) -> T | None:
    """The JSON value of type `kind` (dict or list) in the file at `path`, null when there is no file.

    Numbers may be infinite or none: transformers 4 writes the `time_step_limit` of a Mamba as `[0.0, Infinity]`.

    Raises:
        InvalidModel: not a regular file, or a JSON value of another type.
        InvalidJson: not JSON.
        UnreadableFile: not permitted, or larger than a document may be.
    """
    mode = mode_of(path)
    if not mode:
        return None
    try:
        value = read_json(path, is_finite=False) if stat.S_ISREG(mode) else None
    except InvalidJson as error:
        error.hint = _AGAIN
        raise
    if not isinstance(value, kind):
        raise InvalidModel(f"{path} does not hold a JSON {kind.__name__}", hint=_AGAIN)
    return value

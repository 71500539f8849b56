"""A private folder for compiled code that outlives the process. Whoever can write there runs code in ours."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_probe.core.errors import InputError, UnwritableOutput
from vllm_probe.core.files import make_folder, read_json, write_private
from vllm_probe.core.system import Host
from vllm_probe.vendors.nodes import read_identity

_SEAL = "seal.json"
_COMPILING_S = 600.0  # between two files of one process


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where compiled code goes.

    Attributes:
        path: folder that nobody else can write to.
        kept: whether it outlives the process.
        note: the same in words, with the reason where it is not kept.
    """

    path: Path
    kept: bool
    note: str


def key_of(facts: Mapping[str, str]) -> str:
    """Name of the folder for code that only holds with all of `facts`."""
    return hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()[:16]


def open_folder(host: Host, folder: Path | None, key: str) -> Place:
    """A folder of ours for compiled code.

    It is `folder`/`key`, emptied when it does not hold exactly what was sealed; where others could write, or nothing
    can be written, a new one that is given up afterwards.
    """
    if folder is None:
        return _temporary("not kept")
    try:
        make_folder(folder)
        kept = folder / key
        make_folder(kept)
    except UnwritableOutput as error:
        return _temporary(f"not kept: {error}")
    reason = _refusal(host, folder) or _refusal(host, kept)
    if reason:
        return _temporary(f"not kept: {reason}")
    if _is_in_use(kept):
        return _temporary(f"not kept: another process compiles into {kept}")
    if not _intact(kept):
        shutil.rmtree(kept, ignore_errors=True)
        make_folder(kept)
    return Place(path=kept, kept=True, note=f"kept in {kept}")


def seal(folder: Path) -> None:
    """Writes down what `folder` holds now, so that a later process loads that and nothing else."""
    write_private(folder / _SEAL, json.dumps(_digests(folder), indent=0, sort_keys=True))


def _temporary(note: str) -> Place:
    """A folder of mode 0700 whose name nobody else can take."""
    return Place(path=Path(tempfile.mkdtemp(prefix="vllm-probe-compile-")), kept=False, note=note)


def _refusal(host: Host, folder: Path) -> str | None:
    stat, uid = host.stat(str(folder)), read_identity(host).uid
    if stat is None or stat.kind != "dir":
        return f"{folder} is no folder"
    if uid is None:
        return "this system does not tell whose process this is"
    if stat.uid != uid:
        return f"{folder} belongs to user {stat.uid} and not to {uid}"
    return f"{folder} has mode {stat.mode:04o}, open to others" if stat.mode & 0o077 else None


def _is_in_use(folder: Path) -> bool:
    """Whether code came into a folder without a seal a short time ago."""
    if (folder / _SEAL).exists():
        return False
    newest = max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)
    return 0 <= time.time() - newest < _COMPILING_S


def _intact(folder: Path) -> bool:
    try:
        return bool(read_json(folder / _SEAL) == _digests(folder))
    except (OSError, InputError):
        return not any(folder.iterdir())


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path != folder / _SEAL
    }

"""Releases of an engine, and what holds at one of them."""

import re
from collections.abc import Sequence
from typing import Any

from vllm_probe.core.errors import BadUsage


def at_version(rows: Sequence[tuple[str, Any]], version: str) -> Any:
    """The value that holds at a version: of the first row that ends there or later; `*` ends never.

    Raises:
        BadUsage: it is no version number.
    """
    release = _release(version)
    return next(value for until, value in rows if until == "*" or release[: until.count(".") + 1] <= _release(until))


def is_before(version: str, other: str) -> bool:
    """Whether a release is older than another; one that names no patch stands for the newest of its minor release."""
    release = _release(version)
    return release < _release(other)[: len(release)]


def _release(version: str) -> tuple[int, ...]:
    """Major, minor and patch number; what follows digits, as in `0.20.2rc1`, counts for nothing."""
    patch = re.match(r"\d+", version.removeprefix("v").partition(".")[2].partition(".")[2])
    return (*version_number(version), *([int(patch[0])] if patch else []))


def version_number(version: str) -> tuple[int, int]:
    """Major and minor number of an engine version.

    Raises:
        BadUsage: it is no version number.
    """
    parts = version.removeprefix("v").split(".")
    if not all(part.isdecimal() for part in parts[:2]):
        raise BadUsage(f"not an engine version: {version!r}", hint="give a release such as --engine-version 0.33.0")
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0

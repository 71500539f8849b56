"""Files that ship beside the code: `schemas/` and `capabilities/`."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def resource_dir(name: str) -> Path:
    """The folder `name` inside the installed package, or in the repository of an editable install."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name

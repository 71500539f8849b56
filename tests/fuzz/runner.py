"""Runs a fuzz target over files, or under atheris where that is installed."""

import sys
from collections.abc import Callable
from pathlib import Path


def main(one_input: Callable[[bytes], None]) -> None:
    """Gives each file named on the command line to `one_input`; `--atheris` hands the rest of the line to atheris."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--atheris"]:
        import atheris

        atheris.Setup([sys.argv[0], *arguments[1:]], one_input)
        atheris.Fuzz()
    for name in arguments:
        one_input(Path(name).read_bytes())

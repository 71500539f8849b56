"""Writes docs/reference/commands.md from the `--help` of every command; `--check` fails when it is stale."""

import contextlib
import io
import os
import sys
from pathlib import Path

from vllm_probe.cli.app import COMMANDS
from vllm_probe.cli.main import main as vllm_probe

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"
HEADER = """# Commands

`vllm-probe --help` prints this too. Global options stand before the command. Data goes to stdout, everything else to
stderr; `--json` prints the same document that `--output` saves. Exit codes are in [errors and exit codes](errors.md).
"""
_GROUPS = {"capability": ("list", "show", "validate", "diff", "path"), "adapter": ("list", "check", "new")}


def _help(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        vllm_probe([*words, "--help"])
    lines = (line.rstrip() for line in text.getvalue().strip("\n").splitlines())
    return f"\n## {' '.join(('vllm-probe', *words))}\n\n```text\n" + "\n".join(lines).strip("\n") + "\n```\n"


def main() -> int:
    """Exit status: 1 when `--check` found a stale page."""
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"}
    pages = [
        _help(),
        *(_help(name, *rest) for name in COMMANDS for rest in [(), *((sub,) for sub in _GROUPS.get(name, ()))]),
    ]
    text = HEADER + "".join(pages)
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE} is stale: run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

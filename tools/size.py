"""Prints files, lines and code lines (no blanks, comments, docstrings) of each package."""

import io
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LAYOUT = {tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Lines that hold code: a statement that is only a string counts as documentation."""
    lines: set[int] = set()
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT or token.type == tokenize.COMMENT:
            starts_statement |= token.type in _LAYOUT
            continue
        if not (token.type == tokenize.STRING and starts_statement):
            lines.update(range(token.start[0], token.end[0] + 1))
        starts_statement = False
    return len(lines)


def main() -> None:
    """Prints the table for vllm_probe and the tests."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path in sorted([*ROOT.glob("vllm_probe/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        source = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT).parts
        package = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        for key in (package, f"{parts[0]} in all"):
            rows[key] = [a + b for a, b in zip(rows[key], (1, source.count("\n"), code_lines(source)), strict=True)]
    sys.stdout.write(f"{'':24}{'files':>8}{'lines':>8}{'code':>8}\n")
    for name, (files, lines, code) in sorted(rows.items()):
        sys.stdout.write(f"{name:24}{files:8}{lines:8}{code:8}\n")


if __name__ == "__main__":
    main()

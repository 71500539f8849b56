"""Writes schemas/*.schema.json from the dataclasses of vllm_probe.core; `--check` fails when one is stale."""

import json
import sys
from pathlib import Path

from vllm_probe.core.schema import DOCUMENTS, build_schema

FOLDER = Path(__file__).resolve().parent.parent / "schemas"


def main() -> int:
    """Exit status: 1 when `--check` found a stale file."""
    stale = 0
    for name in DOCUMENTS:
        path = FOLDER / f"{name}.schema.json"
        text = json.dumps(build_schema(name), indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} is stale: run `make schemas`\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())

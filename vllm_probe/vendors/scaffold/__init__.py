"""A package of a new vendor: an adapter that works, and what is left to write."""

import re
from keyword import iskeyword
from pathlib import Path
from string import Template

from vllm_probe.core.errors import BadUsage, UnwritableOutput

_TEMPLATES = Path(__file__).parent / "templates"
_FILES = {
    "pyproject.toml.in": "pyproject.toml",
    "README.md.in": "README.md",
    "plugin.py.in": "{package}/__init__.py",
    "probe.py.in": "{package}/probe.py",
    "adapter.py.in": "{package}/adapter.py",
    "py.typed.in": "{package}/py.typed",
    "capability.json.in": "{package}/capabilities/{name}.capability.json",
    "test_conformance.py.in": "tests/test_conformance.py",
}
"""Template to the file that it becomes."""


def scaffold(name: str, folder: Path) -> Path:
    """Writes the package of the vendor `name` to a new folder in `folder`, and gives its path.

    Raises:
        BadUsage: the name is none, or one of our vendors has it.
        UnwritableOutput: the new folder is there already or cannot be made.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > 32:
        hint = "take up to 32 small letters, digits and single underscores, a letter first"
        raise BadUsage(f"{name!r} cannot be the name of a vendor", hint=hint)
    if iskeyword(name):
        raise BadUsage(
            f"{name!r} is a word of Python, no name", hint="take the name of your device's maker or interface"
        )
    if name == "all" or (_TEMPLATES.parent.parent / name).is_dir():
        raise BadUsage(f"the name {name!r} is taken", hint="take the name of your device's maker or interface")
    words = {
        "name": name,
        "package": f"vllm_probe_{name}",
        "distribution": f"vllm-probe-{name.replace('_', '-')}",
        "adapter": f"{name.title().replace('_', '')}Adapter",
    }
    root = folder / words["distribution"]
    try:
        root.mkdir(parents=True)
        for template, target in _FILES.items():
            path = root / target.format_map(words)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (_TEMPLATES / template).read_text(encoding="utf-8")
            path.write_text(Template(text).substitute(words), encoding="utf-8")
    except FileExistsError as error:
        raise UnwritableOutput(f"{root} exists", hint="nothing is overwritten: give another --output") from error
    except OSError as error:
        reason = f"{error.filename or root}: {error.strerror}"
        raise UnwritableOutput(reason, hint="give an --output that can be written") from error
    return root

"""How a command ends: the exit code, and the `error:` and `hint:` lines of an expected failure."""

import os
from typing import Final, NoReturn

from vllm_probe.cli.streams import flush, fold, tell
from vllm_probe.core.errors import MissingExtra, ProbeError
from vllm_probe.core.extras import WITHOUT_GPU, extra_command

EXTRA_OF: Final = {
    "torch": "runtime",
    "safetensors": "runtime",
    "tokenizers": "runtime",
    "fastapi": "runtime",
    "uvicorn": "runtime",
    "prometheus_client": "runtime",
    "onnx": "onnx",
}
"""Module to the extra of pyproject.toml that installs it."""


def report(error: ProbeError) -> int:
    """Prints `error: ... [code]` and `hint: ...` on stderr, a line each unless a terminal folds it; the exit code."""
    message, hint = (" ".join(text.split()) for text in (str(error), error.hint))
    tell(fold(f"error: {message} [{error.code}]\nhint: {hint}") + "\n")
    return error.exit_code


def leave(error: ProbeError) -> NoReturn:
    """Reports `error` and ends the process at once, whatever its other threads wait for."""
    code = report(error)
    flush()
    os._exit(code)


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """The error that names the extra of an absent module, or null when no extra has it."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    hint = f"{extra_command(extra)} brings it" + (WITHOUT_GPU if module == "torch" else "")
    return MissingExtra(f"the Python package {module!r} is not installed", hint=hint)

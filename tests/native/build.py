"""Libraries built from C for the tests: the real loader, the real ctypes and the real child process are used."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def build(source: Path, target: Path, *options: str) -> Path:
    """Compiles `source` to the shared library `target`; skips without a compiler, fails where REQUIRE_ALL is set."""
    compiler = shutil.which("cc")
    if compiler is None and not os.environ.get("REQUIRE_ALL"):
        pytest.skip("no C compiler: apt-get install -y gcc")
    command = [
        compiler or "cc",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "-O1",
        *options,
        "-o",
        str(target),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=250)
    return target

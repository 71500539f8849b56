"""The command line in this process, with folders of its own."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from vllm_probe.cli.main import main
from vllm_probe.core.version import __version__

HOSTS = Path(__file__).parents[1] / "hosts"
DOCUMENTS = Path(__file__).parent / "documents"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        text = f"exit code {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"
        text = text.replace(f"vllm-probe {__version__}", "vllm-probe VERSION").replace(f'"{__version__}"', '"VERSION"')
        return text.replace(str(HOSTS), "HOSTS")

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """Code of the one error, once the two lines have the right form."""
        error, hint = self.err.splitlines()[-2:]
        assert error.startswith("error: ")
        assert hint.startswith("hint: ")
        assert len(hint) > len("hint: ")
        return error.rpartition(" [")[2].removesuffix("]")


Cli = Callable[..., Ended]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `vllm-probe` in a folder that holds the documents of these tests, with an empty home."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_PROBE_CAPABILITY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "home").mkdir()
    copytree(DOCUMENTS, tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VLLM_PROBE_PLUGINS", "cpu")
    monkeypatch.chdir(tmp_path / "here")

    def run(*arguments: str | Path, width: int = 80, plugins: str = "cpu") -> Ended:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("VLLM_PROBE_PLUGINS", plugins)
        code = main([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    return run

"""The `--json` path imports nothing heavy: absence is tested here, time in benchmarks/startup.py."""

import subprocess
import sys
from pathlib import Path

import pytest

HOSTS = Path(__file__).parents[1] / "hosts"
DOCUMENTS = Path(__file__).parents[1] / "cli" / "documents"
HEAVY = {
    *("torch", "numpy", "rich", "jsonschema", "onnx", "fastapi", "uvicorn", "pydantic", "asyncio", "psutil"),
    *("pynvml", "transformers", "tokenizers", "safetensors", "huggingface_hub", "yaml", "jinja2", "importlib.metadata"),
    *("socket", "ssl", "http.client", "urllib.request"),
}
NEGOTIATE = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", str(DOCUMENTS / "ascend.json"), "--json")
REPLAY = ("--replay", str(HOSTS / "ctr-14-no-dri"))


def imported(*arguments: str, cwd: Path) -> set[str]:
    """Modules that the process holds when the command is over."""
    code = "import sys; from vllm_probe.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250, cwd=cwd)
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("detect", "--json"),
        ("doctor", "--json"),
        NEGOTIATE,
        (*REPLAY, "detect", "--json"),
        (*REPLAY, "doctor", "--json"),
        (*REPLAY, *NEGOTIATE),
    ],
    ids=" ".join,
)
def test_the_json_path_imports_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments, cwd=tmp_path)
    assert "vllm_probe.cli.main" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize("arguments", [("--help",), ("detect",), ("doctor",), ("negotiate", "--help")], ids=" ".join)
def test_text_for_a_person_never_imports_torch(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert imported(*arguments, cwd=tmp_path) & {"torch", "numpy", "fastapi", "jsonschema", "onnx"} == set()


@pytest.mark.parametrize("form", ["vllm", "docker", "compose", "k8s"])
def test_export_never_imports_torch_nor_a_renderer(tmp_path: Path, form: str) -> None:
    config = tmp_path / "runtime.json"
    imported(*NEGOTIATE[:-1], "--engine", "vllm", "--output", str(config), cwd=tmp_path)
    heavy = HEAVY - {"yaml", "pydantic", "socket", "importlib.metadata"}  # pydantic: typer reads lists with it
    assert imported("export", form, str(config), cwd=tmp_path) & heavy == set()


def test_only_the_command_that_is_called_is_imported(tmp_path: Path) -> None:
    modules = imported("schema", "scene", cwd=tmp_path)
    commands = {name for name in modules if name.startswith("vllm_probe.cli.commands.")}
    assert commands == {"vllm_probe.cli.commands.schema"}

"""schemathesis against a real server: it takes what its OpenAPI document allows, and answers as that says."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

import pytest

from tests.runtime.server_process import server

pytestmark = pytest.mark.skipif(
    find_spec("schemathesis") is None and not os.environ.get("REQUIRE_ALL"), reason="schemathesis is not installed"
)


@pytest.fixture
def rich(tiny: Path, tmp_path: Path) -> Path:
    """A checkpoint with all that a request can choose: prompts and dimensions."""
    folder = copytree(tiny, tmp_path / "rich")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_matryoshka": True}))
    prompts = {"prompts": {"query": "a river ", "document": ""}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_schemathesis_finds_nothing(rich: Path, tmp_path: Path, examples: int) -> None:
    with server(rich, "--api-key", "secret") as (_, url):
        argv = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--no-color"]
        options = ["--max-examples", str(examples), "--request-timeout", "60", "-H", "Authorization: Bearer secret"]
        if examples == 10:
            options += ["--seed", "1"]
        ended = subprocess.run([*argv, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "10 selected / 10 total" in ended.stdout

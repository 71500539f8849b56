"""`negotiate FILE.gguf` sizes the file as it is, and says which engine takes it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.unit.models.folders import QWEN3, write
from tests.unit.models.gguf_architectures import NORMED, TABLE, common
from tests.unit.models.gguf_files import model

ON_CPU = ("--capability", "cpu.json")


@pytest.fixture
def tiny(cli: Cli) -> str:
    """The name of a file in the folder of these tests."""
    tensors: dict[str, Any] = {
        "blk.0.ffn_down.weight": ("Q4_K", (1024, 4096)),
        "blk.1.ffn_down.weight": ("Q6_K", (1024, 4096)),
    }
    write(Path(), {"tiny.gguf": model("qwen3", common(QWEN3), TABLE | NORMED | tensors)})
    return "tiny.gguf"


def test_the_weights_are_those_of_the_file_and_the_plug_in_is_named(cli: Cli, tiny: str) -> None:
    ended = cli("negotiate", tiny, *ON_CPU, "--engine", "vllm", "--json")
    config = json.loads(ended.out)
    assert ended.code == 0
    weights = 2 * 32 * 64 + 4 * 8 + 1024 * 16 * 144 + 1024 * 16 * 210
    assert weights <= config["budget"]["weights_bytes"] <= weights + (12 << 20)
    assert (config["quantization"], config["model"]) == ("gguf", str(Path("tiny.gguf").resolve()))
    assert any("gguf" in warning.lower() for warning in config["warnings"])


def test_the_bundled_runtime_refuses_it_by_name_with_the_way_out(cli: Cli, tiny: str) -> None:
    ended = cli("negotiate", tiny, *ON_CPU)
    assert "the bundled runtime does not load GGUF files yet" in " ".join(ended.err.split())
    for served in (cli("serve", tiny, "--dry-run"), cli("serve", tiny)):
        assert served.code == 3
        assert served.error == "unsupported-model"
        assert "does not load GGUF files yet" in served.err
    assert "vllm-gguf-plugin" in served.err


def test_nothing_is_written_for_vllm_that_could_not_start_without_a_word_of_what_is_missing(
    cli: Cli, tiny: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = cli("negotiate", tiny, *ON_CPU, "--engine", "vllm")
    assert f" {Path(tiny).resolve()} --tokenizer ORIGINAL_MODEL " in made.err
    assert "vllm-gguf-plugin" in made.err
    assert "vllm-probe serve" not in made.err
    file = cli("export", "vllm")
    assert file.code == 0
    assert " vllm serve --config FILE.yaml --tokenizer ORIGINAL_MODEL\n" in file.out
    assert "\n# tokenizer: ORIGINAL_MODEL\n" in file.out
    assert "put the repository of the original model in place of ORIGINAL_MODEL" in caplog.text
    for form in ("docker", "compose", "k8s"):
        ended = cli("export", form)
        assert (ended.code, ended.out, ended.error) == (3, "", "no-image")
        assert "v0.33.0 has no vllm-gguf-plugin" in ended.err


def test_vllm_before_the_plug_in_takes_the_file_as_it_is(cli: Cli, tiny: str) -> None:
    made = cli("negotiate", tiny, *ON_CPU, "--engine", "vllm", "--engine-version", "0.32.0")
    assert "--tokenizer" not in made.err
    assert cli("export", "docker").code == 0


def test_no_container_is_made_that_the_bundled_runtime_would_refuse_to_serve(cli: Cli, tiny: str) -> None:
    cli("negotiate", tiny, *ON_CPU)
    ended = cli("export", "docker")
    assert (ended.code, ended.out, ended.error) == (3, "", "unsupported-model")
    assert "--engine vllm" in ended.err


def test_a_damaged_file_is_an_error_of_the_user(cli: Cli) -> None:
    write(Path(), {"bad.gguf": b"GGUF\3\0\0\0"})
    ended = cli("negotiate", "bad.gguf", *ON_CPU)
    assert ended.code == 2
    assert "in the middle of a value [invalid-model]" in ended.err


def test_nothing_heavy_is_imported_for_it(tiny: str) -> None:
    program = (
        "import sys; from vllm_probe.cli.main import main\n"
        f"code = main(['negotiate', {tiny!r}, '--capability', 'cpu.json', '--json'])\n"
        "heavy = {'torch', 'numpy', 'gguf', 'transformers', 'rich', 'jsonschema', 'onnx', 'fastapi'}\n"
        "sys.exit(code or len(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr

"""`negotiate MODEL.onnx` sizes the checkpoint behind a graph and says that it is needed."""

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.models.onnx.graphs import IDS, decoder
from tests.unit.models.onnx.test_spec import LAYER, QWEN3, TABLE

ASCEND = str(Path(__file__).parent / "documents" / "ascend.json")
HEAVY = {"torch", "rich", "jsonschema", "fastapi", "huggingface_hub", "transformers"}


def graph(folder: Path, **config: object) -> Path:
    path = folder / "tiny.onnx"
    path.write_bytes(decoder().model("logits", IDS).SerializeToString())
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return path


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vllm_probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, cwd=folder)


def negotiate(folder: Path, *arguments: str) -> dict[str, object]:
    options = ("--capability", ASCEND, "--device-memory", "24GiB", "--json")
    ended = run(folder, "negotiate", "tiny.onnx", *options, *arguments)
    assert ended.returncode == 0, ended.stderr
    config: dict[str, object] = json.loads(ended.stdout)
    return config


def test_the_config_is_for_the_checkpoint_that_it_names(tmp_path: Path) -> None:
    graph(tmp_path, **QWEN3, _name_or_path="Qwen/Qwen3-Tiny")
    config = negotiate(tmp_path, "--engine", "vllm", "--quantization", "none")
    assert config["requires"] == ["the Hugging Face checkpoint Qwen/Qwen3-Tiny"]
    assert config["model"] == "Qwen/Qwen3-Tiny"
    assert config["budget"]["weights_bytes"] >= 2 * (2 * LAYER + TABLE)  # type: ignore[index]
    assert any("no engine here runs ONNX graphs" in warning for warning in config["warnings"])  # type: ignore[attr-defined]


def test_facts_that_no_file_states_are_warned_of_and_can_be_given(tmp_path: Path) -> None:
    graph(tmp_path)
    config = negotiate(tmp_path)
    assert config["model"] == str(tmp_path / "tiny.onnx")
    assert config["max_model_len"] == 4096
    assert any("max_model_len of tiny" in warning for warning in config["warnings"])  # type: ignore[attr-defined]
    assert negotiate(tmp_path, "--max-model-len", "8192")["max_model_len"] == 8192
    assert negotiate(tmp_path, "--input-len", "6000", "--output-len", "100")["max_model_len"] == 6100


def test_a_graph_cannot_be_served(tmp_path: Path) -> None:
    graph(tmp_path)
    ended = run(tmp_path, "serve", "tiny.onnx", "--dry-run")
    assert ended.returncode == 3
    assert "is an ONNX graph, which no engine here runs [unsupported-model]" in ended.stderr
    assert "hint: serve the Hugging Face checkpoint that tiny.onnx was exported from" in ended.stderr


def test_a_damaged_graph_is_one_line_of_error(tmp_path: Path) -> None:
    path = graph(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    ended = run(tmp_path, "negotiate", "tiny.onnx", "--capability", ASCEND, "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: tiny.onnx is not an ONNX graph")
    assert ended.stderr.count("\n") == 2


def test_only_onnx_and_what_it_needs_is_imported(tmp_path: Path) -> None:
    path = graph(tmp_path)
    code = "import sys; from vllm_probe.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "negotiate", str(path), "--capability", ASCEND, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250, cwd=tmp_path)
    modules = set(ended.stderr.split())
    assert "onnx" in modules
    assert modules & HEAVY == set()

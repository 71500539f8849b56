"""Files that somebody made to do harm give a typed error, in bounded time and memory."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import folder, gguf, safetensors
from tests.unit.models.folders import QWEN3, write
from tests.unit.models.gguf_files import header
from tests.unit.models.test_safetensors import json_values
from vllm_probe.core.errors import InvalidJson, InvalidModel, UnreadableFile
from vllm_probe.models.hf import read_folder

ROOT = Path(__file__).parents[3]


def nested(depth: int, key: str = "text_config") -> bytes:
    return f'{{"{key}":'.encode() * depth + b"{}" + b"}" * depth


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (nested(100_000), InvalidJson, "deeply"),
        (nested(50), InvalidModel, "model_type is missing"),
        (b'{"a":' + b"[" * 100_000, InvalidJson, "deeply"),
        (b'{"hidden_size": 1, "hidden_size": 2}', InvalidJson, "twice"),
        (b'{"hidden_size": "\xff"}', UnreadableFile, "UTF-8"),
        (b'{"hidden_size": "\\ud800"}', InvalidJson, "half a character"),
        (b'{"hidden_size": 1' + b"0" * 5000 + b"}", InvalidJson, "digits"),
        (b"", InvalidJson, "line 1"),
        (b"[]", InvalidModel, "dict"),
    ],
)
def test_json_that_no_tool_writes_is_refused(
    tmp_path: Path, content: bytes, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        read_folder(write(tmp_path, {"config.json": content}))


@pytest.mark.parametrize("limit", [[0.0, float("inf")], [0.0, {"__float__": "Infinity"}], float("nan")])
def test_a_number_that_no_shape_uses_may_be_infinite(tmp_path: Path, limit: object) -> None:
    write(tmp_path, {"config.json": QWEN3 | {"time_step_limit": limit}})
    assert read_folder(tmp_path).num_layers == 2


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), {"__float__": "Infinity"}])
@pytest.mark.parametrize("key", ["hidden_size", "rope_theta", "rms_norm_eps", "vocab_size"])
def test_a_number_that_the_shape_uses_is_finite(tmp_path: Path, key: str, number: object) -> None:
    write(tmp_path, {"config.json": QWEN3 | {key: number}})
    with pytest.raises(InvalidModel, match=key):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 1025},
        {"num_hidden_layers": 4_000_000_000},
        {"num_hidden_layers": 10**300},
        {"layer_types": ["full_attention"] * 500_000, "num_hidden_layers": 500_000},
    ],
)
def test_layers_beyond_any_model_are_refused_before_they_are_listed(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, {"config.json": QWEN3 | change})
    tracemalloc.start()
    with pytest.raises(InvalidModel, match="num_hidden_layers"):
        read_folder(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 << 20


def test_the_most_layers_with_the_most_exceptions_take_bounded_memory(tmp_path: Path) -> None:
    names = [f"model.layers.{layer}.mlp.experts.{expert}.up_proj" for layer in range(1024) for expert in range(100)]
    config = QWEN3 | {"num_hidden_layers": 1024, "quantization_config": {"quant_method": "fp8", "ignore": names}}
    write(tmp_path, {"config.json": config})
    tracemalloc.start()
    assert read_folder(tmp_path).quantization == "fp8"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 << 20


@given(st.sampled_from(range(len(folder.FILES))), st.binary(max_size=60) | json_values.map(json.dumps).map(str.encode))
def test_any_file_of_a_folder_gives_a_model_or_a_typed_error(which: int, content: bytes) -> None:
    folder.one_input(bytes([which]) + content)


@given(st.binary(max_size=120), st.integers(0, 64))
def test_any_weights_give_tensors_or_a_typed_error(content: bytes, length: int) -> None:
    safetensors.one_input(content)
    safetensors.one_input(length.to_bytes(8, "little") + content)
    safetensors.one_input((2).to_bytes(8, "little") + b"{}" + content)


@pytest.mark.parametrize("target", [folder, gguf, safetensors])
def test_a_fuzz_target_runs_over_files_by_itself(tmp_path: Path, target: Any) -> None:
    (tmp_path / "input").write_bytes(header(0, 0))
    name = str(target.__name__)
    done = subprocess.run([sys.executable, "-m", name, str(tmp_path / "input")], cwd=ROOT, check=False)
    assert done.returncode == 0

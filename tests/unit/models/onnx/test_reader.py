"""Files that hold no graph, too large a one or none at all end in a typed error, soon and in little memory."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import onnx_model
from tests.unit.models.onnx.graphs import IDS, decoder
from vllm_probe.core.errors import InvalidModel, UnreadableFile
from vllm_probe.core.extras import extra_command
from vllm_probe.models.onnx.outline import MAX_VALUE_BYTES
from vllm_probe.models.onnx.reader import MAX_INLINE_BYTES, read_onnx

SERIAL = decoder(1).model("logits", IDS).SerializeToString()


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(UnreadableFile, match="no such file"):
        read_onnx(tmp_path / "none.onnx")
    with pytest.raises(UnreadableFile, match="not a file"):
        read_onnx(tmp_path)
    with pytest.raises(UnreadableFile, match="not a file"):
        read_onnx(tmp_path / "pipe.onnx")
    with pytest.raises(InvalidModel, match="is empty"):
        read_onnx(tmp_path / "empty.onnx")


def test_a_file_with_too_much_inside_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_INLINE_BYTES + 1)
    with pytest.raises(UnreadableFile, match=r"weights inside, over 512\.00 MiB") as caught:
        read_onnx(path)
    assert "external data" in caught.value.hint


def test_a_sparse_file_of_the_largest_size_is_refused_at_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_INLINE_BYTES)
    with pytest.raises(InvalidModel, match="byte 0 begins no field"):
        read_onnx(path)


def test_a_model_above_two_gib_is_read_without_its_data(tmp_path: Path) -> None:
    graph = decoder(2)
    for tensor in graph.initializers:
        if tensor.name == "embedding":
            tensor.dims[:] = [1 << 25, 64]
        for entry in tensor.external_data:
            entry.value = "giant.bin"
    sparse = tmp_path / "giant.bin"
    with sparse.open("wb") as file:
        file.truncate(100 << 30)
    (tmp_path / "model.onnx").write_bytes(graph.model("logits", IDS).SerializeToString())
    spec = read_onnx(tmp_path / "model.onnx")
    assert (spec.vocab_size, spec.ties_embeddings) == (1 << 25, True)
    assert spec.weight_bytes is not None
    assert spec.weight_bytes > 8 << 30
    assert sparse.stat().st_atime_ns <= sparse.stat().st_mtime_ns  # never read


def test_a_large_inline_model_is_read_in_little_memory(tmp_path: Path) -> None:
    graph = decoder(1)
    for tensor in graph.initializers:
        if tensor.name == "embedding":
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.dims[:] = [1 << 20, 64]
            tensor.raw_data = bytes(256 << 20)
    path = tmp_path / "model.onnx"
    path.write_bytes(graph.model("logits", IDS).SerializeToString())
    code = (
        "import sys\nfrom pathlib import Path\nfrom vllm_probe.models.onnx.reader import read_onnx\n"
        "spec = read_onnx(Path(sys.argv[1]))\n"
        "peak = Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]\n"
        "print(spec.weight_bytes, peak)"
    )
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=250)
    nbytes, kib = map(int, ended.stdout.split())
    assert nbytes > 256 << 20 > MAX_VALUE_BYTES
    assert kib < 200_000


def test_without_the_package_the_error_says_what_brings_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(SERIAL)
    code = "import sys; sys.modules['onnx'] = None; from vllm_probe.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "negotiate", str(path), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "error: reading" in ended.stderr
    assert f"{extra_command('onnx')} brings it" in ended.stderr


@given(st.integers(0, len(SERIAL) - 1), st.binary(min_size=1, max_size=12))
def test_a_damaged_graph_is_read_or_refused(at: int, patch: bytes) -> None:
    onnx_model.one_input(SERIAL[:at] + patch + SERIAL[at + len(patch) :])


_NAMES = st.sampled_from(["x", "a", "b", "c", "w", "ids", ""])
_NODES = st.lists(
    st.tuples(
        st.sampled_from(["MatMul", "Gemm", "Softmax", "Reshape", "Transpose", "Gather", "Conv", "If", "Cos", "Concat"]),
        st.lists(_NAMES, max_size=4),
        st.lists(_NAMES, max_size=2),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
    ),
    max_size=8,
)


@given(_NODES, st.lists(st.integers(-2, 1 << 62), max_size=5), st.integers(0, 30))
@settings(deadline=None)
def test_any_graph_is_read_or_refused(
    nodes: list[tuple[str, list[str], list[str], list[int]]], dims: list[int], kind: int
) -> None:
    graph = onnx.GraphProto(name="g", initializer=[onnx.TensorProto(name="w", dims=dims, data_type=kind)])
    graph.input.add(name="x")
    graph.output.add(name="c")
    for op, inputs, outputs, numbers in nodes:
        node = graph.node.add(op_type=op, input=inputs, output=outputs)
        for name in ("axis", "transB", "perm", "strides", "pads", "num_heads"):
            node.attribute.add(name=name, type=7, ints=numbers, i=sum(numbers) % 97)
    onnx_model.one_input(onnx.ModelProto(graph=graph).SerializeToString())

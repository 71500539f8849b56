"""What is refused at load, and what files may look like."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.runtime.support import CPU, FaultyAdapter, Load, ids, load_engine, make_config
from vllm_probe.core.errors import (
    AdapterOutOfOrder,
    BadUsage,
    DeviceUnavailable,
    InvalidModel,
    SchemaViolation,
    UnsupportedModel,
    WeightsUnavailable,
)
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"quantization": "int8"}, UnsupportedModel, "quantization int8"),
        ({"tensor_parallel_size": 2}, UnsupportedModel, "2 devices"),
        ({"max_num_batched_tokens": 63}, BadUsage, "max_num_batched_tokens 63 is less than max_model_len 64"),
        ({"max_model_len": 65, "max_num_batched_tokens": 128}, BadUsage, "more than the 64 positions"),
        ({"primitives": {"linear": "magic"}}, BadUsage, "no implementation 'magic' of linear"),
        ({"dtype": "float16"}, BadUsage, "/dtype: the bundled engine does not compute in 'float16'"),
        ({"dtype": "float8"}, BadUsage, "/dtype: the bundled engine does not compute in 'float8'"),
        ({"pooling": {"type": "max", "normalize": True}}, SchemaViolation, "/pooling/type: must be .*, not 'max'"),
        ({"pooling": {"type": ["cls"]}}, SchemaViolation, "/pooling/type: must be .*'cls'"),
        ({"pooling": {"type": None}}, SchemaViolation, "/pooling/type: must be .*, not None"),
        ({"pooling": {"type": "cls", "normalize": "no"}}, SchemaViolation, "/pooling/normalize: must be .*, not 'no'"),
        ({"pooling": {"normalize": 0}}, SchemaViolation, "/pooling/normalize: must be true or false, not 0"),
        ({"threads": 5}, BadUsage, "/threads: 5 threads are more than the 4 logical CPUs of cpu0"),
        ({"threads": 10**12}, BadUsage, "/threads"),
    ],
)
def test_a_config_that_cannot_run_is_refused(
    tiny: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    adapter = FaultyAdapter()
    with pytest.raises(error, match=message):
        load_engine(tiny, adapter, **changes)
    with pytest.raises(AdapterOutOfOrder):
        adapter.memory()


def test_a_number_format_that_the_device_lacks_is_refused(tiny: Path) -> None:
    class Exact(FaultyAdapter):
        linears: ClassVar = {"fp32": ("aten",)}

    with pytest.raises(DeviceUnavailable, match="cpu0 has no linear in bf16"):
        load_engine(tiny, Exact(), dtype="bfloat16")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "LlamaForCausalLM"}, "architecture LlamaForCausalLM"),
        ({"architecture": "Qwen3ForCausalLM", "pooling": None}, "text generation"),
    ],
)
def test_what_only_vllm_runs_is_offered_to_it(tiny: Path, change: dict[str, Any], reason: str) -> None:
    spec = replace(read_folder(tiny), **change)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(UnsupportedModel, match=reason) as refused:
        Engine.load(make_config(spec), spec, adapter)
    assert "--engine vllm" in refused.value.hint


@pytest.mark.parametrize(("change", "reason"), [({"activation": "relu"}, "relu"), ({"projections": (4,)}, "linears")])
def test_an_encoder_of_another_kind_is_refused(tiny: Path, change: dict[str, Any], reason: str) -> None:
    spec = replace(read_folder(tiny), **change)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(UnsupportedModel, match=reason):
        Engine.load(make_config(spec), spec, adapter)


def test_a_shape_without_weights_is_refused(tiny: Path) -> None:
    spec = replace(read_folder(tiny), weights_path=None)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(WeightsUnavailable):
        Engine.load(make_config(spec), spec, adapter)


@pytest.mark.parametrize("damage", ["missing", "shape", "none", "tokenizer"])
def test_damaged_files_are_named(tiny: Path, tmp_path: Path, damage: str) -> None:
    spec = replace(read_folder(tiny), weights_path=str(tmp_path), folder=str(tmp_path))
    tensors = load_file(tiny / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    if damage == "missing":
        del tensors[name]
    if damage == "shape":
        tensors[name] = tensors[name].t().contiguous()
    if damage == "none":
        tensors = {"other": torch.zeros(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    if damage == "tokenizer":
        (tmp_path / "tokenizer.json").write_text("{}")
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    wanted = {"none": "word_embeddings", "tokenizer": "tokenizer.json"}.get(damage, name)
    with pytest.raises(InvalidModel, match=wanted):
        Engine.load(make_config(spec), spec, adapter)


def test_shards_and_prefixed_names_are_read(tiny: Path, tmp_path: Path, load: Load, tiny_engine: Engine) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(tiny / "model.safetensors").items()}
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(load(folder)[0].embed(ids(12)).vectors, tiny_engine.embed(ids(12)).vectors)

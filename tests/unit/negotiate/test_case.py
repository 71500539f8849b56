"""The question in full: what a release knows of the model."""

from dataclasses import replace

import pytest

from tests.unit.negotiate.cases import H100, LLAMA_8B, case
from vllm_probe.core.errors import BadUsage
from vllm_probe.models import catalogue

GPT_OSS, QWEN3_5, QWEN3 = (catalogue.load(name) for name in ("gpt-oss-20b", "Qwen3.5-27B", "Qwen3-8B"))


def test_a_release_without_the_architecture_is_refused_with_the_first_that_has_it() -> None:
    with pytest.raises(BadUsage, match=r"vLLM 0\.10\.0 has no GptOssForCausalLM") as refusal:
        case(GPT_OSS, H100, engine="vllm", engine_version="0.10.0")
    assert "--engine-version 0.10.1 or newer" in str(refusal.value.hint)
    with pytest.raises(BadUsage, match="has no Qwen3_5ForConditionalGeneration"):
        case(QWEN3_5, H100, engine="vllm", engine_version="0.16.0")


def test_a_release_that_has_the_architecture_no_more_is_refused_with_the_last_that_had_it() -> None:
    bamba = replace(LLAMA_8B, architecture="BambaForCausalLM")
    with pytest.raises(BadUsage, match=r"has no BambaForCausalLM, .*, any more") as refusal:
        case(bamba, H100, engine="vllm")
    assert "--engine-version 0.23.0" in str(refusal.value.hint)
    assert case(bamba, H100, engine="vllm", engine_version="0.23.0").engine_version == "0.23.0"


def test_a_release_that_was_not_looked_into_is_doubted() -> None:
    doubted = [
        case(GPT_OSS, H100, engine="vllm", engine_version="0.10.1").warnings,
        case(QWEN3_5, H100, engine="vllm", engine_version="0.17.1").warnings,
        case(QWEN3, H100, engine="vllm", engine_version="0.8.4").warnings,
        case(QWEN3, H100, engine="vllm", engine_version="0.8.5").warnings,
        case(LLAMA_8B, H100, engine="vllm", engine_version="0.6.4").warnings,
        case(GPT_OSS, H100, engine="vllm").warnings,
        case(GPT_OSS, H100, engine="vllm", engine_version="0.10").warnings,
    ]
    assert [len(warnings) for warnings in doubted] == [0, 1, 1, 0, 0, 0, 0]
    assert doubted[1][0] == (
        "it is not known whether vLLM 0.17.1 has Qwen3_5ForConditionalGeneration: 0.19.0 is the first release "
        "seen with it"
    )

"""A name is understood in any case, with an organisation, and with the suffixes of tuning and quantization."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.models import catalogue, names

LLAMA_3 = {f"Llama-3{name}" for name in ("-8B", "-70B", ".1-8B", ".1-70B", ".1-405B", ".2-1B", ".2-3B")}


@pytest.mark.parametrize(
    ("name", "canonical", "quantization"),
    [
        ("Qwen3-8B", "Qwen3-8B", "none"),
        ("qwen3-8b", "Qwen3-8B", "none"),
        ("Qwen/Qwen3-8B", "Qwen3-8B", "none"),
        ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2", "none"),
        ("Qwen3-8B-Base", "Qwen3-8B", "none"),
        ("GLM-5.3-Chat", "GLM-5.3", "none"),
        ("Qwen3-0.6B-it", "Qwen3-0.6B", "none"),
        ("Qwen3-8B-hf", "Qwen3-8B", "none"),
        ("Qwen3-8B-Instruct-2507", "Qwen3-8B", "none"),
        ("Qwen3-8B-20250728", "Qwen3-8B", "none"),
        ("Qwen3-8B-2025-07", "Qwen3-8B", "none"),
        ("zai-org/GLM-5.2-FP8", "GLM-5.2", "fp8"),
        ("zai-org/GLM-5.3-FP8", "GLM-5.3-FP8", "none"),
        ("google/gemma-3-4b-pt", "gemma-3-4b", "none"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3-235B-A22B-Instruct-2507", "none"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "Qwen3-30B-A3B-Instruct-2507", "fp8"),
        ("Qwen3-30B-A3B-Instruct", "Qwen3-30B-A3B", "none"),
        ("moonshotai/Kimi-K2-Thinking", "Kimi-K2-Thinking", "none"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B", "none"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B", "fp8"),
        ("gpt-oss:20b", "gpt-oss-20b", "none"),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "Qwen3-8B", "fp8"),
        ("Qwen3-8B-quantized.w8a8", "Qwen3-8B", "w8a8"),
        ("Qwen3-8B-Instruct-quantized.w4a16", "Qwen3-8B", "w4a16"),
        ("Qwen3-8B-AWQ", "Qwen3-8B", "awq"),
        ("Qwen3-8B-GPTQ-Int4", "Qwen3-8B", "gptq"),
        ("nvidia/Qwen3-8B-NVFP4", "Qwen3-8B", "nvfp4"),
        ("nvidia/DeepSeek-R1-FP4", "DeepSeek-R1", "nvfp4"),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-block", "Llama-3.1-8B", "fp8"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "Llama-3.1-8B", "awq"),
        ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int8", "Qwen2.5-14B-Instruct", "w8a16"),
        ("unsloth/Llama-3.2-3B-Instruct-unsloth-bnb-4bit", "Llama-3.2-3B", "bitsandbytes"),
        ("unsloth/gemma-2-9b-it-bnb-4bit", "gemma-2-9b", "bitsandbytes"),
        ("Qwen3-8B-W8A8", "Qwen3-8B", "w8a8"),
        ("Qwen/QwQ-32B-AWQ", "QwQ-32B", "awq"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "Qwen3-Coder-30B-A3B-Instruct", "fp8"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.1-70B", "none"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B", "none"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B-2501", "none"),
        ("microsoft/Phi-3-mini-4k-instruct", "Phi-3-mini-4k", "none"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite-3.3-8b", "none"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen2.5-32B-Instruct", "none"),
        ("qwen3:8b", "Qwen3-8B", "none"),
        ("all-minilm", "all-MiniLM-L6-v2", "none"),
    ],
)
def test_the_same_shape_has_many_names(name: str, canonical: str, quantization: str) -> None:
    found = names.find(name)
    assert found is not None
    assert (found[0], found[1].quantization) == (canonical, quantization)


@pytest.mark.parametrize("name", ["Qwen3-80B", "Qwen3-8B-Flash", "Qwen3-8B-GGUF", "Qwen3", "", "/", "a" * 10_000])
def test_other_names_stand_for_nothing(name: str) -> None:
    assert names.find(name) is None


def test_the_most_literal_reading_comes_first() -> None:
    bases = [reading.base for reading in names.readings("Qwen3-4B-Instruct-2507-FP8")]
    assert bases == ["qwen3-4b-instruct-2507-fp8", "qwen3-4b-instruct-2507", "qwen3-4b-instruct", "qwen3-4b"]


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("Qwen3-8B-Instruct-2507-FP8", "-2507"),
        ("GLM-4.6-Thinking", "-thinking"),
        ("Qwen3-14B-2025-07-AWQ", "-2025-07"),
        ("Qwen3-8B-Instruct", ""),
        ("Qwen3-4B-Thinking-2507-FP8", ""),
    ],
)
def test_a_suffix_that_names_another_release_is_kept(name: str, release: str) -> None:
    found = names.find(name)
    assert found is not None
    assert found[1].release == release


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("deepseek-r1-distill", {f"DeepSeek-R1-Distill-Qwen-{size}B" for size in ("1.5", "7", "14", "32")}),
        ("qwen3-embedding", {"Qwen3-Embedding-0.6B", "Qwen3-Embedding-4B", "Qwen3-Embedding-8B"}),
        ("llama-3", LLAMA_3),
        ("Llama", LLAMA_3 | {"Llama-2-7b", "Llama-2-13b", "Llama-2-70b", "Llama-4-Scout"}),
        ("all", set()),
        ("", set()),
    ],
)
def test_a_bare_family_lists_its_models(name: str, listed: set[str]) -> None:
    assert set(names.members(name)) == listed


@pytest.mark.parametrize(
    ("name", "stem"), [("glm", "GLM-"), ("deepseek", "DeepSeek-"), ("qwen", "Qwen"), ("qwen3", "Qwen3-")]
)
def test_a_short_family_lists_all_that_begins_with_it(name: str, stem: str) -> None:
    assert list(names.members(name)) == [entry for entry in catalogue.entries() if entry.startswith(stem)]


@pytest.mark.parametrize("typo", ["Qwen3-Embeding-0.6B", "qwen3-embedding-06b", "Qwen/Qwen3_Embedding_0.6B-FP8"])
def test_a_typo_is_met_with_what_looks_like_it(typo: str) -> None:
    assert names.near_misses(typo, ["bge-m3", "Qwen3-Embedding-0.6B"]) == ("Qwen3-Embedding-0.6B",)


@given(st.text(max_size=300) | st.lists(st.sampled_from(["-fp8", "-it", "-2024", "/", "qwen3-8b"])).map("".join))
def test_any_text_has_finitely_many_readings(name: str) -> None:
    bases = [reading.base for reading in names.readings(name)]
    assert len(bases) == len(set(bases)) <= names.MAX_LENGTH
    names.near_misses(name, ["Qwen3-8B"])

"""A name is understood in any case, with an organisation, and with the suffixes of tuning and quantization."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.models import names


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
        ("zai-org/GLM-5.3-FP8", "GLM-5.3", "fp8"),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "Qwen3-8B", "fp8"),
        ("Qwen3-8B-quantized.w8a8", "Qwen3-8B", "w8a8"),
        ("Qwen3-8B-Instruct-quantized.w4a16", "Qwen3-8B", "w4a16"),
        ("Qwen3-8B-AWQ", "Qwen3-8B", "awq"),
        ("Qwen3-8B-GPTQ-Int4", "Qwen3-8B", "gptq"),
        ("nvidia/Qwen3-8B-NVFP4", "Qwen3-8B", "nvfp4"),
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
    ("name", "listed"),
    [
        ("glm", ("GLM-5.3",)),
        ("Qwen3", ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-Embedding-0.6B")),
        ("qwen", ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-Embedding-0.6B")),
        ("qwen3-embedding", ("Qwen3-Embedding-0.6B",)),
        ("all", ()),
        ("", ()),
    ],
)
def test_a_bare_family_lists_its_models(name: str, listed: tuple[str, ...]) -> None:
    assert names.members(name) == listed


@pytest.mark.parametrize("typo", ["Qwen3-Embeding-0.6B", "qwen3-embedding-06b", "Qwen/Qwen3_Embedding_0.6B-FP8"])
def test_a_typo_is_met_with_what_looks_like_it(typo: str) -> None:
    assert names.near_misses(typo, ["bge-m3", "Qwen3-Embedding-0.6B"]) == ("Qwen3-Embedding-0.6B",)


@given(st.text(max_size=300) | st.lists(st.sampled_from(["-fp8", "-it", "-2024", "/", "qwen3-8b"])).map("".join))
def test_any_text_has_finitely_many_readings(name: str) -> None:
    bases = [reading.base for reading in names.readings(name)]
    assert len(bases) == len(set(bases)) <= names.MAX_LENGTH
    names.near_misses(name, ["Qwen3-8B"])

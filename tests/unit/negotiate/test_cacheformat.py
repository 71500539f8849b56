"""The number format of the KV cache: pinned, the checkpoint's, or that of the activations."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import ASCEND, CPU, GIB, H100, QWEN3_8B, case, config, decision, rejections
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.export.options import settings_of
from vllm_probe.export.vllm import vllm_command
from vllm_probe.models import catalogue

MODELOPT = replace(QWEN3_8B, quantization="fp8", kv_cache_dtype="fp8_e4m3")
LLM_COMPRESSOR = replace(QWEN3_8B, quantization="fp8", kv_cache_dtype="fp8")
AMPERE = H100 | {"device": H100["device"] | {"arch": "sm_80"}}
BLACKWELL = H100 | {"device": H100["device"] | {"arch": "sm_100"}}


@pytest.mark.parametrize(
    ("spec", "version", "word"),
    [
        (MODELOPT, "0.33", "fp8_e4m3"), (MODELOPT, "0.14.0", "fp8_e4m3"), (MODELOPT, "0.13.0", "bfloat16"),
        (LLM_COMPRESSOR, "0.19.0", "fp8"), (LLM_COMPRESSOR, "0.16.0", "bfloat16"), (QWEN3_8B, "0.33", "bfloat16"),
        (catalogue.load("Qwen3.6-27B-NVFP4"), "0.33", "fp8_e4m3"),
        (catalogue.load("DeepSeek-V3.2"), "0.16.0", "fp8"), (catalogue.load("DeepSeek-V3.2"), "0.33", "bfloat16"),
        (catalogue.load("GLM-5.3"), "0.33", "bfloat16"),
    ],
)  # fmt: skip
def test_the_cache_has_the_format_that_the_release_takes_by_itself(spec: ModelSpec, version: str, word: str) -> None:
    assert config(spec, H100, engine="vllm", engine_version=version).kv_cache_dtype == word


def test_glm_has_an_8_bit_cache_on_blackwell_alone() -> None:
    glm = catalogue.load("GLM-5.3")
    assert config(glm, BLACKWELL, engine="vllm").kv_cache_dtype == "fp8_e4m3"
    assert config(glm, BLACKWELL, engine="vllm", engine_version="0.29").kv_cache_dtype == "bfloat16"


def test_a_cache_of_8_bits_holds_twice_the_tokens_and_is_passed_on_by_name() -> None:
    plain = config(replace(MODELOPT, kv_cache_dtype=None), H100, engine="vllm")
    found = config(MODELOPT, H100, engine="vllm")
    assert (found.budget.kv_cache_tokens or 0) / (plain.budget.kv_cache_tokens or 1) == pytest.approx(2, rel=0.001)
    assert "--kv-cache-dtype fp8_e4m3" in vllm_command(found)
    setting = {each.option: each for each in settings_of(found).options}["kv-cache-dtype"]
    assert (setting.default, setting.kept) == ("auto", True)
    assert decision(found, "kv_cache_dtype").rule == "as the checkpoint states, which has the scales for it"
    assert "--kv-cache-dtype bfloat16 keeps 16 bits" in rejections(found, "kv_cache_dtype")["bfloat16"]


def test_a_pin_goes_before_the_checkpoint_and_is_not_left_to_auto() -> None:
    found = config(MODELOPT, H100, engine="vllm", pins={"kv_cache_dtype": "bfloat16"})
    assert found.kv_cache_dtype == "bfloat16"
    assert "--kv-cache-dtype bfloat16" in vllm_command(found)
    plain = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_dtype": "bfloat16"})
    assert "--kv-cache-dtype auto" in vllm_command(plain)


def test_another_checkpoint_need_not_have_the_same_cache() -> None:
    assert case(MODELOPT, H100, engine="vllm").cache.of("float16", is_own=False) == "float16"


@pytest.mark.parametrize(("document", "count"), [(AMPERE, 1), (H100, 0), (CPU, 0)])
def test_a_card_that_may_not_read_the_cache_of_a_checkpoint_is_doubted_with_the_way_out(
    document: dict[str, Any], count: int
) -> None:
    found = config(LLM_COMPRESSOR, document, engine="vllm", device_memory_bytes=80 * GIB)
    said = [each for each in found.warnings if "the fp8 KV cache of Qwen3-8B may be refused at the start" in each]
    assert len(said) == count
    assert all("need sm_89" in each and each.endswith("--kv-cache-dtype bfloat16 keeps 16 bits") for each in said)


@pytest.mark.parametrize(
    ("document", "version", "why"),
    [(ASCEND, "0.33", "vllm has no 8-bit cache on ascend"), (H100, "0.16.0", "vLLM 0.16.0 does so only with --kv-")],
)
def test_a_stated_cache_that_is_not_taken_is_said(document: dict[str, Any], version: str, why: str) -> None:
    found = config(LLM_COMPRESSOR, document, engine="vllm", engine_version=version)
    assert found.kv_cache_dtype in ("bfloat16", "float16")
    assert any(
        "states that its KV cache is kept in fp8, and it is not" in each and why in each for each in found.warnings
    )
    pins = {"kv_cache_dtype": "bfloat16"}
    pinned = config(LLM_COMPRESSOR, document, engine="vllm", engine_version=version, pins=pins)
    assert not any("and it is not" in each for each in pinned.warnings)


@pytest.mark.parametrize("word", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_an_8_bit_cache_is_refused_on_a_device_without_one(word: str) -> None:
    with pytest.raises(BadUsage, match=f"--kv-cache-dtype {word}: vllm has no 8-bit cache on ascend") as caught:
        config(QWEN3_8B, ASCEND, engine="vllm", pins={"kv_cache_dtype": word})
    assert caught.value.hint == "leave it out, or give auto, the format of the activations"
    assert config(QWEN3_8B, ASCEND, engine="vllm", pins={"kv_cache_dtype": "bfloat16"})


def test_an_8_bit_cache_is_doubted_on_a_device_of_which_nothing_is_known() -> None:
    gaudi = H100 | {"device_type": "gaudi", "device": {"vendor": "habana", "kind": "accelerator", "arch": "gaudi3"}}
    found = config(QWEN3_8B, gaudi, engine="vllm", pins={"kv_cache_dtype": "fp8"})
    said = "--kv-cache-dtype fp8 may be refused at the start: no 8-bit cache is known on gaudi"
    assert found.warnings.count(said) == 1
    assert not any("8-bit cache" in each for each in config(QWEN3_8B, gaudi, engine="vllm").warnings)


@pytest.mark.parametrize(
    ("version", "word", "takes"),
    [
        ("0.33", "float32", "float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2"),
        ("0.16.0", "float16", "bfloat16, fp8, fp8_e4m3, fp8_e5m2"),
        ("0.10.2", "bfloat16", "fp8, fp8_e4m3, fp8_e5m2"),
    ],
)
def test_a_format_that_the_release_has_no_cache_in_is_refused(version: str, word: str, takes: str) -> None:
    with pytest.raises(BadUsage, match=f"--kv-cache-dtype {word}: vLLM {version} has no KV cache in {word}") as caught:
        case(QWEN3_8B, H100, engine="vllm", engine_version=version, pins={"kv_cache_dtype": word})
    assert caught.value.hint == f"give one of {takes}, or auto, the format of the activations"
    for other in takes.split(", "):
        assert case(QWEN3_8B, H100, engine="vllm", engine_version=version, pins={"kv_cache_dtype": other})


@pytest.mark.parametrize(
    ("spec", "version", "is_refused"),
    [
        (MODELOPT, "0.33", True), (catalogue.load("Qwen3-32B-FP8"), "0.33", True), (QWEN3_8B, "0.33", False),
        (replace(QWEN3_8B, quantization="w4a16"), "0.23", True),
        (replace(QWEN3_8B, quantization="w4a16"), "0.33", False),
        (replace(QWEN3_8B, quantization="awq"), "0.23", False),
    ],
)  # fmt: skip
def test_e5m2_is_refused_beside_a_checkpoint_whose_method_has_scales(
    spec: ModelSpec, version: str, is_refused: bool
) -> None:
    asked: dict[str, Any] = {"engine": "vllm", "engine_version": version, "pins": {"kv_cache_dtype": "fp8_e5m2"}}
    if not is_refused:
        assert case(spec, H100, **asked)
        return
    with pytest.raises(BadUsage, match="fp8_e5m2 kv-cache is not supported with fp8 checkpoints") as caught:
        case(spec, H100, **asked)
    assert caught.value.hint == "give fp8_e4m3, or auto"


def test_the_bundled_runtime_keeps_the_format_of_the_activations() -> None:
    assert case(MODELOPT, H100).cache.of("bfloat16", is_own=True) == "bfloat16"

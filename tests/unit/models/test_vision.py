"""The image tower beside a text model."""

from typing import Any

import pytest

from vllm_probe.models import catalogue
from vllm_probe.models.facts import Facts
from vllm_probe.models.vision import tower_parameters


def parameters(architecture: str, **config: Any) -> int:
    return tower_parameters(architecture, Facts({"hidden_size": 2560, **config}, "test"))


def test_the_tower_of_gemma_3_is_known_without_its_config() -> None:
    found = parameters("Gemma3ForConditionalGeneration")
    assert found == pytest.approx(416_866_032 + 1152 * 2560, rel=0.0005)
    assert catalogue.load("gemma-3-4b").vision_parameters == found


def test_a_text_model_has_none_and_neither_has_an_unknown_tower() -> None:
    assert parameters("Qwen3ForCausalLM", vision_config={"hidden_size": 8}) == 0
    assert parameters("Qwen3VLForConditionalGeneration") == 0
    assert parameters("Qwen3VLForConditionalGeneration", vision_config={"hidden_size": 8}) == 0


def test_a_stated_tower_is_counted_layer_by_layer() -> None:
    tower = {
        "depth": 1, "hidden_size": 4, "intermediate_size": 8, "patch_size": 2, "num_position_embeddings": 5,
        "spatial_merge_size": 2,
    }  # fmt: skip
    layer = 4 * 4 * 5 + 2 * 4 * 8 + 8 + 4 + 16
    expected = layer + 3 * 4 * 4 + 5 * 4 + 16 * 16 + 16 * 2560
    assert parameters("Qwen3_5ForConditionalGeneration", vision_config=tower) == expected


def test_a_pixtral_tower_has_no_biases_and_is_joined_by_a_merger_and_two_linears() -> None:
    tower = {"model_type": "pixtral", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2, "patch_size": 2}
    layer = 4 * 4 * 4 + 3 * 4 * 8 + 2 * 4
    expected = 2 * layer + 3 * 4 * 4 + 4 + 4 + 16 * 4 + 4 * 2560 + 2560 * 2560
    assert parameters("Mistral3ForConditionalGeneration", vision_config=tower, spatial_merge_size=2) == expected


def test_a_gemma_4_that_hears_has_a_tower_for_it() -> None:
    tower = {"model_type": "gemma4_vision", "hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 8}
    sees, hears = (
        parameters("Gemma4ForConditionalGeneration", vision_config=tower, audio_config=audio)
        for audio in (None, {"model_type": "gemma4_audio"})
    )
    assert hears - sees == 304_824_608 + 1536 * 2560


def test_a_tower_with_a_position_for_each_patch_is_told_by_its_image() -> None:
    tower = {
        "model_type": "clip_vision_model", "num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 8,
        "patch_size": 2, "image_size": 6,
    }  # fmt: skip
    layer = 4 * 4 * 5 + 2 * 4 * 8 + 8 + 4 + 16
    around = 3 * 4 * 4 + (9 + 1) * 4
    found = parameters("LlavaForConditionalGeneration", vision_config=tower)
    assert found == layer + around + 4 * 2560 + 2560 * 2560
    tower |= {"model_type": "idefics3_vision"}
    found = parameters("Idefics3ForConditionalGeneration", vision_config=tower, scale_factor=3)
    assert found == layer + around - 4 + 9 * 4 * 2560

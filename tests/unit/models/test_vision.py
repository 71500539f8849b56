"""The towers for images and sound beside a text model."""

from typing import Any

import pytest

from vllm_probe.models import catalogue
from vllm_probe.models.facts import Facts
from vllm_probe.models.vision import tower_parameters, uncounted


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


GLM_TOWER = {
    "depth": 24, "hidden_size": 1536, "num_heads": 12, "out_hidden_size": 4096, "patch_size": 14, "image_size": 336,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
INTERN = {
    "model_type": "internvl_vision", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096,
    "patch_size": [14, 14], "image_size": [448, 448],
}  # fmt: skip
QWEN_AUDIO = {"model_type": "qwen2_audio_encoder", "num_mel_bins": 128, "encoder_layers": 32, "d_model": 1280}
MOONVIT = {
    "patch_size": 14, "merge_kernel_size": [2, 2], "init_pos_emb_height": 64, "init_pos_emb_width": 64,
    "vt_hidden_size": 1152, "vt_num_hidden_layers": 27, "vt_intermediate_size": 4304,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "config", "published"),
    [
        ("Glm4vForConditionalGeneration", {"hidden_size": 4096, "vision_config": GLM_TOWER}, 892_498_432),
        ("Glm4vMoeForConditionalGeneration", {"hidden_size": 4096, "vision_config": GLM_TOWER}, 858_681_856),
        ("InternVLForConditionalGeneration", {"hidden_size": 3584, "vision_config": INTERN}, 331_479_040),
        ("Qwen2AudioForConditionalGeneration", {"hidden_size": 4096, "audio_config": QWEN_AUDIO}, 642_215_936),
    ],
)
def test_a_tower_has_the_parameters_that_transformers_gives_it(
    architecture: str, config: dict[str, Any], published: int
) -> None:
    inner = {"intermediate_size": 10944 if "Moe" in architecture else 13696}
    config = config | {"vision_config": inner | config["vision_config"]} if "vision_config" in config else config
    assert parameters(architecture, **config) == pytest.approx(published, rel=1e-4)
    assert uncounted(architecture, Facts({"hidden_size": 4096, **config}, "test")) is None


def test_the_tower_of_a_kimi_k2_5_is_described_in_keys_of_its_own() -> None:
    found = parameters("KimiK25ForConditionalGeneration", hidden_size=7168, vision_config=MOONVIT)
    layer = 4 * 1152 * 1153 + 2 * 1152 * 4304 + 4304 + 5 * 1152
    merged = 4 * 1152
    assert found == 27 * layer + (3 * 196 + 4096) * 1152 + merged * (merged + 7168)


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({}, "this architecture"),
        ({"audio_config": {"model_type": "other"}}, "audio_config"),
        ({"vision_config": {"model_type": "other"}}, "vision_config"),
        ({"vision_config": {"a": 1}, "audio_config": {"a": 1}}, "vision_config and audio_config"),
    ],
)
def test_a_tower_that_is_not_counted_is_said(config: dict[str, Any], left: str) -> None:
    reason = uncounted("NewForConditionalGeneration", Facts({"hidden_size": 64, **config}, "test"))
    assert reason is not None
    assert reason.startswith(f"the tower of {left} is not counted")
    assert uncounted("NewForCausalLM", Facts(config, "test")) is None

"""The towers of a multimodal checkpoint, which an engine loads beside the text model."""

import re

from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import Facts

_TOWERS: dict[str, dict[str, JsonValue]] = {
    "Gemma3ForConditionalGeneration": {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14, "num_position_embeddings": 4096,
    },
    "Llama4ForConditionalGeneration": {
        "depth": 34, "hidden_size": 1408, "intermediate_size": 5632, "patch_size": 14, "num_position_embeddings": 577,
        "joined_parameters": 5632 * 4096 + 4096 * 4096 + 4096 * 5120,
    },
    "Phi3VForCausalLM": {
        "model_type": "clip_vision_model", "num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096,
        "image_size": 336, "joined_parameters": 4096 * 3072 + 3072 * 3072,
    },
}  # fmt: skip
"""Towers of published checkpoints, for a config that leaves `vision_config` out.

Gemma 3: SigLIP So400m/14 at 896 pixels, arXiv 2503.19786 section 2; Llama 4: the configuration classes of transformers;
Phi 3: CLIP ViT-L/14 at 336 pixels, its patches joined by four (vllm/model_executor/models/phi3v.py, 0.32).
"""

_MULTIMODAL = re.compile(r"ForConditionalGeneration$|^(?:InternVLChat|Qwen2_5Omni)Model$|^Phi3VForCausalLM$|^MiniCPMV$")
_GATED = ("Qwen2_5_VL", "Qwen2_5Omni")
_AUDIO_WIDTH = 1536
_PICTURED = {
    "clip_vision_model": 1,
    "siglip_vision_model": 0,
    "idefics3_vision": 0,
    "smolvlm_vision": 0,
    "internvl_vision": 1,
    "intern_vit_6b": 1,
}
"""Towers with a position for each patch of the image, and those beside: the class token of CLIP."""

_HEARING = ("qwen2_audio_encoder", "qwen2_5_omni_audio_encoder", "qwen3_omni_moe_audio_encoder")
_MERGING = "merge_kernel_size"


def tower_parameters(architecture: str, facts: Facts) -> int:
    """Parameters of the towers for images and sound and of what joins them to the text, 0 for a text model.

    A layer has 4 h^2 + 2 h I weights (3 h I where it is gated), its biases and two norms; around the layers stand the
    patch embedding of `channels x frames x patch^2` inputs, a table of positions, and the linears that join it.
    """
    if not _MULTIMODAL.search(architecture):
        return 0
    return _image(architecture, facts) + _sound(architecture, facts)


def uncounted(architecture: str, facts: Facts) -> str | None:
    """What the config describes beside the text model that `tower_parameters` leaves out, null without any."""
    if not _MULTIMODAL.search(architecture):
        return None
    counted = {"vision_config": _image(architecture, facts), "audio_config": _sound(architecture, facts)}
    left = [part for part, parameters in counted.items() if facts.part(part).values and not parameters]
    if not left and any(counted.values()):
        return None
    whose = " and ".join(left) or "this architecture"
    return f"the tower of {whose} is not counted: the weights take more than is said here"


def _image(architecture: str, facts: Facts) -> int:
    stated = _plain(facts.part("vision_config"))
    if not (stated or architecture in _TOWERS):
        return 0
    tower = Facts(stated, facts.source, _TOWERS.get(architecture))
    hidden = tower.maybe("embed_dim", "hidden_size")
    layers, ratio = tower.maybe("depth", "num_hidden_layers"), tower.maybe("mlp_ratio") or 0
    inner = tower.maybe("intermediate_size") or (hidden or 0) * ratio
    if not (hidden and layers and inner):
        return 0
    kind = tower.word("model_type")
    if kind == "pixtral":
        return _pixtral(tower, facts, hidden, layers, inner)
    if architecture.startswith("Glm4v"):
        return _glm(tower, hidden, layers, inner)
    gates = 1 if "gated" in kind or kind.startswith("gemma4") or architecture.startswith(_GATED) else 0
    layer = 4 * hidden * (hidden + 1) + (2 + gates) * hidden * inner + inner + hidden + 4 * hidden
    around = (3 * _patch(tower) + _positions(tower)) * hidden
    return layers * layer + around + _joined(tower, facts, architecture, hidden)


def _plain(stated: Facts) -> dict[str, JsonValue]:
    """The values of a tower in the keys of most: one for a pair of equals, without the `vt_` of Kimi K2.5.

    MoonViT states the rows and columns of its table of positions, and the patches that it merges in each direction.
    """
    values: dict[str, JsonValue] = {}
    for key, value in stated.values.items():
        is_pair = isinstance(value, list) and len(value) > 1 and all(each == value[0] for each in value)
        values[key.removeprefix("vt_")] = value[0] if isinstance(value, list) and is_pair else value
    if _MERGING in values:
        values["spatial_merge_size"] = values[_MERGING]
    rows, columns = (stated.maybe(f"init_pos_emb_{side}") for side in ("height", "width"))
    return values | ({"num_position_embeddings": rows * columns} if rows and columns else {})


def _patch(tower: Facts) -> int:
    """Points of a patch, over the frames that it spans."""
    return (tower.maybe("patch_size") or 14) ** 2 * (tower.maybe("temporal_patch_size") or 1)


def _pixtral(tower: Facts, facts: Facts, hidden: int, layers: int, inner: int) -> int:
    """Parameters of a Pixtral tower: gated layers without biases, norms of one vector, and rotary positions.

    A merger of neighbouring patches and two linears join it (PixtralVisionModel and Mistral3 of transformers 5.24).
    """
    text = facts.count("hidden_size")
    patch = 3 * (tower.maybe("patch_size") or 16) ** 2 * hidden
    merger = ((facts.maybe("spatial_merge_size") or 2) * hidden) ** 2
    layer = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    return layers * layer + patch + 2 * hidden + merger + hidden * text + text * text


def _glm(tower: Facts, hidden: int, layers: int, inner: int) -> int:
    """Parameters of the tower of GLM-4.1V and 4.5V: gated layers without biases, as wide inside as the text model.

    A convolution over neighbouring patches and a gated feed-forward of `inner` join it (Glm4vVisionModel of
    transformers 5.24).
    """
    text, merge = tower.count("out_hidden_size"), tower.maybe("spatial_merge_size") or 2
    positions = ((tower.maybe("image_size") or 336) // (tower.maybe("patch_size") or 14)) ** 2
    layer = 4 * hidden * hidden + 3 * hidden * text + 2 * hidden
    around = (3 * _patch(tower) + positions + 3) * hidden
    return layers * layer + around + (merge * merge * hidden + 3) * text + text * text + 3 * text * inner


def _sound(architecture: str, facts: Facts) -> int:
    """Parameters of an audio tower and of what joins it: of Gemma 4 as transformers 5.24 builds it by default.

    That of the Qwen models is the encoder of Whisper: convolutions over the spectrum, and layers whose keys have no
    bias before Qwen3-Omni (modeling_qwen2_audio.py, modeling_qwen2_5_omni.py and modeling_qwen3_omni_moe.py).
    """
    tower, text = facts.part("audio_config"), facts.count("hidden_size")
    if architecture.startswith("Gemma4") and tower.values:
        return 304_824_608 + _AUDIO_WIDTH * text
    kind = tower.word("model_type")
    if kind not in _HEARING:
        return 0
    width, inner = tower.count("d_model", default=1280), tower.count("encoder_ffn_dim", default=5120)
    layer = 4 * width * width + 2 * width * inner + inner + 8 * width
    layers, bands = tower.count("encoder_layers", default=32), tower.count("num_mel_bins", default=128)
    if kind == _HEARING[2]:
        inside, out = tower.count("downsample_hidden_size", default=480), tower.count("output_dim", default=3584)
        folded = 9 * inside * (1 + 2 * inside) + 3 * inside + -(-bands // 8) * inside * width
        return layers * (layer + width) + folded + (width + 1) * (width + out) + 2 * width
    around = 3 * width * (bands + width) + 4 * width
    if kind == _HEARING[1]:
        return layers * layer + around + (width + 3) * tower.count("output_dim", default=3584)
    positions = tower.count("max_source_positions", default=1500) * width
    return layers * layer + around + positions + (width + 1) * text


def _positions(tower: Facts) -> int:
    """Rows of the table of positions, 0 without one."""
    stated, kind = tower.maybe("num_position_embeddings", "position_embedding_size"), tower.word("model_type")
    if stated or kind not in _PICTURED:
        return stated or 0
    return ((tower.maybe("image_size") or 224) // (tower.maybe("patch_size") or 14)) ** 2 + _PICTURED[kind]


def _joined(tower: Facts, facts: Facts, architecture: str, hidden: int) -> int:
    """The linears between tower and text model: as known, mergers of neighbouring patches, or one projection.

    Qwen3-VL has a further merger for each layer of the tower that it also hands to the text model; LLaVA has two
    linears, InternVL too, over patches that it merges, and Idefics 3 one over `scale_factor` squared patches; MiniCPM-V
    attends to the patches with `query_num` queries and projects twice.
    """
    text = facts.count("hidden_size")
    if architecture.startswith("Llava"):
        return (hidden + text) * text
    if architecture.startswith("InternVL"):
        merges = round(1 / max(facts.number("downsample_ratio", 0.5), 1 / hidden))
        return (merges * merges * hidden + text) * text
    if architecture == "MiniCPMV":
        return (5 * text + hidden + facts.count("query_num", default=64)) * text
    merged = hidden * (tower.maybe("spatial_merge_size") or facts.maybe("scale_factor") or 1) ** 2
    if tower.maybe("spatial_merge_size") is None:
        return tower.maybe("joined_parameters") or merged * text
    merger = merged * merged + merged * text if merged > hidden else hidden * text
    return tower.maybe("joined_parameters") or merger * (1 + len(tower.items("deepstack_visual_indexes")))

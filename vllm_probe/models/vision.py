"""The image tower of a multimodal checkpoint, which an engine loads beside the text model."""

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
}  # fmt: skip
"""Towers of published checkpoints, for a config that leaves `vision_config` out.

Gemma 3: SigLIP So400m/14 at 896 pixels, arXiv 2503.19786 section 2; Llama 4: the configuration classes of transformers.
"""


_GATED = "Qwen2_5_VL"
_AUDIO_WIDTH = 1536
_PICTURED = {"clip_vision_model": 1, "siglip_vision_model": 0, "idefics3_vision": 0, "smolvlm_vision": 0}
"""Towers with a position for each patch of the image, and those beside: the class token of CLIP."""


def tower_parameters(architecture: str, facts: Facts) -> int:
    """Parameters of the tower and its projection, 0 for a text model.

    A layer has 4 h^2 + 2 h I weights (3 h I where it is gated), its biases and two norms; around the layers stand the
    patch embedding of `channels x frames x patch^2` inputs, a table of positions, and the linears that join it.
    """
    stated = facts.part("vision_config")
    if not architecture.endswith("ForConditionalGeneration") or not (stated.values or architecture in _TOWERS):
        return 0
    tower = Facts(stated.values, facts.source, _TOWERS.get(architecture))
    hidden = tower.maybe("embed_dim", "hidden_size")
    layers, ratio = tower.maybe("depth", "num_hidden_layers"), tower.maybe("mlp_ratio") or 0
    inner = tower.maybe("intermediate_size") or (hidden or 0) * ratio
    if not (hidden and layers and inner):
        return 0
    kind = tower.word("model_type")
    if kind == "pixtral":
        return _pixtral(tower, facts, hidden, layers, inner)
    gates = 1 if "gated" in kind or kind.startswith("gemma4") or architecture.startswith(_GATED) else 0
    layer = 4 * hidden * (hidden + 1) + (2 + gates) * hidden * inner + inner + hidden + 4 * hidden
    patch = (tower.maybe("patch_size") or 14) ** 2 * (tower.maybe("temporal_patch_size") or 1)
    around = (3 * patch + _positions(tower)) * hidden
    return layers * layer + around + _joined(tower, facts, architecture, hidden) + _audio(facts, architecture)


def _pixtral(tower: Facts, facts: Facts, hidden: int, layers: int, inner: int) -> int:
    """Parameters of a Pixtral tower: gated layers without biases, norms of one vector, and rotary positions.

    A merger of neighbouring patches and two linears join it (PixtralVisionModel and Mistral3 of transformers 5.24).
    """
    text = facts.count("hidden_size")
    patch = 3 * (tower.maybe("patch_size") or 16) ** 2 * hidden
    merger = ((facts.maybe("spatial_merge_size") or 2) * hidden) ** 2
    layer = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    return layers * layer + patch + 2 * hidden + merger + hidden * text + text * text


def _audio(facts: Facts, architecture: str) -> int:
    """Parameters of the audio tower of a Gemma 4 and of what joins it, as transformers 5.24 builds it by default."""
    heard = architecture.startswith("Gemma4") and facts.part("audio_config").values
    return 304_824_608 + _AUDIO_WIDTH * facts.count("hidden_size") if heard else 0


def _positions(tower: Facts) -> int:
    """Rows of the table of positions, 0 without one."""
    stated, kind = tower.maybe("num_position_embeddings", "position_embedding_size"), tower.word("model_type")
    if stated or kind not in _PICTURED:
        return stated or 0
    return ((tower.maybe("image_size") or 224) // (tower.maybe("patch_size") or 14)) ** 2 + _PICTURED[kind]


def _joined(tower: Facts, facts: Facts, architecture: str, hidden: int) -> int:
    """The linears between tower and text model: as known, mergers of neighbouring patches, or one projection.

    Qwen3-VL has a further merger for each layer of the tower that it also hands to the text model; LLaVA has two
    linears, and Idefics 3 one over `scale_factor` squared patches.
    """
    text = facts.count("hidden_size")
    if architecture.startswith("Llava"):
        return (hidden + text) * text
    merged = hidden * (tower.maybe("spatial_merge_size") or facts.maybe("scale_factor") or 1) ** 2
    if tower.maybe("spatial_merge_size") is None:
        return tower.maybe("joined_parameters") or merged * text
    merger = merged * merged + merged * text if merged > hidden else hidden * text
    return tower.maybe("joined_parameters") or merger * (1 + len(tower.items("deepstack_visual_indexes")))

"""What a config leaves to its model type, and model types that are known and cannot be read."""

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.values import JsonValue
from vllm_probe.models.facts import Facts

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")
_DEFAULTS: dict[str, tuple[int | None, ...]] = {
    "cohere2": (8192, 40, 64, 64, 22528, 256000, 8192),
    "gemma": (3072, 28, 16, 16, 24576, 256000, 8192),
    "gemma2": (2304, 26, 8, 4, 9216, 256000, 8192),
    "gemma3_text": (2304, 26, 8, 4, 9216, 262208, 131072),
    "granite": (4096, 32, 32, None, 11008, 32000, 2048),
    "llama": (4096, 32, 32, None, 11008, 32000, 2048),
    "ministral3": (4096, 34, 32, 8, 14336, 131072, 262144),
    "mistral": (4096, 32, 32, 8, 14336, 32000, 131072),
    "mixtral": (4096, 32, 32, 8, 14336, 32000, 131072),
    "phi": (2048, 24, 32, None, 8192, 51200, 2048),
    "phi3": (3072, 32, 32, None, 8192, 32064, 4096),
    "qwen2": (4096, 32, 32, 32, 22016, 151936, 32768),
    "qwen3": (4096, 32, 32, 32, 22016, 151936, 32768),
}
"""Sizes of the configuration classes of transformers 5.24, which writes of a text part what differs from them; as many
key/value heads as heads where none are given."""

_TWO_PARTS = "an encoder and a decoder, where this release reads models of one of them"
_NO_ENGINE = "neither vLLM nor the bundled runtime has it"
_UNCOUNTED = "which this release cannot count"
_UNSIZED = "whose cache this release cannot size"
_REFUSED = {
    **dict.fromkeys(("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "m2m_100", "marian", "t5gemma"), _TWO_PARTS),
    "whisper": "speech through an encoder and a decoder, where this release reads models of one of them",
    "rwkv": f"a recurrence without attention; {_NO_ENGINE}",
    "xlnet": f"attention over permuted tokens; {_NO_ENGINE}",
    "mpnet": f"relative positions in its attention; {_NO_ENGINE}",
    "deberta": f"content and position apart in its attention; {_NO_ENGINE}",
    "deberta-v2": f"content and position apart in its attention; {_NO_ENGINE}",
    **dict.fromkeys(
        ("mllama", "mllama_text_model"), f"attention across to an image, {_UNSIZED}; vLLM has it to 0.10.2"
    ),
    **dict.fromkeys(("minimax", "minimax_text_01"), f"lightning attention, {_UNSIZED}; vLLM has it to 0.23.0"),
    **dict.fromkeys(
        ("gemma3n", "gemma3n_text"), "parallel streams through its layers, and towers that no config describes"
    ),
    **dict.fromkeys(("mimo_v2_flash", "mimo_v2"), f"values narrower than keys, {_UNSIZED}"),
    "minicpm3": f"latent attention whose keys and values vLLM unfolds, {_UNSIZED}",
    "longcat_flash": f"two attentions and two feed-forwards in each layer, {_UNSIZED}",
    "nemotron-nas": f"layers of many widths, {_UNCOUNTED}",
    "step3p5": f"layers with other numbers of query heads, {_UNCOUNTED}",
    **dict.fromkeys(("ernie4_5_moe_vl", "ernie4_5_vl_moe_text"), f"experts of two widths in each layer, {_UNCOUNTED}"),
    **dict.fromkeys(("phi4mm", "minicpmo"), "towers that no config describes"),
    "albert": f"one layer that stands for all; {_NO_ENGINE}",
    "electra": f"a generator beside what it trains; {_NO_ENGINE}",
    "step3_text": f"queries between narrower projections, {_UNCOUNTED}",
    "zamba2": f"layers that share the weights of others, {_UNCOUNTED}",
    "kimi_linear": f"a delta rule with a decay for each channel, {_UNCOUNTED}",
}
"""Model types that are met, and why their shape is none that `ModelSpec` expresses.

vLLM: `_PREVIOUSLY_SUPPORTED_MODELS` and the lists above it, vllm/model_executor/models/registry.py of 0.32.
"""


def reason_against(kind: str) -> str | None:
    """Why the model type `kind` cannot be read; null for one of which nothing is known."""
    why = _REFUSED.get(kind)
    return f"the model type {kind!r} has {why}" if why else None


def default_sizes(kind: str) -> dict[str, JsonValue]:
    """Sizes that the text part of a multimodal config may leave out, where its model type is `kind`."""
    found = zip(_SIZES, _DEFAULTS.get(kind, ()), strict=False)
    return {key: value for key, value in found if value is not None}


def check_sizes(facts: Facts) -> None:
    """Refuses the text part of a config that leaves a size to a default that is not known here.

    Raises:
        UnsupportedModel: such a size.
    """
    lacking = [key for key in _NEEDED if key not in facts.values]
    lacking = [key for key in lacking if key != "max_position_embeddings" or "model_max_length" not in facts.values]
    if lacking:
        raise UnsupportedModel(
            f"{facts.source}: its text_config leaves {', '.join(lacking)} to the defaults of transformers",
            hint="write it whole: transformers.AutoConfig.from_pretrained(FOLDER).to_json_file(FILE, use_diff=False)",
        )

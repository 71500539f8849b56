"""The quantization of a checkpoint, from `quantization_config`, in the words of `ModelSpec`."""

import re

from vllm_probe.models.facts import Facts

_PARTS = {"lm_head": "lm_head", ".experts": "experts", "attn.": "attention", "mlp.": "feed_forward"}
_ATTENTION = re.compile(r"self_attn\W*$")
_FP4_EXPERTS = "mxfp4"  # scales of one byte for 32 weights (vLLM's deepseek_v4_fp8)


def read_quantization(facts: Facts) -> tuple[str, dict[str, str]]:
    """The method of the linears, and that of each part that differs.

    compressed-tensors and ModelOpt say the format in their own fields; ModelOpt's mixed precision lists every layer.
    """
    config = facts.part("quantization_config")
    mixed = config.part("quantized_layers").values
    if mixed:
        return _mixed(mixed)
    parts = {}
    if _leaves_attention(facts, config):
        parts["attention"] = "none"
    if facts.word("expert_dtype") == "fp4":
        parts["experts"] = _FP4_EXPERTS
    return _method(config), parts


def _method(config: Facts) -> str:
    method = config.word("quant_method", default="none").lower().removesuffix("_marlin")
    if method == "compressed-tensors":
        groups = config.part("config_groups")
        group = groups.part(*groups.values)
        weights = group.part("weights")
        int8 = "w8a8" if group.part("input_activations").values else "w8a16"
        forms = {"float8": "fp8", "int8": int8, "int4": "w4a16", "float4": "nvfp4"}
        return forms.get(f"{weights.word('type')}{weights.values.get('num_bits')}", method)
    return _algorithm(config.word("quant_algo", default=method)) if method == "modelopt" else method


def _algorithm(word: str) -> str:
    return "nvfp4" if word.lower().endswith("nvfp4") else word.lower()


def _mixed(layers: dict[str, object]) -> tuple[str, dict[str, str]]:
    """One method for each part, that of its first layer; the feed-forward, most of the weights, names the whole."""
    found = {"attention": "none"}
    for name, layer in layers.items():
        part = next((part for mark, part in _PARTS.items() if mark in name), None)
        if part and found.get(part, "none") == "none":
            found[part] = _algorithm(Facts(layer, name).word("quant_algo", default="none"))
    main = found.get("experts") or found.get("feed_forward") or found["attention"]
    return main, {part: method for part, method in found.items() if method != main or part == "lm_head"}


def _leaves_attention(facts: Facts, config: Facts) -> bool:
    """Whether a list of exceptions names the attention of every layer."""
    left = config.items("modules_to_not_convert", "ignore", "exclude_modules")
    named = {name for name in left if isinstance(name, str) and _ATTENTION.search(name)}
    whole = any(not re.search(r"\d", name) for name in named)
    return whole or len(named) >= facts.count("num_hidden_layers")

"""The quantization of a checkpoint, from its config, in the words of `ModelSpec`."""

from collections import Counter, defaultdict
from dataclasses import replace

from vllm_probe.core.model import ModelSpec
from vllm_probe.models.facts import Facts
from vllm_probe.models.formats import Scheme
from vllm_probe.models.modules import modules
from vllm_probe.models.schemes import Plan, plan_of, unread

_USUAL = {"fp8": 8.0, "w8a8": 8.0, "w8a16": 8.0, "awq": 4.15625, "gptq": 4.15625, "w4a16": 4.125, "nvfp4": 4.5}
_USUAL |= {"mxfp4": 4.25, "mxfp8": 8.25, "w4a8": 4.125, "inc": 4.15625, "auto-round": 4.15625, "moe_wna16": 4.15625}
_USUAL |= {"fbgemm_fp8": 8.0, "quark": 8.0, "bitsandbytes": 4.5, "experts_int8": 8.0}
"""Bits of a weight, scales included, that a word stands for where `ModelSpec.stored_bits` says nothing: those of
negotiate's methods."""

_TOLERANCE = 0.02
_CACHES = ("fp8", "fp8_e4m3")  # formats of a KV cache whose bytes are known
_CACHE_BITS, _NVFP4_BITS = 8, 4
_ORDER = ("experts", "feed_forward", "attention")


def quantized(spec: ModelSpec, facts: Facts) -> ModelSpec:
    """`spec` with method and cache of `facts`, and what its parts differ in: method, or bits where weights are left.

    A checkpoint of several methods is named after its experts or its feed-forward, most of the weights.

    Raises:
        InvalidModel: a list of exceptions that cannot be compared.
    """
    plan = plan_of(facts, spec)
    if plan is None:
        return spec
    found: defaultdict[str, Counter[Scheme | None]] = defaultdict(Counter)
    kinds = facts.items("layer_types")
    linear = {layer for layer, kind in enumerate(kinds) if kind == "linear_attention"}
    for module in modules(spec, linear):
        found[module.part][plan.scheme_of(module)] += module.weights
    words = {part: _most(weights) for part, weights in found.items()}
    main = _main(plan, words)
    parts = {part: word for part, word in words.items() if word != main}
    parts |= {"lm_head": plan.head.word} if plan.head else {}
    plain = 32 if spec.dtype == "float32" else 16
    means = {part: _mean(weights, plain) for part, weights in found.items() if words[part] != "none"}
    bits = {part: mean for part, mean in means.items() if mean and _differs(mean, _USUAL.get(words[part]))}
    cache, unknown = cache_format(facts, spec), spec.unknown
    if cache not in (None, *_CACHES):
        unknown = unknown | {"kv_cache_dtype": f"the checkpoint states {cache}, which is counted as the activations"}
        cache = None
    if reason := unread(facts):
        unknown = unknown | {"quantization": reason}
    return replace(
        spec, quantization=main, quantized_parts=parts, stored_bits=bits, kv_cache_dtype=cache, unknown=unknown
    )


def cache_format(facts: Facts, spec: ModelSpec) -> str | None:
    """The number format of keys and values that the config `facts` of `spec` states, vLLM's word; null without one.

    ModelOpt states it as `kv_cache_scheme` or `kv_cache_quant_algo`, llm-compressor as `kv_cache_scheme`, of which
    vLLM takes no notice in latent attention (get_kv_cache_quant_algo_string of vllm/utils/torch_utils.py,
    vllm/model_executor/layers/attention/, 0.32).
    """
    config = facts.part("quantization_config", "compression_config")
    method, inner = config.word("quant_method").lower(), config.part("quantization")
    stated = inner if "kv_cache_scheme" in inner.values else config
    scheme = stated.part("kv_cache_scheme")
    bits, is_float = scheme.values.get("num_bits"), scheme.word("type") == "float"
    if method == "compressed-tensors":
        return "fp8" if is_float and bits == _CACHE_BITS and spec.mla is None else None
    if not method.startswith("modelopt"):
        return None
    if scheme.values:
        fits = is_float and bits == _CACHE_BITS and scheme.values.get("dynamic") is False
        return "fp8_e4m3" if fits else "nvfp4" if is_float and bits == _NVFP4_BITS else None
    word = inner.word("kv_cache_quant_algo", default=config.word("kv_cache_quant_algo")).lower()
    return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(word)


def _main(plan: Plan, words: dict[str, str]) -> str:
    if plan.default and (plan.default.word in words.values() or not set(words.values()) - {"none"}):
        return plan.default.word
    return next((words[part] for part in _ORDER if words.get(part, "none") != "none"), "none")


def _most(weights: Counter[Scheme | None]) -> str:
    """The method of most weights that have one."""
    return next((scheme.word for scheme, _ in weights.most_common() if scheme), "none")


def _mean(weights: Counter[Scheme | None], plain: int) -> float | None:
    """Bits of a weight on average, null where those of a method are unknown."""
    bits = {scheme: scheme.bits if scheme else plain for scheme in weights}
    if not all(bits.values()):
        return None
    return sum((bits[scheme] or 0) * count for scheme, count in weights.items()) / weights.total()


def _differs(bits: float, usual: float | None) -> bool:
    return usual is None or abs(bits / usual - 1) > _TOLERANCE

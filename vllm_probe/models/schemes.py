"""What `quantization_config` does to each linear: its method, or that it is left alone.

One rule for each `quant_method`, as vllm/model_executor/layers/quantization/ reads it; the keys are those that the
tools write: llm-compressor, AutoAWQ, GPTQModel, ModelOpt, Quark, AutoRound, bitsandbytes.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.values import JsonValue
from vllm_probe.models.exceptions import Matcher, matcher
from vllm_probe.models.facts import Facts
from vllm_probe.models.modules import Module

_LISTS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude", "llm_int8_skip_modules")
_MXFP4_BITS = 4 + 8 / 32
_NVFP4_BITS = 4 + 8 / 16
_GROUPED = {"auto_round": "auto-round", "intel/auto-round": "auto-round"}
_GROUPED |= {method: method for method in ("awq", "gptq", "moe_wna16", "inc", "auto-round")}
_CONFIGS = ("quantization_config", "compression_config")
_TOLD_BY = {"config_groups": "compressed-tensors", "quantized_layers": "modelopt", "quant_algo": "modelopt"}
_MAX_GROUPS = 256
_MOST_BITS = 64


UNKNOWN = "unknown"
"""The method of a checkpoint that says that it is quantized and not how."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How weights are stored.

    Attributes:
        word: method in the words of `ModelSpec`.
        bits: of a weight, scales and zero points included; null when unknown.
    """

    word: str
    bits: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The method of a checkpoint.

    Attributes:
        default: scheme of what no rule means.
        rules: what differs, the first that means a linear counts; null leaves it alone.
        only: the part that the method covers, null for all.
        head: scheme of the output projection, null for one that is left alone.
    """

    default: Scheme | None
    rules: tuple[tuple[Matcher, Scheme | None], ...] = field(default=())
    only: str | None = None
    head: Scheme | None = None

    def scheme_of(self, module: Module) -> Scheme | None:
        """The scheme of `module`, null when it is left alone."""
        if self.only and module.part != self.only:
            return None
        for means, scheme in self.rules:
            if means(module.names):
                return scheme
        return self.default


def plan_of(facts: Facts, spec: ModelSpec) -> Plan | None:
    """The method that the config `facts` of `spec` states; null without one.

    Raises:
        InvalidModel: a list of exceptions that cannot be compared; a method or bits of another type.
    """
    config = _stated(facts)
    if not config.values:
        return None
    if not isinstance(config.values.get("quant_method", ""), str):
        raise config.invalid("quant_method of quantization_config is no text")
    method = config.word("quant_method", default="none").lower().removesuffix("_marlin")
    left = [(matcher([name for key in _LISTS for name in config.items(key)], facts.source), None)]
    if layers := config.part("quantized_layers").values:
        return _listed(layers, facts.source)
    if method == "compressed-tensors":
        return _compressed(config, left)
    default = _scheme(method, config, spec.hidden_size)
    rules = [
        *left,
        *_blocks(config, facts.source),
        *_dynamic(config, default, facts.source),
        *_layerwise(config, facts.source),
    ]
    if facts.word("expert_dtype") == "fp4":
        rules.append((matcher(["experts"], facts.source), Scheme("mxfp4", _MXFP4_BITS)))
    return Plan(
        default=default,
        rules=tuple(rules),
        only="experts" if method in ("mxfp4", "experts_int8") else None,
        head=default if config.flag("lm_head") else None,
    )


def unread(facts: Facts) -> str | None:
    """What the config `facts` leaves open about the method, and what stands for it; null when it states one, or none.

    transformers fails to read a quantization config that is no object, and vLLM 0.32 one without a method.
    """
    found = _found(facts)
    if isinstance(found, str) and found:
        return f"quantization_config is no object but {found[:80]!r}, read as the method; vLLM does not read it"
    if found and _stated(facts).word("quant_method") == UNKNOWN:
        return "quantization_config names no method, its weights are counted as they are stored, else as not quantized"
    return None


def _found(facts: Facts) -> JsonValue:
    return next((facts.values[key] for key in _CONFIGS if facts.values.get(key)), None)


def _stated(facts: Facts) -> Facts:
    """The config of quantization with its method: a bare name is one, keys that one tool alone writes stand for it."""
    found, config = _found(facts), facts.part(*_CONFIGS)
    if isinstance(found, str):
        return Facts({"quant_method": found}, facts.source)
    if not found or config.values.get("quant_method"):
        return config
    known = (method for key, method in _TOLD_BY.items() if key in config.values)
    return Facts({**config.values, "quant_method": next(known, UNKNOWN)}, facts.source)


def _scheme(method: str, config: Facts, hidden: int) -> Scheme | None:
    """The scheme of `method` with its bits; a scale for a whole row counts as if rows were `hidden` wide."""
    if method == "none":
        return None
    if method.startswith("modelopt"):
        return _algorithm(config.word("quant_algo", default=method))
    if method in _GROUPED:
        return _grouped(_GROUPED[method], config)
    if method == "quark":
        weight = config.part("global_quant_config").part("weight")
        return _quark(weight)
    if method == "bitsandbytes":
        nested = 8 / 64 + 32 / (64 * 256) if config.flag("bnb_4bit_use_double_quant") else 32 / 64
        return Scheme(method, 8 + 32 / hidden if config.flag("load_in_8bit") else 4 + nested)
    if method.endswith("fp8") and method != "mxfp8":
        block = [size for size in config.items("weight_block_size") if type(size) is int and size > 0]
        word = "fbgemm_fp8" if method == "fbgemm_fp8" else "fp8"
        return Scheme(word, 8 + 32 / (block[0] * block[1] if len(block) == 2 else hidden))
    return Scheme(method, {"mxfp4": _MXFP4_BITS, "mxfp8": 8 + 8 / 32, "experts_int8": 8.0}.get(method))


def _grouped(word: str, config: Facts) -> Scheme:
    """Whole numbers with a 16-bit scale and a zero point for each group of weights."""
    bits, group = _bits(config), _whole(config, "group_size", "q_group_size", default=128)
    return Scheme(word, bits + (16 + bits) / group)


def _algorithm(word: str) -> Scheme:
    """ModelOpt's name of a format."""
    low = word.lower()
    if low.endswith("nvfp4"):
        return Scheme("nvfp4", _NVFP4_BITS)
    return Scheme(low, {"fp8": 8.0, "w8a8": 8.0, "mxfp8": 8 + 8 / 32, "mxfp4": _MXFP4_BITS}.get(low))


def _quark(weight: Facts) -> Scheme:
    dtype, group = weight.word("dtype"), _whole(weight, "group_size", default=128)
    integers = {"int4": 4 + 16 / group, "uint4": 4 + 20 / group, "int8": 8.0}
    return Scheme("quark", {"fp8_e4m3": 8.0, "fp4": _MXFP4_BITS, "mxfp4": _MXFP4_BITS, **integers}.get(dtype))


def _listed(layers: dict[str, JsonValue], source: str) -> Plan:
    """ModelOpt's mixed precision, which lists every layer that it covers."""
    names: defaultdict[Scheme, list[str]] = defaultdict(list)
    for name, layer in layers.items():
        algorithm = Facts(layer, source).word("quant_algo", default="none")
        if algorithm.lower() != "none":
            names[_algorithm(algorithm)].append(name)
    head = next((scheme for scheme, found in names.items() if "lm_head" in found), None)
    if len(names) > _MAX_GROUPS:
        raise InvalidModel(f"{source}: quantized_layers has {len(names)} formats", hint="is this the right model?")
    rules = tuple((matcher(found, source, among=len(names)), scheme) for scheme, found in names.items())
    return Plan(default=None, rules=rules, head=head)


def _compressed(config: Facts, left: Iterable[tuple[Matcher, None]]) -> Plan:
    """compressed-tensors: groups of targets, which are classes such as `Linear`, names or expressions."""
    groups = config.part("config_groups")
    rules: list[tuple[Matcher, Scheme | None]] = [*left]
    default = head = None
    for name in _groups(config, "config_groups"):
        group = groups.part(name)
        targets, scheme = [target for target in group.items("targets") if isinstance(target, str)], _integers(group)
        named = [target for target in targets if "." in target or "*" in target or target == "lm_head"]
        head = scheme if "lm_head" in targets else head
        if named:
            rules.append((matcher(named, config.source, among=len(groups.values)), scheme))
        if len(named) < len(targets) or not targets:
            default = default or scheme
    return Plan(default=default, rules=tuple(rules), head=head)


def _integers(group: Facts) -> Scheme:
    weights = group.part("weights")
    bits, kind = weights.values.get("num_bits"), weights.word("type")
    int8 = "w8a8" if group.part("input_activations").values else "w8a16"
    int4 = "w4a8" if group.part("input_activations").values.get("num_bits") == 8 else "w4a16"
    forms = {"float8": "fp8", "int8": int8, "int4": int4, "float4": "nvfp4"}
    word = forms.get(f"{kind}{bits}", "compressed-tensors")
    if type(bits) is not int or not 1 <= bits <= 16:
        return Scheme(word)
    size = weights.values.get("group_size")
    scale = 8 if kind == "float" and bits == 4 else 16
    zero = bits if weights.values.get("symmetric") is False else 0
    return Scheme(word, bits + (scale + zero) / size if type(size) is int and size > 0 else float(bits))


def _blocks(config: Facts, source: str) -> Iterable[tuple[Matcher, None]]:
    """GPTQ's list of the only linears that it covers, in the order of their calibration."""
    listed = config.items("modules_in_block_to_quantize")
    if listed:
        covers = matcher([name for group in listed for name in (group if isinstance(group, list) else [group])], source)
        yield lambda names: not covers(names), None


def _dynamic(config: Facts, default: Scheme | None, source: str) -> Iterable[tuple[Matcher, Scheme | None]]:
    """GPTQModel: expressions behind `-:` for what is left alone, behind `+:` for what has other bits."""
    dynamic = _groups(config, "dynamic")
    for pattern, change in dynamic.items():
        is_left, expression = pattern.startswith("-:"), pattern[2:] if pattern[:2] in ("-:", "+:") else pattern
        stated = Facts({**config.values, **(change if isinstance(change, dict) else {})}, source)
        means = matcher([f"re:{expression}"], source, among=len(dynamic))
        yield means, None if is_left or not default else _grouped(default.word, stated)


def _layerwise(config: Facts, source: str) -> Iterable[tuple[Matcher, Scheme | None]]:
    """AutoRound's and Quark's settings of single layers."""
    extra = config.part("extra_config").values
    plain = [name for name, layer in extra.items() if _bits(Facts(layer, source)) >= 16]
    yield matcher(plain, source), None
    layers = _groups(config, "layer_quant_config")
    for name, layer in layers.items():
        weight = Facts(layer, source).part("weight")
        yield matcher([name], source, among=len(layers)), _quark(weight) if weight.values else None


def _groups(config: Facts, key: str) -> dict[str, JsonValue]:
    """The settings of `key` by name.

    Raises:
        InvalidModel: more than a checkpoint has.
    """
    found = config.part(key).values
    if len(found) > _MAX_GROUPS:
        raise config.invalid(f"{key} has {len(found)} entries")
    return found


def _bits(config: Facts) -> int:
    """Bits of a code, 4 where nothing is stated.

    Raises:
        InvalidModel: no whole number from 1 to 64.
    """
    found = config.count("bits", "w_bit", default=4)
    if found > _MOST_BITS:
        raise config.invalid(f"{found} bits a weight")
    return found


def _whole(config: Facts, *names: str, default: int) -> int:
    """The first of `names` that is a whole number over 0."""
    found = (config.values.get(name) for name in names)
    return next((value for value in found if type(value) is int and 0 < value <= 1 << 20), default)

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
from vllm_probe.models.formats import MXFP4_BITS, Scheme, algorithm, bits_of, grouped, integers, quark, scheme_of
from vllm_probe.models.modules import Module

_LISTS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude", "llm_int8_skip_modules")
_CONFIGS = ("quantization_config", "compression_config")
_TOLD_BY = {"config_groups": "compressed-tensors", "quantized_layers": "modelopt", "quant_algo": "modelopt"}
_RENAMED = {"auto_awq": "awq", "auto_gptq": "gptq", "gpt_oss_mxfp4": "mxfp4"}
_MAX_GROUPS = 256


UNKNOWN = "unknown"
"""The method of a checkpoint that says that it is quantized and not how."""


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
    method = _RENAMED.get(method, method)
    left = [(matcher([name for key in _LISTS for name in config.items(key)], facts.source), None)]
    if layers := config.part("quantized_layers").values:
        return _listed(layers, facts.source)
    if method == "compressed-tensors":
        return _compressed(config, left)
    default = scheme_of(method, config, spec.hidden_size)
    rules = [
        *left,
        *_blocks(config, facts.source),
        *_dynamic(config, default, facts.source, spec.hidden_size),
        *_layerwise(config, facts.source),
    ]
    if facts.word("expert_dtype") == "fp4":
        rules.append((matcher(["experts"], facts.source), Scheme("mxfp4", MXFP4_BITS)))
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
    if nested := config.part("quantization").values:  # as in ModelOpt's own hf_quant_config.json
        config = Facts({**nested, **config.values}, facts.source)
    if not found or config.values.get("quant_method"):
        return config
    known = (method for key, method in _TOLD_BY.items() if key in config.values)
    return Facts({**config.values, "quant_method": next(known, UNKNOWN)}, facts.source)


def _listed(layers: dict[str, JsonValue], source: str) -> Plan:
    """ModelOpt's mixed precision, which lists every layer that it covers."""
    names: defaultdict[Scheme, list[str]] = defaultdict(list)
    for name, layer in layers.items():
        word = Facts(layer, source).word("quant_algo", default="none")
        if word.lower() != "none":
            names[algorithm(word)].append(name)
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
        targets, scheme = [target for target in group.items("targets") if isinstance(target, str)], integers(group)
        named = [target for target in targets if "." in target or "*" in target or target == "lm_head"]
        head = scheme if "lm_head" in targets else head
        if named:
            rules.append((matcher(named, config.source, among=len(groups.values)), scheme))
        if len(named) < len(targets) or not targets:
            default = default or scheme
    return Plan(default=default, rules=tuple(rules), head=head)


def _blocks(config: Facts, source: str) -> Iterable[tuple[Matcher, None]]:
    """GPTQ's list of the only linears that it covers, in the order of their calibration."""
    listed = config.items("modules_in_block_to_quantize")
    if listed:
        covers = matcher([name for group in listed for name in (group if isinstance(group, list) else [group])], source)
        yield lambda names: not covers(names), None


def _dynamic(
    config: Facts, default: Scheme | None, source: str, hidden: int
) -> Iterable[tuple[Matcher, Scheme | None]]:
    """GPTQModel: expressions behind `-:` for what is left alone, behind `+:` for what has other bits."""
    dynamic = _groups(config, "dynamic")
    for pattern, change in dynamic.items():
        is_left, expression = pattern.startswith("-:"), pattern[2:] if pattern[:2] in ("-:", "+:") else pattern
        stated = Facts({**config.values, **(change if isinstance(change, dict) else {})}, source)
        means = matcher([f"re:{expression}"], source, among=len(dynamic))
        yield means, None if is_left or not default else grouped(default.word, stated, hidden)


def _layerwise(config: Facts, source: str) -> Iterable[tuple[Matcher, Scheme | None]]:
    """AutoRound's and Quark's settings of single layers."""
    extra = config.part("extra_config").values
    plain = [name for name, layer in extra.items() if bits_of(Facts(layer, source)) >= 16]
    yield matcher(plain, source), None
    layers = _groups(config, "layer_quant_config")
    for name, layer in layers.items():
        weight = Facts(layer, source).part("weight")
        yield matcher([name], source, among=len(layers)), quark(weight) if weight.values else None


def _groups(config: Facts, key: str) -> dict[str, JsonValue]:
    """The settings of `key` by name.

    Raises:
        InvalidModel: more than a checkpoint has.
    """
    found = config.part(key).values
    if len(found) > _MAX_GROUPS:
        raise config.invalid(f"{key} has {len(found)} entries")
    return found

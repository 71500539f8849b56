"""A start-up log of vLLM against the prediction, line by line."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_probe.core.capability import Capability
from vllm_probe.core.config import LogCheck, LoggedFigure, MemoryBudget, RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.units import GIB, format_bytes
from vllm_probe.negotiate.case import open_case
from vllm_probe.negotiate.chunking import start_defaults
from vllm_probe.negotiate.laws import Row, band, card_of, device_row, table
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.startlog import StartLog

_REFUSED = ("kv_too_small", "oom")
_MOST_RESIDUAL = 4 * GIB  # more is another share of the memory or another process
_MOST_NON_TORCH = 1 * GIB  # over the law; more is another process, whose memory is counted with it
_SAME_MEMORY = 0.12  # a driver keeps up to this share of a card, see vllm_probe/vendors/descriptors.py


def require_same_platform(log: StartLog, capability: Capability, name: str) -> None:
    """Passes a log whose platform is that of the device, or that does not tell its own.

    Raises:
        BadUsage: it is of devices of another type.
    """
    platform = log.platform or ""
    types, own = table("vllm")["platforms"].get(platform), device_row(capability.device_type)[0]
    own = capability.device_type.lower() if own == "*" else own
    if types is None or own in types:
        return
    here = capability.device.name or capability.device.arch or own
    message = f"{name} is of vLLM's platform {platform.removeprefix('device_config=')}, and {here} is no such device"
    hint = "name the device that it is from: --device ID where it is here, else --capability NAME of its descriptor"
    raise BadUsage(message, hint=f"{hint} (`vllm-probe capability list`)")


def asked_as_logged(
    log: StartLog, spec: ModelSpec, capability: Capability, wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What to predict: the question, with what it leaves open as the log says it or as that version has it by default.

    Returns:
        Fields of a request, and what was said otherwise or assumed.
    """
    notes, pins = [], dict(wanted.get("pins", {}))
    version, memory = wanted.get("engine_version"), wanted.get("device_memory_bytes")
    used = version or log.version
    for name, value in log.options.items():
        if name in pins and pins[name] != value:
            notes.append(f"the log says {name} {value}, --{name.replace('_', '-')} {pins[name]} was asked for")
    if version and log.version and not log.version.startswith(version.removeprefix("v")):
        notes.append(f"the log is of vLLM {log.version}, the law of --engine-version {version} was asked for")
    if log.version is None and version is None:
        notes.append("the log does not state its version: the newest law is used")
    stated = {name: value for name, value in log.options.items() if name not in pins}
    total = memory or _logged_bytes(log, "total_gib")
    law = band("vllm", used)[1]
    card = card_of(capability.device.name or "")
    seen = total or capability.memory.usable_bytes or round((card["gib"] if card and card["gib"] else 0) * GIB)
    seen = seen or capability.memory.total_bytes or 0
    options = {name: pin for name, pin in {**stated, **pins}.items() if not name.startswith("max_num")}
    asked = Request(engine="vllm", engine_version=used, device_memory_bytes=seen or None, pins=options)
    length = options.get("max_model_len", spec.max_model_len)
    assumed: dict[str, Any] = {**start_defaults(open_case(spec, capability, asked), length)}
    assumed["gpu_memory_utilization"] = law["utilization"]
    assumed = {name: value for name, value in assumed.items() if name not in pins and name not in stated}
    if "kv_cache_memory_bytes" in pins:
        assumed.pop("gpu_memory_utilization", None)
    notes += [f"neither says {name}: {value}, vLLM's default, is taken" for name, value in assumed.items()]
    own = {} if "quantization" in pins else {"quantization": spec.quantization}
    question = {**wanted, "pins": {**assumed, **stated, **own, **pins}, "engine_version": used}
    return question | ({"device_memory_bytes": total} if total else {}), tuple(notes)


def compare(
    config: RuntimeConfig, spec: ModelSpec, log: StartLog, name: str, notes: tuple[str, ...], total: int | None = None
) -> LogCheck:
    """The figures of `log` beside those of `config`, and the residual that the log shows.

    `total` are the bytes of the device that the prediction is for, where they are known.
    """
    law = band("vllm", config.engine_version)[1]
    figures = tuple(_figures(config, log, law))
    others = tuple(_names(spec, log))
    shown = _residual(config, figures)
    unfit = _unstated(log) or _why_unfit(log, figures, bool(others)) or _unlike(log, total)
    unfit = unfit or _implausible(config, shown)
    residual = 0 if unfit else shown
    differences = [*notes, *others, *([f"nothing of it is kept: {unfit}"] if unfit else [])]
    refused = config.budget.verdict in _REFUSED
    judged = config.budget.verdict != "unknown" and log.outcome not in ("unknown", "busy")
    wrong = judged and refused != (log.outcome in _REFUSED)
    if wrong:
        why = f": {config.warnings[0]}" if config.budget.verdict == "invalid" else ""
        differences.append(f"the log says {log.outcome} where {config.budget.verdict} is predicted{why}")
    return LogCheck(
        log=name,
        engine_version=log.version or config.engine_version,
        outcome=log.outcome,
        agrees=not wrong and all(figure.is_within for figure in figures),
        figures=figures,
        differences=tuple(differences),
        residual_bytes=residual,
    )


def _why_unfit(log: StartLog, figures: tuple[LoggedFigure, ...], is_other: bool) -> str | None:
    """Why what a log shows beyond the law is not the law's, so that no later prediction may use it; null when it is."""
    found = {figure.quantity: figure for figure in figures}
    weights, kept, outside = (found.get(f"{part}_bytes") for part in ("weights", "kv_cache", "non_torch"))
    if is_other:
        return "the log is of another model"
    if weights and not weights.is_within:
        return "its weights are out of their band, so that it is another checkpoint"
    if log.outcome == "busy" or (outside and -outside.difference > _MOST_NON_TORCH):
        return "another process seems to have held memory of the device"
    if kept and abs(kept.difference) > _MOST_RESIDUAL:
        return "its cache is too far off: another share of the memory, or another process"
    return None


def _unstated(log: StartLog) -> str | None:
    """What a residual rests on and the log does not tell, null when it is all there."""
    missing = {
        "its version": log.version is None,
        "its model": log.model is None,
        "its share of the memory": not (log.lists_options or "gpu_memory_utilization" in log.options),
        "what its weights took": "weights_gib" not in log.figures,
        "what was left for the cache": "kv_gib" not in log.figures,
    }
    named = [what for what, is_missing in missing.items() if is_missing]
    return f"the log does not state {', '.join(named)}" if named else None


def _unlike(log: StartLog, total: int | None) -> str | None:
    """That the log is of a device of another size, null where it is not known to be."""
    seen = _logged_bytes(log, "total_gib")
    if total and seen and abs(seen - total) > _SAME_MEMORY * total:
        return f"its device has {format_bytes(seen)}, this one {format_bytes(total)}"
    return None


def _implausible(config: RuntimeConfig, residual: int) -> str | None:
    """Why no engine can have such a residual, null where one can."""
    if abs(residual) > _MOST_RESIDUAL:
        return f"{residual / GIB:+.2f} GiB over the law is more than an engine itself would take or spare"
    if -residual > config.budget.non_torch_bytes:
        beside = format_bytes(config.budget.non_torch_bytes)
        return f"{residual / GIB:+.2f} GiB over the law would be less than nothing of the {beside} beside torch"
    return None


def _names(spec: ModelSpec, log: StartLog) -> Iterator[str]:
    """What the log calls the model, where that is not what was asked about."""
    from vllm_probe.models.names import find

    if log.model is None:
        return
    logged, known = log.model.rstrip("/").rpartition("/")[2].lower(), find(log.model)
    if spec.name.lower() != logged and not (known and known[0] == spec.name):
        yield f"the log is of {log.model}, {spec.name} was asked about"


def _figures(config: RuntimeConfig, log: StartLog, law: Row) -> Iterator[LoggedFigure]:
    """One entry for each number that both have."""
    budget, bands = config.budget, table("vllm")["check_bands"]
    ranks = "one_rank" if config.tensor_parallel_size == 1 else "ranks"
    for quantity, (logged, predicted) in _predicted(config, law).items():
        if logged not in log.figures or predicted is None:
            continue
        figure, rule = log.figures[logged], bands[quantity]
        value = figure.value * (GIB if logged.endswith("_gib") else 1)
        wide = rule["gib"][ranks] * GIB if "gib" in rule else 0.0
        if quantity == "kv_cache_bytes":
            wide = law["residual_gib"][ranks] * GIB
        if rule.get("of_kv") and budget.kv_cache_bytes:
            wide = predicted * min(1.0, law["residual_gib"][ranks] * GIB / budget.kv_cache_bytes)
        allowed = max(wide, rule["share"] * abs(value))
        yield LoggedFigure(
            quantity=quantity,
            predicted=float(predicted),
            logged=value,
            difference=predicted - value,
            band=allowed,
            is_within=abs(predicted - value) <= allowed,
            line=figure.line,
        )


def _predicted(config: RuntimeConfig, law: Row) -> dict[str, tuple[str, float | None]]:
    """Quantity to its name in the log and what is predicted of it."""
    budget = config.budget
    refused = budget.verdict in _REFUSED
    blocks, tokens = (None, None) if refused else (budget.num_kv_blocks, budget.kv_cache_tokens)
    counts = law["tokens_logged"] == "concurrency" or (blocks or 0) * (config.block_size or 0) == tokens
    return {
        "weights_bytes": ("weights_gib", budget.weights_bytes),
        "activation_bytes": ("activation_gib", budget.activation_bytes),
        "non_torch_bytes": ("non_torch_gib", budget.non_torch_bytes),
        "graph_bytes": ("graph_gib", budget.graph_bytes or None),
        "graph_estimate_bytes": ("graph_estimate_gib", budget.graph_bytes or None),
        "kv_cache_bytes": ("kv_gib", available_bytes(config, law)),
        "num_kv_blocks": ("blocks", blocks),
        "kv_cache_tokens": ("tokens", tokens),
        "concurrency": ("concurrency", tokens / config.max_model_len if tokens and counts else None),
        "estimated_max_model_len": ("estimated_max_model_len", budget.estimated_max_model_len or None),
    }


def available_bytes(config: RuntimeConfig, law: Row) -> int | None:
    """KV memory that a share of the device leaves, whether it is enough or not; null without capacity or share."""
    budget, share = config.budget, config.gpu_memory_utilization
    pinned = {decision.key for decision in config.decisions if decision.pinned}
    if "kv_cache_memory_bytes" in pinned or "gpu_memory_utilization" not in pinned:
        return budget.kv_cache_bytes
    if budget.device_total_bytes is None or share is None:
        return None
    return math.ceil(budget.device_total_bytes * share) - _beside(budget, law)


def _beside(budget: MemoryBudget, law: Row) -> int:
    """Bytes of a requested share that are not KV cache."""
    graphs = budget.graph_bytes if law["graphs_in_utilization"] else 0
    return budget.weights_bytes + budget.activation_bytes + budget.non_torch_bytes + graphs


def _residual(config: RuntimeConfig, figures: tuple[LoggedFigure, ...]) -> int:
    """Bytes over the law beside weights and KV cache; 0 when the log does not tell."""
    off = {figure.quantity: figure.difference for figure in figures}
    pinned = {decision.key for decision in config.decisions if decision.pinned}
    if "kv_cache_bytes" not in off or "kv_cache_memory_bytes" in pinned:
        return 0
    return round(off["kv_cache_bytes"] + off.get("weights_bytes", 0.0))


def _logged_bytes(log: StartLog, name: str) -> int | None:
    return round(log.figures[name].value * GIB) if name in log.figures else None

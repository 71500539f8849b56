"""The record of a runtime config as a text tree."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vllm_probe.core.codec import to_json
from vllm_probe.core.config import Alternative, Decision, Estimate, RuntimeConfig
from vllm_probe.core.units import format_bytes, format_rounded

_Node = tuple[str, Sequence[Any]]
_LEAST_MEMORY = 1 << 20  # bytes; a device with less was given without its unit


def explain(config: RuntimeConfig) -> str:
    """Every value with its rule, inputs, rejected alternatives, what would change it and who carries it."""
    head = f"{config.model} on {config.device or config.device_type}, {config.engine} {config.engine_version}"
    nodes: list[_Node] = [
        (f"{decision.key} = {_short(decision.value)}{' (pinned)' if decision.pinned else ''}", list(_lines(decision)))
        for decision in config.decisions
    ]
    nodes += [(f"requires {item}", ()) for item in config.requires]
    nodes += [("budget: " + config.budget.verdict, list(_budget(config))), ("predicted", list(_speed(config)))]
    for label, lines in (
        (
            "alternatives",
            [f"{a.change}: {a.verdict}, {format_bytes(least_need(a))}, {a.note}" for a in config.alternatives],
        ),
        ("warnings", config.warnings),
    ):
        nodes += [(label, [(line, ()) for line in lines])] if lines else []
    return "\n".join([f"{head}, by {config.capability}", *_draw(nodes, "")]) + "\n"


def way_out(config: RuntimeConfig, again: Callable[[str], str] | None = None) -> str:
    """What to do about a config that does not boot: the nearest that would, else what it needs.

    What is over a limit of the model is no matter of memory, so that no bytes are named. `again` makes the whole
    command of a change.
    """
    budget, is_invalid = config.budget, config.budget.verdict == "invalid"
    ways = [
        (f"`{again(other.change)}`" if again else other.change)
        + ("" if is_invalid else f" ({format_bytes(least_need(other))})")
        for other in config.alternatives
        if other.verdict in ("boots", "unknown")
    ]
    if ways:
        return f"this would boot: {'; '.join(ways[:3])}"
    if unsupported(config):
        return "take another device or engine, or a model in a format that runs here"
    if is_invalid:
        return "ask for shorter requests, or take a model with a longer context"
    share = _share_of(config)
    least, unpinned = (share.inputs.get(key) for key in ("boots_from_bytes", "boots_unpinned_from_bytes"))
    if not isinstance(least, int):
        return "leave out what is pinned, or take a smaller model"
    needed = f"{_enough(least)} of memory"
    if budget.device_total_bytes is not None and budget.device_total_bytes < _LEAST_MEMORY:
        return f"it needs {needed}: give the memory with its unit, such as --device-memory 24GiB"
    if isinstance(unpinned, int) and unpinned < least:
        enough = f"a device with {_enough(unpinned)} of memory is enough then"
        return f"leave out --gpu-memory-utilization {share.value:g}: {enough}; or take a smaller model"
    return f"take a device with {needed}, or a smaller model"


def least_need(other: Alternative) -> int | None:
    """Bytes that tell alternatives apart, of which each may take the whole device: the least that it boots with."""
    return other.requested_bytes if other.least_bytes is None else other.least_bytes


def unsupported(config: RuntimeConfig) -> str | None:
    """Why the engine cannot run the checkpoint on this device whatever its memory, or null."""
    reason = next(each for each in config.decisions if each.key == "quantization").inputs.get("unsupported")
    return reason if isinstance(reason, str) else None


def _enough(count: int) -> str:
    """The smallest size that is written with two digits behind the point and is not under `count`."""
    unit = 1 << (10 * min(4, (count.bit_length() - 1) // 10))
    return format_bytes(-(-(-(-count * 100 // unit) * unit) // 100))


def shortage(config: RuntimeConfig) -> str:
    """What of the memory is too small, with the least that is enough."""
    budget, sequence = config.budget, f"one sequence of {config.max_model_len} tokens takes"
    needs = f"{format_bytes(budget.requested_bytes)} ({budget.requested_bytes} bytes) of {room_of(config)}"
    if budget.verdict != "kv_too_small":
        return f"{config.model} needs {needs}: {budget.verdict}"
    if next(each for each in config.decisions if each.key == "kv_cache_memory_bytes").pinned:
        needed = f"{format_bytes(budget.kv_cache_bytes)} ({budget.kv_cache_bytes} bytes)"
        return f"--kv-cache-memory-bytes is too small for {config.model}: {sequence} {needed}"
    least = f"{sequence} {format_bytes(budget.kv_cache_bytes)}"
    return f"{config.model} needs {needs}: too little is left for the KV cache, of which {least}"


def _share_of(config: RuntimeConfig) -> Decision:
    return next(each for each in config.decisions if each.key == "gpu_memory_utilization")


def room_of(config: RuntimeConfig) -> str:
    """`the 132.81 GiB usable of 139.80 GiB`: what one rank may hold of the device, and whose share decided."""
    total = config.budget.device_total_bytes
    share = _share_of(config)
    limit, given = share.inputs.get("limit_bytes"), config.gpu_memory_utilization
    if not total or not isinstance(limit, int):
        return format_bytes(total)
    if share.pinned and given and (asked := round(given * total)) <= limit:
        return f"the {format_bytes(asked)} that {share.key} {given:g} gives of {format_bytes(total)}"
    if limit >= total:
        return format_bytes(total)
    return f"the {format_bytes(max(limit, 0))} usable of {format_bytes(total)}"


def figure(estimate: Estimate, factor: float = 1, unit: str = "") -> str:
    """`14,400 (8,230 to 18,600)`: a predicted figure times `factor`, with its band; empty where it is withheld."""
    if estimate.value is None:
        return ""
    band = ""
    if estimate.low is not None and estimate.high is not None:
        band = f" ({format_rounded(estimate.low * factor)} to {format_rounded(estimate.high * factor)}{unit})"
    return f"{format_rounded(estimate.value * factor)}{unit}{band}"


def _draw(nodes: Sequence[_Node], indent: str) -> Iterator[str]:
    for index, (text, children) in enumerate(nodes):
        is_last = index == len(nodes) - 1
        yield f"{indent}{'└─ ' if is_last else '├─ '}{text}"
        yield from _draw(children, indent + ("   " if is_last else "│  "))


def _lines(decision: Any) -> Iterator[_Node]:
    yield f"because {decision.rule}", ()
    for key, value in decision.inputs.items():
        yield _input(key, value)
    for rejection in decision.rejected:
        yield f"not {_short(rejection.value)}: {rejection.because}", ()
    yield f"would change with {decision.would_change}", ()
    yield _carrier(decision.passed_on), ()


def _input(key: str, value: Any) -> _Node:
    """One line, or for what is itself a table a line of each of its rows."""
    if isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
        return key, [(f"{name}: {_short(_readable(item))}", ()) for name, item in value.items()]
    return f"{key}: {_short(value)}", ()


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key.removesuffix("_bytes"): format_bytes(item) if key.endswith("_bytes") and item is not None else item
        for key, item in row.items()
    }


def _carrier(passed_on: str) -> str:
    if passed_on.startswith("not passed on"):
        return passed_on.replace("not passed on", "not passed on to the engine", 1)
    if passed_on.startswith(("read", "follows")):
        return passed_on
    return f"passed on {passed_on}" if passed_on.startswith("in ") else f"passed on by {passed_on}"


def _budget(config: RuntimeConfig) -> Iterator[_Node]:
    for key, value in to_json(config.budget).items():
        if key != "verdict":
            shown = format_bytes(value) if key.endswith("_bytes") else _short(value)
            yield f"{key.removesuffix('_bytes')}: {shown}", ()


def _speed(config: RuntimeConfig) -> Iterator[_Node]:
    yield config.predicted.method, ()
    for key in ("tokens_per_s", "ttft_s", "tpot_s"):
        if shown := figure(getattr(config.predicted, key)):
            yield f"{key}: {shown}", ()


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, list):
        return "; ".join(":".join(map(_short, item)) if isinstance(item, list) else _short(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value)

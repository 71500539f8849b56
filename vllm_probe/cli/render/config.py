"""A runtime config for a person: every value with its reason, every byte, and the speed to expect."""

from rich.console import Group, RenderableType
from rich.text import Text

from vllm_probe.cli.render.console import BUDGET_STYLES, heading, pairs, table
from vllm_probe.core.config import Decision, RuntimeConfig
from vllm_probe.core.units import format_bytes, format_rounded
from vllm_probe.core.values import JsonValue
from vllm_probe.negotiate.explain import figure, least_need, room_of

_PARTS = ("weights", "activation", "non_torch", "graph", "kv_cache")


def render(config: RuntimeConfig) -> Group:
    """The decisions, the memory budget, the predicted speed, what is required and what else would do."""
    parts: list[RenderableType] = [
        Text.assemble(
            (config.model, "bold"), f" on {config.device or config.device_type} with the {config.engine} engine"
        ),
        Text(f"descriptor: {config.capability}", style="dim"),
        Text(),
        decisions(config),
        heading("memory"),
        pairs(_budget(config)),
        heading("speed"),
        pairs(_speed(config)),
    ]
    if config.alternatives:
        parts += [heading("what else would do"), _alternatives(config)]
    notes = [*(f"required: {what}" for what in config.requires), *(f"warning: {doubt}" for doubt in config.warnings)]
    parts += [Text(), *(Text(note, style="yellow") for note in notes)] if notes else []
    return Group(*parts)


def decisions(config: RuntimeConfig) -> RenderableType:
    """One row per value that the engine honours or that was pinned: why, and what would change it."""
    rows = table("setting", "value", "because, and what would change it")
    rows.columns[0].no_wrap, rows.columns[1].max_width = True, 11
    shown = [decision for decision in config.decisions if _matters(decision)]
    for decision in shown:
        text = format_bytes(decision.value) if decision.key.endswith("_bytes") else _value(decision.value)
        if decision.key == "kv_cache_dtype" and config.engine == "vllm" and decision.value == config.dtype:
            text = f"auto: {text}"  # what vLLM is given for the format of its activations
        why = Text.assemble(decision.rule, *_instead(decision), (f"; changes with {decision.would_change}", "dim"))
        rows.add_row(decision.key, Text(text, style="bold magenta" if decision.pinned else "bold"), why)
    return Group(rows, Text(f"{len(config.decisions) - len(shown)} further fields: --explain", style="dim"))


def _instead(decision: Decision) -> list[str]:
    """The number formats that were not taken, each with the first of its reasons; the rest is in `--explain`."""
    if decision.key != "dtype":
        return []
    return [f"; not {each.value}: {each.because.partition('; ')[0]}" for each in decision.rejected]


def _matters(decision: Decision) -> bool:
    honoured = not decision.passed_on.startswith("not passed on") and decision.value not in (None, {})
    return honoured or decision.pinned


def _value(value: JsonValue) -> str:
    if value in (None, {}):
        return "-"
    match value:
        case bool():
            return "yes" if value else "no"
        case {"enabled": enabled, "mode": mode}:
            return str(mode) if enabled else "off"
        case {"type": pooling, "normalize": normalizes}:
            return f"{pooling}, normalized" if normalizes else str(pooling)
        case dict():
            return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
        case float():
            return format_rounded(value) if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _budget(config: RuntimeConfig) -> list[tuple[str, RenderableType]]:
    budget = config.budget
    sizes = [(part.replace("_", " "), getattr(budget, f"{part}_bytes")) for part in _PARTS]
    room = format_bytes(budget.device_total_bytes) if budget.verdict == "boots" else room_of(config)
    requested = f"{format_bytes(budget.requested_bytes)} of {room}"
    if budget.device_total_bytes is None:
        requested = "the capacity is unknown: give --device-memory"
    verdict = Text.assemble((budget.verdict, BUDGET_STYLES[budget.verdict]), f", {requested}")
    return [("verdict", verdict), *((name, format_bytes(size)) for name, size in sizes if size != 0)]


def _speed(config: RuntimeConfig) -> list[tuple[str, RenderableType]]:
    speed = config.predicted
    figures = [
        ("tokens/s", figure(speed.tokens_per_s)),
        ("first answer", figure(speed.ttft_s, 1000, " ms")),
        ("per token", figure(speed.tpot_s, 1000, " ms")),
    ]
    how = speed.summary or speed.method
    how += "; --explain says how" if figures[0][1] else ""
    return [*((name, text) for name, text in figures if text), ("predicted by", Text(how, style="dim"))]


def _alternatives(config: RuntimeConfig) -> RenderableType:
    rows = table("change", "needs at least", "verdict", "note", right=("needs at least",))
    for other in config.alternatives:
        verdict = Text(other.verdict, style=BUDGET_STYLES[other.verdict])
        change = other.change.replace("--model ", "negotiate ", 1)  # no option to add: the model is named already
        rows.add_row(change, format_bytes(least_need(other)), verdict, other.note)
    return rows

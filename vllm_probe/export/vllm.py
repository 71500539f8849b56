"""A runtime config for `vllm serve`: as its command line, and as the file of `--config`."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vllm_probe.core.config import OWN_FORMAT, Alternative, Decision, RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.export.options import Setting, settings_of, table, version_of
from vllm_probe.export.text import as_yaml, comment

ORIGINAL = "ORIGINAL_MODEL"
"""Stands for the repository of the model that a GGUF file was made of, which the file does not name."""


def vllm_command(config: RuntimeConfig, model: str | None = None) -> str:
    """`vllm serve` with every value of `config` that vLLM has an option for, as a shell takes it.

    `model` stands for the config's model, such as a checkpoint that had to be obtained first.
    """
    settings = settings_of(config)
    words = ["vllm", "serve", model or config.model, *_tokenizer(config), *settings.words()]
    return " ".join([*(f"{name}={value}" for name, value in settings.env.items()), *map(shlex.quote, words)])


def vllm_serve(config: RuntimeConfig, file: str) -> str:
    """The command line that runs `file`, the file of `vllm_yaml`, as a shell takes it."""
    words = map(shlex.quote, ["vllm", "serve", *model_word(config), "--config", file, *_tokenizer(config)])
    return " ".join([*(f"{name}={value}" for name, value in settings_of(config).env.items()), *words])


def missing_of(config: RuntimeConfig) -> str | None:
    """What vLLM needs beside the config before it starts with its GGUF file; null for any other model."""
    if not _tokenizer(config):
        return None
    needs = f"vLLM {config.engine_version} starts with a GGUF file only where vllm-gguf-plugin is installed"
    return f"{needs}, and with --tokenizer: put the repository of the original model in place of {ORIGINAL}"


def _tokenizer(config: RuntimeConfig) -> tuple[str, ...]:
    needs = config.quantization == "gguf" and version_of(config.engine_version) >= version_of(table()["gguf_plugin"])
    return ("--tokenizer", ORIGINAL) if needs else ()


def model_word(config: RuntimeConfig) -> tuple[str, ...]:
    """The model as an argument, for a version of vLLM that does not read it from its file; else nothing."""
    return () if version_of(config.engine_version) >= version_of(table()["model_in_file"]) else (config.model,)


def vllm_yaml(config: RuntimeConfig, command: str) -> str:
    """The file that `vllm serve --config` takes, with what each value would be without it, and why it is not.

    `command` is what runs it, for its first lines.

    Raises:
        BadUsage: this version of vLLM reads no such file.
    """
    settings = settings_of(config)
    number, since = version_of(settings.version), table()["config_file"]
    if number < version_of(since):
        hint = f"this line does the same: {vllm_command(config)}"
        raise BadUsage(f"vLLM {settings.version} has no --config, {since} is the first that has", hint=hint)
    notes = (*settings.notes, *filter(None, [missing_of(config)]))
    lines = [*map(comment, (*about(config, f"vLLM {settings.version}", notes), f"run: {command}")), ""]
    if not model_word(config):
        lines += ["# what was negotiated for", as_yaml({"model": config.model}).removesuffix("\n")]
    if _tokenizer(config):
        lines += ["# here, or as --tokenizer behind the file", f"# tokenizer: {ORIGINAL}"]
    for each in settings.options:
        lines += [comment(reason_of(each)), as_yaml({each.option: each.value}).removesuffix("\n")]
    return "\n".join(lines) + "\n"


def reason_of(setting: Setting) -> str:
    """How a value stands to vLLM's own, and the rule that set it where that is known."""
    but = f" ({setting.but})" if setting.but else ""
    why = f": {setting.why}" if setting.why else ""
    if setting.kept:
        return f"kept, vLLM's own{but}{why}"
    own = "by the memory of the device" if setting.default is None else setting.default
    return f"changed, vLLM's own is {str(own).lower() if isinstance(own, bool) else own}{but}{why}"


def own_format(config: RuntimeConfig) -> RuntimeConfig | None:
    """`config` for the checkpoint as it is, where a format won that has to be obtained first.

    Null when nothing has to be, when the checkpoint as it is does not boot, or when the user pinned the format.
    """
    own = next((each for each in config.alternatives if "quantization" in each.values), None)
    pinned = any(each.pinned for each in config.decisions if each.key == "quantization")
    if own is None or own.budget is None or pinned or not config.requires:
        return None
    decisions = [_of_own(each, own) for each in config.decisions]
    decisions = [replace(each, passed_on=OWN_FORMAT) if each.key == "quantization" else each for each in decisions]
    values = {key: value for key, value in own.values.items() if key != "compile"}
    return replace(config, **values, requires=(), budget=own.budget, decisions=tuple(decisions))


def _of_own(decision: Decision, own: Alternative) -> Decision:
    """`decision` as it is for the alternative; without a rule where its value is another and no rule is recorded."""
    rule = "" if decision.key in own.values else decision.rule
    value = own.values.get(decision.key, decision.value)
    return replace(decision, value=value, rule=own.rules.get(decision.key, rule))


def about(config: RuntimeConfig, engine: str, notes: tuple[str, ...] = ()) -> Iterator[str]:
    """What a file says of itself: what it is for, what could not be passed on, what the user should doubt."""
    device = f"{config.device} ({config.device_type})" if config.device else f"a device of type {config.device_type}"
    yield f"{config.model} on {device}, {engine}; by vllm-probe {config.tool_version}"
    yield from (f"note: {note}" for note in (*notes, *config.warnings))


def as_model(config: RuntimeConfig) -> RuntimeConfig:
    """`config` with its model in a form that means the same from every folder."""
    return replace(config, model=str(Path(config.model).resolve())) if Path(config.model).exists() else config

"""Whole `vllm-probe negotiate` commands for hints, made of a config, so that they can be followed as they stand."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig


def negotiating(config: "RuntimeConfig", change: str = "", *, without: tuple[str, ...] = ()) -> str:
    """The command that asks again what `config` answers, with the options of `change` in place of its own.

    `--model` in it replaces the model. The options `without` are left out.
    """
    asked = dict(_asked(config)) | options_of(change)
    model = asked.pop("--model", None) or config.model
    left = {name: value for name, value in asked.items() if name not in without}
    return shlex.join(["vllm-probe", "negotiate", model, *words_of(left)])


def pins_of(config: "RuntimeConfig") -> dict[str, Any]:
    """What the user pinned, as `negotiate` takes it."""
    pins = {decision.key: decision.value for decision in config.decisions if decision.pinned}
    return {**pins, "enforce_eager": not config.compile.enabled} if pins.pop("compile", None) else pins


def options_of(text: str) -> dict[str, str | None]:
    """The options in `text` with their values; null for a flag."""
    found: dict[str, str | None] = {}
    for word in shlex.split(text):
        if word.startswith("--"):
            found[word] = None
        else:
            found[next(reversed(found))] = word
    return found


def words_of(options: dict[str, str | None]) -> Iterator[str]:
    """The words of a command line that give `options`."""
    for name, value in options.items():
        yield from (name,) if value is None else (name, value)


def _asked(config: "RuntimeConfig") -> Iterator[tuple[str, str | None]]:
    """Each option that differs from its default and is in the record."""
    from vllm_probe.negotiate.laws import table

    inputs = {decision.key: decision.inputs for decision in config.decisions}
    batch, length = inputs["max_num_seqs"], inputs["max_model_len"]
    objective = batch.get("objective", "throughput")
    usual = 1 if objective == "latency" else 32
    yield "--engine", config.engine
    yield _device(config)
    options = {
        "--device-memory": inputs["gpu_memory_utilization"].get("device_memory_bytes"),
        "--engine-version": _version(config, table("vllm")["newest"]),
        "--objective": None if objective == "throughput" else objective,
        "--concurrency": None if batch.get("concurrency") == usual else batch.get("concurrency"),
        "--input-len": length.get("input_len"),
        "--output-len": length.get("output_len"),
    }
    options |= {f"--{key.replace('_', '-')}": value for key, value in pins_of(config).items()}
    for name, value in options.items():
        if value is not None and value is not False:
            yield name, None if value is True else str(value)


def _version(config: "RuntimeConfig", newest: str) -> str | None:
    return config.engine_version if config.engine == "vllm" and config.engine_version != newest else None


def _device(config: "RuntimeConfig") -> tuple[str, str]:
    """What names the device again: the descriptor by its name, or its file; the device where that was measured."""
    from vllm_probe.core.resources import resource_dir
    from vllm_probe.vendors.descriptors import descriptor_name

    path = Path(config.capability.partition(" (sha256:")[0])
    if path.is_file() and path.parent != resource_dir("capabilities"):
        return "--capability", str(path)
    if path.suffix == ".json":
        return "--capability", descriptor_name(path)
    return "--device", config.device or config.device_type

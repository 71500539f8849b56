"""The command line that hands a runtime config to vLLM."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.config import Decision, RuntimeConfig
from vllm_probe.negotiate.decide import OWN_FORMAT
from vllm_probe.negotiate.laws import version_number

_USE_ACTIVATION = (
    0,
    16,
)  # vLLM 0.15 says normalize in its PoolerConfig, 0.18 use_activation (docs.vllm.ai, config/pooler)


def vllm_command(config: RuntimeConfig, model: str | None = None) -> str:
    """`vllm serve` with every value of `config` that vLLM has an option for, as a shell takes it.

    `model` stands for the config's model, such as a checkpoint that had to be obtained first.
    """
    words = ["vllm", "serve", model or config.model, *(["--runner", "pooling"] if config.task == "embed" else [])]
    words += [word for decision in config.decisions for word in _option(decision, config)]
    return " ".join([*_environment(config), *map(shlex.quote, words)])


def own_format(config: RuntimeConfig) -> RuntimeConfig | None:
    """`config` for the checkpoint as it is, where a format won that has to be obtained first.

    Null when nothing has to be, when the checkpoint as it is does not boot, or when the user pinned the format.
    """
    own = next((each for each in config.alternatives if "quantization" in each.values), None)
    pinned = any(each.pinned for each in config.decisions if each.key == "quantization")
    if own is None or own.budget is None or pinned or not config.requires:
        return None
    decisions = [replace(each, value=own.values.get(each.key, each.value)) for each in config.decisions]
    decisions = [replace(each, passed_on=OWN_FORMAT) if each.key == "quantization" else each for each in decisions]
    values = {key: value for key, value in own.values.items() if key != "compile"}
    return replace(config, **values, requires=(), budget=own.budget, decisions=tuple(decisions))


def _environment(config: RuntimeConfig) -> Iterator[str]:
    """Without a binding vLLM takes the number of threads from OpenMP.

    https://docs.vllm.ai/en/stable/getting_started/installation/cpu
    """
    if config.threads:
        yield from ("VLLM_CPU_OMP_THREADS_BIND=nobind", f"OMP_NUM_THREADS={config.threads}")


def _option(decision: Decision, config: RuntimeConfig) -> Iterator[str]:
    """The option that carries `decision`, and its value unless `passed_on` holds that too."""
    option, *rest = decision.passed_on.split(" ")
    if not option.startswith("--"):
        return
    if decision.key == "compile":
        yield from [] if config.compile.enabled else [option]
        return
    yield option
    if decision.key == "pooling" and config.pooling:
        key = "use_activation" if version_number(config.engine_version) >= _USE_ACTIVATION else "normalize"
        pooler = {"pooling_type": str(config.pooling["type"]).upper(), key: config.pooling["normalize"]}
        yield json.dumps(pooler)
    elif decision.key == "kv_cache_dtype" and decision.value == config.dtype:
        yield "auto"
    else:
        yield rest[0] if rest else str(decision.value)

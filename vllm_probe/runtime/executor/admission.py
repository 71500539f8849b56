"""Whether the engine can run a config, before anything is loaded."""

import logging

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.device import Device
from vllm_probe.core.errors import BadUsage, UnsupportedModel, WeightsUnavailable
from vllm_probe.core.model import ModelSpec
from vllm_probe.runtime.executor.embedder import ARCHITECTURES, LoadFormat, chunks_prompts, pooling_of
from vllm_probe.vendors.torchbase import TorchAdapter

_log = logging.getLogger(__name__)

_DTYPES = ("float32", "bfloat16")  # what vectors are checked in; float16 overflows, and CPUs are slow in it


def check_runnable(config: RuntimeConfig, spec: ModelSpec, device: Device, load_format: LoadFormat) -> None:
    """Refuses what the bundled engine does not run on `device`.

    Raises:
        UnsupportedModel: an architecture, task or quantization that only another engine runs.
        WeightsUnavailable: the model is only a shape, and its weights are wanted.
        BadUsage: limits that contradict each other, the model or the device, another number format.
    """
    if spec.quantization == "gguf":
        raise UnsupportedModel(
            f"{spec.weights_path}: the bundled engine does not load GGUF files yet",
            hint="use --engine vllm with vllm-gguf-plugin, or give the folder of the model's safetensors",
        )
    parts = config.tensor_parallel_size * config.pipeline_parallel_size
    refused = {
        f"architecture {spec.architecture}": spec.architecture not in ARCHITECTURES,
        "text generation": not (spec.pooling or config.pooling),
        f"quantization {config.quantization}": config.quantization != "none",
        f"a checkpoint quantized with {spec.quantization}": spec.quantization != "none",
        f"{parts} devices": parts > 1,
    }
    if reasons := [reason for reason, holds in refused.items() if holds]:
        raise UnsupportedModel(
            f"the bundled engine cannot run {spec.name}: {', '.join(reasons)}",
            hint="use --engine vllm, or an embedding model such as all-MiniLM-L6-v2 or Qwen3-Embedding-0.6B",
        )
    if spec.weights_path is None and load_format != "dummy":
        raise WeightsUnavailable(f"{spec.name} has no weights here", hint="give the folder of a checkpoint")
    if config.dtype not in _DTYPES:
        message = f"/dtype: the bundled engine does not compute in {config.dtype!r:.80}"
        raise BadUsage(message, hint=f"negotiate with --dtype {' or '.join(_DTYPES)}")
    _check_threads(config.threads, device)
    longest = min(spec.max_model_len, spec.num_positions - spec.position_offset or spec.max_model_len)
    if config.max_model_len > longest:
        message = f"max_model_len {config.max_model_len} is more than the {longest} positions of {spec.name}"
        raise BadUsage(message, hint=f"use at most {longest}")
    needs_one_step = not chunks_prompts(spec, pooling_of(config, spec)[0])
    if needs_one_step and config.max_num_batched_tokens < config.max_model_len:
        raise BadUsage(
            f"max_num_batched_tokens {config.max_num_batched_tokens} is less than max_model_len {config.max_model_len}",
            hint="a prompt of this model is embedded in one step: raise the first or lower the second",
        )


def limit_width(adapter: TorchAdapter, lanes: int | None) -> None:
    """Keeps this process to a width below the device's own, before the adapter opens; says so where it is too late."""
    if lanes in adapter.process_widths()[1:] and lanes is not None and not adapter.limit_width(lanes):
        _log.warning("this process has computed before, so that it cannot be limited to %d lanes", lanes)


def _check_threads(threads: int | None, device: Device) -> None:
    """Refuses more than there are logical CPUs; libgomp ends the process where it cannot start them."""
    available = device.details.get("logical_cpus")
    if threads and isinstance(available, int) and threads > available:
        message = f"/threads: {threads} threads are more than the {available} logical CPUs of {device.id}"
        raise BadUsage(message, hint="negotiate again on this machine, or give at most that many")

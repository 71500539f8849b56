"""Whether the engine can run a config, before anything is loaded."""

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage, UnsupportedModel, WeightsUnavailable
from vllm_probe.core.model import ModelSpec
from vllm_probe.runtime.executor.embedder import ARCHITECTURES, LoadFormat


def check_runnable(config: RuntimeConfig, spec: ModelSpec, load_format: LoadFormat) -> None:
    """Refuses what the bundled engine does not run.

    Raises:
        UnsupportedModel: an architecture, task or quantization that only another engine runs.
        WeightsUnavailable: the model is only a shape, and its weights are wanted.
        BadUsage: limits that contradict each other or the model.
    """
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
    longest = min(spec.max_model_len, spec.num_positions - spec.position_offset or spec.max_model_len)
    if config.max_model_len > longest:
        message = f"max_model_len {config.max_model_len} is more than the {longest} positions of {spec.name}"
        raise BadUsage(message, hint=f"use at most {longest}")
    if config.max_num_batched_tokens < config.max_model_len:
        raise BadUsage(
            f"max_num_batched_tokens {config.max_num_batched_tokens} is less than max_model_len {config.max_model_len}",
            hint="a prompt is embedded in one step: raise the first or lower the second",
        )

"""What the user asks for: engine, workload and pinned parameters."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_probe.core.device import Device
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.values import ENGINE_DTYPES, Bytes, Count, Engine, JsonValue, Natural, Objective, Rate
from vllm_probe.negotiate.laws import table
from vllm_probe.negotiate.residual import Residual

_DTYPES = {**{word: word for word in ENGINE_DTYPES.values()}, **ENGINE_DTYPES, "half": "float16", "float": "float32"}
_KV_DTYPES = (*ENGINE_DTYPES.values(), *ENGINE_DTYPES, "fp8", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to the negotiator; nothing in it is read from the machine here.

    Attributes:
        engine: who will run the config.
        engine_version: version whose laws count, null for the newest known.
        objective: throughput, latency or memory.
        concurrency: requests at a time; null: 32, for latency 1.
        input_len: prompt tokens of a request; null: 512, or what the model takes.
        output_len: generated tokens of a request; null: 128, 0 for pooling models.
        device_memory_bytes: capacity, from `--device-memory` or the device; null: the descriptor's.
        device_id: device that will run it; null: the descriptor's.
        capability_name: name or path of the descriptor, for the record.
        threads: CPU threads that this process may use, null when not known.
        measured_tokens_per_s: speed that this config reached under this workload, which the prediction is scaled to.
        residual: correction of the memory law that a start-up log showed, null without one.
        num_devices: devices of this host that may share the model, all like the one that runs it; null when not known.
        beside: every device of the host.
        notes: what is to be said of the devices, for the warnings.
        pins: parameter by vLLM's option name with `_`, as the user gave it.
    """

    engine: Engine = "bundled"
    engine_version: str | None = None
    objective: Objective = "throughput"
    concurrency: Count | None = None
    input_len: Count | None = None
    output_len: Natural | None = None
    device_memory_bytes: Bytes | None = None
    device_id: str | None = None
    capability_name: str = "descriptor"
    threads: Count | None = None
    measured_tokens_per_s: Rate | None = None
    residual: Residual | None = None
    num_devices: Count | None = None
    beside: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()
    pins: Mapping[str, JsonValue] = field(default_factory=dict)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the fields `names` that are not null, for the record of what was asked."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests of one kind, all at once; `reason` says why the model cannot serve them at any size."""

    concurrency: int
    input_len: int
    output_len: int
    reason: str | None = None

    @property
    def length(self) -> int:
        """Tokens of one request."""
        return self.input_len + self.output_len


def workload_of(request: Request, spec: ModelSpec) -> Workload:
    """The workload with its defaults: 32 (latency 1) x (512 + 128), shortened to what the model takes."""
    pinned = request.pins.get("max_model_len", spec.max_model_len)
    limit, output_len, reason = min(spec.max_model_len, pinned), 0, None
    if spec.task == "generate":
        output_len = min(128, limit // 2) if request.output_len is None else request.output_len
    input_len = request.input_len or max(1, min(512, limit - output_len))
    if pinned > spec.max_model_len:
        reason = f"--max-model-len {pinned} is over the limit of {spec.name}, {spec.max_model_len} tokens"
    elif input_len + output_len > limit:
        whose = (
            f"--max-model-len {limit}" if limit < spec.max_model_len else f"the limit of {spec.name}, {limit} tokens"
        )
        output = f" and {output_len} output" if output_len else ""
        reason = f"{input_len} input{output} tokens are over {whose}"
    concurrency = request.concurrency or (1 if request.objective == "latency" else 32)
    return Workload(concurrency=concurrency, input_len=input_len, output_len=output_len, reason=reason)


def check_pins(request: Request, spec: ModelSpec, max_ranks: int) -> Request:
    """`request` with every pin in its canonical form; `auto` and `-1` pin nothing.

    Raises:
        BadUsage: a parameter that cannot be pinned, a value that means nothing, or ranks that do not divide the model.
    """
    aliases = {
        "dtype": _DTYPES,
        "kv_cache_dtype": ENGINE_DTYPES,
        "quantization": table("support")[request.engine]["aliases"],
    }
    pins: dict[str, Any] = {}
    for name, value in request.pins.items():
        if name not in _PINS:
            known = ", ".join(sorted(_PINS))
            raise BadUsage(f"{name!r} is not a parameter that can be pinned", hint=f"these can: {known}")
        if value not in (None, "auto", -1):
            accepts, wanted = _PINS[name]
            if not accepts(value):
                raise BadUsage(f"--{name.replace('_', '-')} {value} means nothing", hint=f"give {wanted}")
            pins[name] = aliases.get(name, {}).get(value, value)
    _check_ranks(pins, spec, max_ranks)
    seqs, tokens = pins.get("max_num_seqs", 1), pins.get("max_num_batched_tokens", math.inf)
    if seqs > tokens:
        message = f"--max-num-seqs {seqs} exceeds --max-num-batched-tokens {tokens}"
        raise BadUsage(message, hint="every sequence takes a token a step")
    return replace(request, pins=pins)


_MOST_RANKS = 4096  # as many as any engine takes


def ranks_of(spec: ModelSpec) -> tuple[int, ...]:
    """Tensor-parallel degrees that divide what vLLM divides: heads, vocabulary rows, feed-forward and expert widths.

    Key/value heads are divided or repeated. vLLM, in model_executor/layers: `QKVParallelLinear` and
    `ColumnParallelLinear` of linear.py, `VocabParallelEmbedding`, fused_moe/layer.py, mamba/gdn of linear attention.
    """
    widths = [width for _, width in _divided(spec) if width]
    kv_heads = spec.num_kv_heads
    most = spec.num_heads or (spec.linear.num_value_heads if spec.linear else 1)
    fitting = (n for n in range(1, min(most, _MOST_RANKS) + 1) if all(width % n == 0 for width in widths))
    return tuple(n for n in fitting if kv_heads % n == 0 or n % kv_heads == 0)


def _divided(spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    """What must be divided among ranks, and its size; 0 where the model has none."""
    moe, linear = spec.moe, spec.linear
    dense = spec.intermediate_size if moe is None or moe.num_dense_layers else 0
    return (
        ("heads", spec.num_heads),
        ("padded vocabulary rows", padded_vocabulary(spec.vocab_size)),
        ("feed-forward channels", dense),
        ("expert channels", moe.expert_intermediate if moe else 0),
        ("linear-attention key heads", linear.num_key_heads if linear and linear.num_key_heads > 1 else 0),
        ("linear-attention value heads", linear.num_value_heads if linear else 0),
    )


def padded_vocabulary(vocab_size: int) -> int:
    """Rows of vLLM's token embedding, a multiple of 64: `DEFAULT_VOCAB_PADDING_SIZE` of vocab_parallel_embedding.py."""
    return -(-vocab_size // 64) * 64


def _check_ranks(pins: Mapping[str, Any], spec: ModelSpec, max_ranks: int) -> None:
    ranks, stages = pins.get("tensor_parallel_size", 1), pins.get("pipeline_parallel_size", 1)
    fitting = ranks_of(spec)
    if ranks * stages > max_ranks:
        message = f"{ranks * stages} ranks: the bundled runtime runs one device in one process"
        raise BadUsage(message, hint="use --engine vllm")
    if ranks not in fitting:
        parts = (*_divided(spec), ("key/value heads", spec.num_kv_heads))
        shape = ", ".join(f"{width} {name}" for name, width in parts if width and width % ranks)
        message = f"--tensor-parallel-size {ranks} does not divide the {shape} of {spec.name}"
        raise BadUsage(message, hint=f"these do: {', '.join(map(str, fitting))}")
    if stages > spec.num_layers:
        message = f"--pipeline-parallel-size {stages} exceeds the {spec.num_layers} layers of {spec.name}"
        raise BadUsage(message, hint="give at most one stage a layer")


_COUNT = (lambda value: type(value) is int and value > 0, "a whole number from 1")
_PINS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "dtype": (tuple(_DTYPES).__contains__, f"one of auto, {', '.join(_DTYPES)}"),
    "quantization": (lambda value: isinstance(value, str), "the name of a method, none or auto"),
    "kv_cache_dtype": (_KV_DTYPES.__contains__, f"one of auto, {', '.join(_KV_DTYPES)}"),
    "gpu_memory_utilization": (
        lambda value: type(value) in (int, float) and 0 < value <= 1,
        "a share above 0, at most 1",
    ),
    "enforce_eager": (lambda value: isinstance(value, bool), "true or false"),
    "max_model_len": _COUNT,
    "block_size": _COUNT,
    "kv_cache_memory_bytes": _COUNT,
    "max_num_seqs": _COUNT,
    "max_num_batched_tokens": _COUNT,
    "tensor_parallel_size": _COUNT,
    "pipeline_parallel_size": _COUNT,
}

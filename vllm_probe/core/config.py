"""runtime.json: what the runtime does, and the record of why."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from vllm_probe.core.document import Document
from vllm_probe.core.values import Bytes, Count, Engine, FenceScope, JsonValue, Natural, Rate, Ratio

OWN_FORMAT = "not passed on: vLLM reads the format from the checkpoint"
"""`passed_on` of the quantization that a checkpoint is stored in."""

BudgetVerdict: TypeAlias = Literal["boots", "kv_too_small", "oom", "invalid", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Every byte of one rank; null where the capacity is unknown.

    `requested_bytes` is the sum of the five parts below it.

    Attributes:
        device_total_bytes: capacity that the engine sees.
        requested_bytes: what it will hold in all.
        weights_bytes: loaded weights.
        activation_bytes: peak of temporary tensors.
        non_torch_bytes: context, libraries and communication buffers.
        graph_bytes: captured graphs.
        kv_cache_bytes: key/value blocks; 0 for encoders.
        kv_cache_tokens: tokens that those blocks hold.
        num_kv_blocks: blocks.
        verdict: boots, kv_too_small, oom, invalid or unknown.
        estimated_max_model_len: longest context that would boot.
    """

    device_total_bytes: Bytes | None = None
    requested_bytes: Bytes | None = None
    weights_bytes: Bytes
    activation_bytes: Bytes
    non_torch_bytes: Bytes
    graph_bytes: Bytes
    kv_cache_bytes: Bytes | None = None
    kv_cache_tokens: Natural | None = None
    num_kv_blocks: Natural | None = None
    verdict: BudgetVerdict
    estimated_max_model_len: Natural | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted figure with its band; all null when prediction is withheld.

    Attributes:
        value: best guess.
        low: lower end of the band.
        high: upper end of the band.
    """

    value: Rate | None = None
    low: Rate | None = None
    high: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Speed that the config should reach.

    Attributes:
        tokens_per_s: prompt tokens per second for pooling models, generated ones otherwise.
        ttft_s: time to the vector of a request that is alone, or to the first token under the workload.
        tpot_s: time per further token under the workload, null for pooling models.
        method: formula and inputs, or why nothing is predicted.
        summary: method and the source of its rates in a line.
    """

    tokens_per_s: Estimate = field(default_factory=Estimate)
    ttft_s: Estimate = field(default_factory=Estimate)
    tpot_s: Estimate = field(default_factory=Estimate)
    method: str
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An alternative that was not taken.

    Attributes:
        value: the alternative.
        because: the number or rule that decided.
    """

    value: JsonValue
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why one field has its value.

    Attributes:
        key: field of the runtime config.
        value: its value.
        rule: the rule that chose it, one sentence.
        pinned: set by the user.
        inputs: what the rule looked at, with each source.
        rejected: alternatives with the reason.
        would_change: what would make it different.
        passed_on: option of the engine that carries it, or `not passed on`.
    """

    key: str
    value: JsonValue
    rule: str
    pinned: bool = False
    inputs: dict[str, JsonValue] = field(default_factory=dict)
    rejected: tuple[Rejection, ...] = ()
    would_change: str
    passed_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A configuration that would boot or suit better, nearest first.

    Attributes:
        change: what to change, as options.
        requested_bytes: bytes it needs.
        verdict: whether it boots.
        note: what is lost or gained.
        budget: every byte of it.
        values: parameters that it has otherwise, for the checkpoint's own format.
        rules: the rules of those parameters and of others that were chosen otherwise, for the checkpoint's own format.
        least_bytes: bytes that it boots with, its KV cache as small as one longest sequence; null where unknown.
    """

    change: str
    requested_bytes: Bytes | None
    verdict: BudgetVerdict
    note: str
    budget: MemoryBudget | None = None
    values: dict[str, JsonValue] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    least_bytes: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """Whether the model is compiled.

    Attributes:
        enabled: compile or run eagerly.
        mode: torch.compile mode.
        backend: compiler backend.
        reason: why.
    """

    enabled: bool
    mode: str | None
    backend: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFigure:
    """A number of a start-up log beside the predicted one.

    Attributes:
        quantity: what it is, such as `weights_bytes`.
        predicted: as computed.
        logged: as logged, in the same unit.
        difference: predicted less logged.
        band: largest difference that the law allows.
        is_within: the difference is in the band.
        line: line of the log, from 1.
    """

    quantity: str
    predicted: float
    logged: float
    difference: float
    band: Rate
    is_within: bool
    line: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheck:
    """A start-up log of the engine compared with the prediction.

    Attributes:
        log: name of its file.
        engine_version: version that the log states, else the one that was asked for.
        outcome: boots, kv_too_small, oom, busy (another process held the memory) or unknown.
        agrees: verdict and every figure are as predicted, within their bands.
        figures: line by line.
        differences: what the log says otherwise than what was asked, and what was assumed.
        residual_bytes: memory beside weights and KV cache that the engine used over the prediction; 0 when the log does
            not tell.
        stored: file that keeps the residual for later predictions, empty when nothing is kept.
    """

    log: str
    engine_version: str
    outcome: str
    agrees: bool
    figures: tuple[LoggedFigure, ...] = ()
    differences: tuple[str, ...] = ()
    residual_bytes: int = 0
    stored: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig(Document):
    """Runtime config of one model on one device: the document of `negotiate`.

    Attributes:
        engine: bundled or vllm.
        engine_version: version whose laws and options were used.
        device: device id.
        device_type: device type of the descriptor.
        capability: name or path of the descriptor used, with its fingerprint.
        model: model name or path as the engine takes it.
        task: embed or generate.
        dtype: number format of weights and activations, vLLM's word.
        quantization: method, `none` when nothing is quantized.
        kv_cache_dtype: number format of the KV cache, null for encoders.
        max_model_len: longest input and output in tokens.
        block_size: tokens in a KV block, null for encoders.
        num_kv_blocks: KV blocks, null when the capacity is unknown or for encoders.
        kv_cache_memory_bytes: size of the KV cache, null when the capacity is unknown or for encoders.
        max_num_seqs: sequences in one step.
        max_num_batched_tokens: tokens in one step.
        prefill_chunk_size: tokens of one prompt computed together.
        gpu_memory_utilization: share of the device memory requested, null when the capacity is unknown.
        tensor_parallel_size: ranks that share each layer.
        pipeline_parallel_size: ranks that share the layers.
        collective_backend: library that connects ranks, null for one rank.
        threads: CPU threads, null on other devices.
        alignment_bytes: alignment of blocks and buffers.
        memory_fence_scope: fence after a transfer.
        group_width: execution group width used.
        compile: compilation.
        primitives: implementation per primitive.
        pooling: how token states become one vector, null for generators.
        roles: what each device does.
        requires: what must be obtained first, such as an AWQ checkpoint.
        budget: every byte.
        predicted: speed.
        decisions: why each value.
        alternatives: nearest other configurations.
        warnings: doubts that the user should know.
        checks: start-up logs that were compared with it.
    """

    engine: Engine
    engine_version: str
    device: str | None
    device_type: str
    capability: str
    model: str
    task: str
    dtype: str
    quantization: str
    kv_cache_dtype: str | None
    max_model_len: Count
    block_size: Count | None
    num_kv_blocks: Natural | None
    kv_cache_memory_bytes: Bytes | None
    max_num_seqs: Count
    max_num_batched_tokens: Count
    prefill_chunk_size: Count
    gpu_memory_utilization: Ratio | None
    tensor_parallel_size: Count
    pipeline_parallel_size: Count
    collective_backend: str | None
    threads: Count | None
    alignment_bytes: Count
    memory_fence_scope: FenceScope | None
    group_width: Count | None
    compile: Compile
    primitives: dict[str, str]
    pooling: dict[str, JsonValue] | None
    roles: dict[str, str]
    requires: tuple[str, ...]
    budget: MemoryBudget
    predicted: Prediction
    decisions: tuple[Decision, ...]
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()
    checks: tuple[LogCheck, ...] = ()

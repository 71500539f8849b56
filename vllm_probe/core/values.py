"""The scalar types that documents are made of, with the bounds that codec and schema both enforce."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

JsonValue: TypeAlias = Any
"""A value that JSON can hold; the one place where a document is open."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower and upper limit of a number, both inclusive; `None` is unbounded."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regular expression that a whole string must match."""

    regex: str


Bytes: TypeAlias = Annotated[int, Bound(0)]
Count: TypeAlias = Annotated[int, Bound(1)]
Natural: TypeAlias = Annotated[int, Bound(0)]
Rate: TypeAlias = Annotated[float, Bound(0)]
Ratio: TypeAlias = Annotated[float, Bound(0, 1)]
Version: TypeAlias = Annotated[str, Pattern(r"[0-9]{1,4}\.[0-9]{1,4}")]
Timestamp: TypeAlias = Annotated[str, Pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z")]

Kind: TypeAlias = Literal["cpu", "gpu", "igpu", "npu"]
MemoryKind: TypeAlias = Literal["dedicated", "unified", "shared", "partition"]
Severity: TypeAlias = Literal["blocks", "degrades", "latent", "info"]
VerdictCode: TypeAlias = Literal["usable", "limited", "unusable", "hidden", "unknown"]
FenceScope: TypeAlias = Literal["none", "warp", "wavefront", "subgroup", "workgroup", "device", "system"]
Engine: TypeAlias = Literal["bundled", "vllm"]
Objective: TypeAlias = Literal["throughput", "latency", "memory"]

COMPUTE_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "int8", "int4")
"""Words for number formats in capability documents; a runtime config uses vLLM's (`bfloat16`, ...)."""

ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Capability word to runtime word, for the formats that weights and activations are held in."""

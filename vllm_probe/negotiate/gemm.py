"""A matrix product of a model: its shape, how its weights are stored, its bytes and FLOPs."""

from dataclasses import dataclass
from typing import TypeAlias

from vllm_probe.core.model import LinearPart

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of one value."""

Part: TypeAlias = LinearPart


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How linear weights are stored.

    Attributes:
        method: quantization method, `none` if they are stored in the model's dtype.
        width: bytes of a value in the model's dtype.
        bits: stored bits of one quantized weight, scales included; null for `none`.
        row_bytes: further bytes of an output row.
        parts: part, bits and row bytes of those that are stored otherwise.
    """

    method: str
    width: int
    bits: float | None = None
    row_bytes: int = 0
    parts: tuple[tuple[str, float | None, int], ...] = ()

    def storage(self, part: Part) -> tuple[float | None, int]:
        """Bits and row bytes of `part`; the output projection is left alone unless `parts` names it."""
        for name, bits, row_bytes in self.parts:
            if name == part:
                return bits, row_bytes
        return (None, 0) if part in ("lm_head", "kept") else (self.bits, self.row_bytes)

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of one weight of a linear that the method covers."""
        return self.width if self.bits is None else self.bits / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """A matrix product `[M, k] x [k, n]`; M is the number of tokens.

    Attributes:
        name: which linear.
        k: input width.
        n: output width.
        stored: copies in memory; 0 when the weight belongs to another part (tied output projection).
        active: copies that one token passes through.
        part: which methods cover it; `kept` never is (routers, small scorers).
        replicated: every tensor-parallel rank holds all of it.
        most_shards: parts that it can be divided into, null where any number will do; further ranks repeat them.
    """

    name: str
    k: int
    n: int
    stored: int
    active: int
    part: Part = "attention"
    replicated: bool = False
    most_shards: int | None = None

    @property
    def weights(self) -> int:
        """Stored weights of all copies."""
        return self.k * self.n * self.stored

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one token, a multiply-add counted as 2."""
        return 2 * self.k * self.n * self.active

    def shards(self, ranks: int) -> int:
        """Parts that `ranks` tensor-parallel ranks divide it into."""
        return 1 if self.replicated else min(ranks, self.most_shards or ranks)

    def stored_bytes(self, weights: WeightFormat) -> float:
        """Bytes of all copies in memory."""
        bits, row_bytes = weights.storage(self.part)
        if bits is None:
            return self.weights * weights.width
        return self.weights * bits / 8 + self.n * self.stored * row_bytes

    def read_bytes(self, rows: int, weights: WeightFormat) -> float:
        """Bytes of the copies that at least one of `rows` tokens passes through (independent routing)."""
        copies = max(self.stored, self.active)
        touched = copies * (1 - (1 - self.active / copies) ** rows)
        bits, _ = weights.storage(self.part)
        return self.k * self.n * touched * (weights.width if bits is None else bits / 8)

    def intensity(self, rows: int, width: float) -> float:
        """FLOPs per byte of one copy at M = `rows`: 2 M k n / (width (k n + M (k + n)))."""
        return 2 * rows * self.k * self.n / (width * (self.k * self.n + rows * (self.k + self.n)))

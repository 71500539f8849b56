"""Step 1, model requirement analysis: every matrix product of a model, its bytes, FLOPs and KV cache."""

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_probe.core.model import MlaShape, ModelSpec, MoeShape

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How linear weights are stored.

    Attributes:
        method: quantization method, `none` if they are stored in the model's dtype.
        width: bytes of a value in the model's dtype.
        bits: stored bits of one quantized weight, scales included; null for `none`.
        row_bytes: further bytes of an output row.
    """

    method: str
    width: int
    bits: float | None = None
    row_bytes: int = 0

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
        quantizes: quantization methods cover it.
        replicated: every tensor-parallel rank holds all of it.
    """

    name: str
    k: int
    n: int
    stored: int
    active: int
    quantizes: bool = True
    replicated: bool = False

    @property
    def weights(self) -> int:
        """Stored weights of all copies."""
        return self.k * self.n * self.stored

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one token, a multiply-add counted as 2."""
        return 2 * self.k * self.n * self.active

    def stored_bytes(self, weights: WeightFormat) -> float:
        """Bytes of all copies in memory."""
        if not self.quantizes or weights.bits is None:
            return self.weights * weights.width
        return self.weights * weights.bits / 8 + self.n * self.stored * weights.row_bytes

    def read_bytes(self, rows: int, weights: WeightFormat) -> float:
        """Bytes of the copies that at least one of `rows` tokens passes through (independent routing)."""
        copies = max(self.stored, self.active)
        touched = copies * (1 - (1 - self.active / copies) ** rows)
        return self.k * self.n * touched * (weights.bytes_per_weight if self.quantizes else weights.width)

    def intensity(self, rows: int, width: float) -> float:
        """FLOPs per byte of one copy at M = `rows`: 2 M k n / (width (k n + M (k + n)))."""
        return 2 * rows * self.k * self.n / (width * (self.k * self.n + rows * (self.k + self.n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What one model asks of a device.

    Attributes:
        spec: the model.
        gemms: every linear.
        table_parameters: embedding tables, looked up and never multiplied.
        vector_parameters: norms, biases and router corrections.
    """

    spec: ModelSpec
    gemms: tuple[Gemm, ...]
    table_parameters: int
    vector_parameters: int

    @property
    def num_parameters(self) -> int:
        """Parameters in memory: from the file headers where known, else by formula."""
        return self.spec.num_parameters or self.computed_parameters

    @property
    def computed_parameters(self) -> int:
        """Parameters by formula."""
        return sum(gemm.weights for gemm in self.gemms) + self.table_parameters + self.vector_parameters

    @property
    def active_parameters(self) -> int:
        """Linear weights that one generated token passes through."""
        return self.flops_per_token(samples=True) // 2

    def flops_per_token(self, *, samples: bool) -> int:
        """FLOPs of one token in all linears, the output projection only where a token is sampled."""
        return sum(gemm.flops_per_token for gemm in self.gemms if samples or gemm.name != "lm_head")

    def attention_flops(self, context: float) -> float:
        """FLOPs of one token's attention over `context` others: 4 L heads head_dim context."""
        spec = self.spec
        width = 2 * spec.head_dim if spec.mla is None else spec.head_dim + spec.mla.v_dim
        return 2.0 * spec.num_layers * spec.num_heads * width * context

    def weight_bytes(self, weights: WeightFormat) -> int:
        """Bytes in memory: exact from the file headers for the checkpoint's own format, else by formula."""
        spec, stored = self.spec, sum(gemm.stored_bytes(weights) for gemm in self.gemms)
        own = weights.method == spec.quantization and weights.width == WIDTHS.get(spec.dtype)
        if own and spec.weight_bytes is not None:
            return spec.weight_bytes
        if weights.bits is None and spec.num_parameters is not None:
            return spec.num_parameters * weights.width
        return round(stored + (self.table_parameters + self.vector_parameters) * weights.width)

    def rank_bytes(self, weights: WeightFormat, ranks: int, stages: int) -> int:
        """Weight bytes of the fullest rank: replicated parts whole, the rest divided, tables at the ends."""
        whole = self.weight_bytes(weights)
        copied = self.vector_parameters * weights.width
        copied += round(sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.replicated))
        ends = self.table_parameters * weights.width
        ends += round(sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.name == "lm_head"))
        layers = -(-self.spec.num_layers // stages) / self.spec.num_layers
        end = ends if stages == 1 else ends / 2
        return round(copied * layers + (whole - copied - ends) * layers / ranks + end / ranks)

    def layer_bytes(self, weights: WeightFormat) -> int:
        """Bytes of one layer, the unit in which weights are loaded."""
        inside = sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.name != "lm_head")
        return round(inside / self.spec.num_layers)

    def read_bytes(self, rows: int, weights: WeightFormat, *, samples: bool) -> float:
        """Weight bytes that a step of `rows` tokens reads."""
        return sum(gemm.read_bytes(rows, weights) for gemm in self.gemms if samples or gemm.name != "lm_head")

    def kv_bytes_per_layer(self, width: int, ranks: int = 1) -> int:
        """KV cache bytes of one token in one layer on one rank, 0 for encoders.

        GQA: 2 (kv_heads / ranks, at least 1) head_dim width. MLA: (kv_rank + rope) width, the same on every rank.
        """
        spec = self.spec
        if spec.is_encoder:
            return 0
        if spec.mla:
            return (spec.mla.kv_rank + spec.mla.rope_dim) * width
        return 2 * max(1, spec.num_kv_heads // ranks) * spec.head_dim * width

    def kv_bytes_per_token(self, width: int, ranks: int = 1) -> int:
        """KV cache bytes of one token: all layers, and an fp8 key with a 4-byte scale for each sparse indexer."""
        mla = self.spec.mla
        index = mla.num_indexers * (mla.index_dim + 4) if mla and mla.index_dim else 0
        return self.spec.num_layers * self.kv_bytes_per_layer(width, ranks) + index


def analyse(spec: ModelSpec) -> Requirements:
    """Every linear of `spec` and what stands beside them, from its shape alone."""
    attention = _latent_attention(spec, spec.mla) if spec.mla else _attention(spec)
    feed_forward = _experts(spec, spec.moe) if spec.moe else _feed_forward(spec, spec.num_layers)
    return Requirements(
        spec=spec,
        gemms=(*attention, *feed_forward, *_output(spec)),
        table_parameters=(spec.vocab_size + spec.num_positions + spec.num_token_types) * spec.hidden_size,
        vector_parameters=_vectors(spec),
    )


def _linear(spec: ModelSpec, name: str, k: int, n: int, *, replicated: bool = False) -> Gemm:
    return Gemm(name=name, k=k, n=n, stored=spec.num_layers, active=spec.num_layers, replicated=replicated)


def _attention(spec: ModelSpec) -> Iterator[Gemm]:
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    yield _linear(spec, "q", spec.hidden_size, queries)
    yield _linear(spec, "k", spec.hidden_size, keys)
    yield _linear(spec, "v", spec.hidden_size, keys)
    yield _linear(spec, "o", queries, spec.hidden_size)


def _latent_attention(spec: ModelSpec, mla: MlaShape) -> Iterator[Gemm]:
    hidden, queries = spec.hidden_size, spec.num_heads * (mla.nope_dim + mla.rope_dim)
    if mla.q_rank:
        yield _linear(spec, "q_a", hidden, mla.q_rank, replicated=True)
    yield _linear(spec, "q_b" if mla.q_rank else "q", mla.q_rank or hidden, queries)
    yield _linear(spec, "kv_a", hidden, mla.kv_rank + mla.rope_dim, replicated=True)
    yield _linear(spec, "kv_b", mla.kv_rank, spec.num_heads * (mla.nope_dim + mla.v_dim))
    yield _linear(spec, "o", spec.num_heads * mla.v_dim, hidden)
    if mla.num_indexers:
        wide = mla.index_heads * mla.index_dim
        for name, k, n in (
            ("index_q", mla.q_rank or hidden, wide),
            ("index_k", hidden, mla.index_dim),
            ("index_w", hidden, mla.index_heads),
        ):
            count = mla.num_indexers
            yield Gemm(name=name, k=k, n=n, stored=count, active=count, quantizes=name == "index_q", replicated=True)


def _feed_forward(spec: ModelSpec, layers: int) -> Iterator[Gemm]:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    for name in ("gate", "up") if spec.is_gated else ("up",):
        yield Gemm(name=name, k=hidden, n=inner, stored=layers, active=layers)
    yield Gemm(name="down", k=inner, n=hidden, stored=layers, active=layers)


def _experts(spec: ModelSpec, moe: MoeShape) -> Iterator[Gemm]:
    hidden, inner, layers = spec.hidden_size, moe.expert_intermediate, spec.num_layers - moe.num_dense_layers
    if moe.num_dense_layers:
        yield from _feed_forward(spec, moe.num_dense_layers)
    yield Gemm(
        name="router", k=hidden, n=moe.num_experts, stored=layers, active=layers, quantizes=False, replicated=True
    )
    shared = moe.num_shared
    for prefix, stored, active in (("expert", moe.num_experts, moe.num_active), ("shared", shared, shared)):
        for name, k, n in (("gate", hidden, inner), ("up", hidden, inner), ("down", inner, hidden)):
            if stored:
                yield Gemm(name=f"{prefix}_{name}", k=k, n=n, stored=stored * layers, active=active * layers)


def _output(spec: ModelSpec) -> Iterator[Gemm]:
    if spec.task == "generate":
        stored = 0 if spec.ties_embeddings else 1
        yield Gemm(name="lm_head", k=spec.hidden_size, n=spec.vocab_size, stored=stored, active=1, quantizes=False)


def _vectors(spec: ModelSpec) -> int:
    hidden, layers = spec.hidden_size, spec.num_layers
    queries, keys = spec.num_heads * spec.head_dim, 2 * spec.num_kv_heads * spec.head_dim
    if spec.has_bias:
        return 2 * hidden + layers * (queries + keys + hidden + spec.intermediate_size + hidden + 4 * hidden)
    per_layer = 2 * hidden + (queries + keys if spec.has_qkv_bias else 0)
    per_layer += 2 * spec.head_dim if spec.has_qk_norm else 0
    per_layer += (spec.mla.q_rank or 0) + spec.mla.kv_rank if spec.mla else 0
    experts = (layers - spec.moe.num_dense_layers) * spec.moe.num_experts if spec.moe and spec.mla else 0
    return layers * per_layer + hidden + experts

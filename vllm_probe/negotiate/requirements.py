"""Step 1, model requirement analysis: every matrix product of a model, its bytes, FLOPs and KV cache."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from vllm_probe.core.model import AttentionGroup, ModelSpec
from vllm_probe.negotiate.gemm import WIDTHS, Gemm, WeightFormat
from vllm_probe.negotiate.layers import conv_channels, groups_of, linears, vector_parameters
from vllm_probe.negotiate.stages import Stage

_STATE_FLOPS = {"delta": 7.0, "mamba1": 5.0, "mamba2": 5.0, "convolution": 0.0}  # for each number of a state
_INDEX_SCALE = 4  # bytes of the scale beside the fp8 key of an indexer
_LATENT_TILE = 128  # fp8 latents of sparse attention: an fp32 scale for so many, positions kept in 16 bits


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

    def flops_per_token(self, *, samples: bool, ranks: int = 1) -> int:
        """FLOPs of one token in all linears of a rank, the output projection only where a token is sampled."""
        return sum(gemm.flops_per_token // gemm.shards(ranks) for gemm in self._used(samples))

    def attention_flops(self, context: float) -> float:
        """FLOPs of one token's attention over `context` others.

        A layer takes 2 heads (key width + value width) for each token or cache entry that it sees, an indexer 2 heads
        width for each that it scores. A gated delta rule takes 7 for each number of its state: decay 1, read by the
        key 2, update 2, read by the query 2; a state space, whose keys do not read it, 5.
        """
        spec, mla, linear = self.spec, self.spec.mla, self.spec.linear
        total = 0.0
        for group in groups_of(spec):
            head_dim = group.head_dim or spec.head_dim
            width = head_dim + (mla.v_dim if mla else head_dim)
            total += 2.0 * group.num_layers * spec.num_heads * width * _seen(group, context)
            if mla and group.index_top:
                scored = context / group.compression
                total += 2.0 * mla.num_indexers * mla.index_heads * mla.index_dim * scored
            if linear and group.kind == "linear":
                state = linear.num_value_heads * linear.key_dim * linear.value_dim
                per_layer = _STATE_FLOPS[linear.kind] * state + 2 * linear.conv_width * conv_channels(linear)
                total += group.num_layers * per_layer
        return total

    def weight_bytes(self, weights: WeightFormat) -> int:
        """Bytes in memory: exact from the file headers for the checkpoint's own format, else by formula.

        What is stored wider than it is computed in becomes narrower as it is loaded.
        """
        spec, stored = self.spec, sum(gemm.stored_bytes(weights) for gemm in self.gemms)
        packed = weights.method == "gguf"  # all of it stays in the formats of the file, whatever is computed in
        own = weights.method == spec.quantization and (packed or weights.width == WIDTHS.get(spec.dtype))
        if own and spec.weight_bytes is not None:
            count = spec.num_parameters if weights.method == "none" else None
            return spec.weight_bytes if count is None else min(spec.weight_bytes, count * weights.width)
        if weights.bits is None and spec.num_parameters is not None:
            return spec.num_parameters * weights.width
        beside = self.table_parameters + self.vector_parameters + spec.vision_parameters
        return round(stored + beside * weights.width)

    def rank_bytes(self, weights: WeightFormat, ranks: int, stage: Stage) -> int:
        """Weight bytes of one rank of `stage`: replicated parts whole, the rest divided, tables at the ends.

        A tied embedding is on both ends of a pipeline.
        """
        whole, spec = self.weight_bytes(weights), self.spec
        copied = self.vector_parameters * weights.width
        copied += round(sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.replicated))
        head = round(sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.name == "lm_head"))
        table, tower = self.table_parameters * weights.width, spec.vision_parameters * weights.width
        split = whole - copied - head - table - tower
        split += round(sum(self._repeated(gemm, weights, ranks) for gemm in self.gemms))
        at_last = head or (table if spec.task == "generate" and not stage.is_first else 0)
        ends = (table + tower if stage.is_first else 0) + (at_last if stage.is_last else 0)
        return round(copied * stage.share + (split * stage.share + ends) / ranks)

    @staticmethod
    def _repeated(gemm: Gemm, weights: WeightFormat, ranks: int) -> float:
        """Bytes over one copy that all ranks together hold of heads that are fewer than they."""
        return 0.0 if gemm.replicated else gemm.stored_bytes(weights) * (ranks / gemm.shards(ranks) - 1)

    def rotary_bytes(self, width: int) -> int:
        """Bytes of the tables of rotary positions: a sine and a cosine for each pair of a head, at every position.

        Layers with heads of another width have a table of their own (vllm/model_executor/models/gemma4.py).
        """
        spec = self.spec
        if spec.rope_theta is None:
            return 0
        near = spec.rope_stretch > 1 and any(group.kind == "sliding" for group in groups_of(spec))
        rows = spec.max_model_len * (spec.rope_stretch + (1 if near else 0))
        widths = {group.head_dim or spec.head_dim for group in groups_of(spec) if group.kind != "linear"}
        return round(rows * (spec.mla.rope_dim if spec.mla else sum(widths)) * width)

    def padding_bytes(self, width: float, ranks: int, tiles: tuple[int, int]) -> int:
        """Bytes of one rank's experts beyond the checkpoint's, where kernels need codes in whole `tiles`.

        `width` is that of a code, in bytes; the first tile is of the inner width of a rank, the second of the hidden
        size.
        """
        moe, spec = self.spec.moe, self.spec
        if moe is None:
            return 0
        inner, hidden = moe.expert_intermediate / ranks, spec.hidden_size
        grown = math.ceil(inner / tiles[0]) * tiles[0] * math.ceil(hidden / tiles[1]) * tiles[1] / (inner * hidden)
        codes = sum(gemm.weights for gemm in self.gemms if gemm.part == "experts") * width
        return round(codes * (grown - 1) / ranks)

    def layer_bytes(self, weights: WeightFormat) -> int:
        """Bytes of one layer, the unit in which weights are loaded."""
        inside = sum(gemm.stored_bytes(weights) for gemm in self.gemms if gemm.name != "lm_head")
        return round(inside / self.spec.num_layers)

    def read_bytes(self, rows: int, weights: WeightFormat, *, samples: bool, ranks: int = 1) -> float:
        """Weight bytes that a step of `rows` tokens reads on one rank."""
        return sum(gemm.read_bytes(rows, weights) / gemm.shards(ranks) for gemm in self._used(samples))

    def _used(self, samples: bool) -> tuple[Gemm, ...]:
        return tuple(gemm for gemm in self.gemms if samples or gemm.name != "lm_head")

    def kv_bytes_per_layer(self, width: int, ranks: int = 1, group: AttentionGroup | None = None) -> int:
        """Bytes of one cache entry in one layer of `group` on one rank, 0 for encoders and linear attention.

        GQA: 2 (kv_heads / ranks, at least 1) head_dim width. MLA: (kv_rank + rope) width, the same on every rank; of
        sparse attention in 8 bits, `fp8_ds_mla` of vllm/v1/kv_cache_interface.py, positions keep 16 bits.
        """
        spec = self.spec
        groups = groups_of(spec)
        group = group or next((group for group in groups if group.kind != "linear"), groups[0])
        if spec.is_encoder or group.kind == "linear":
            return 0
        if spec.mla and group.index_top and width == 1 and group.kind == "full":
            return spec.mla.kv_rank + 4 * spec.mla.kv_rank // _LATENT_TILE + 2 * spec.mla.rope_dim
        if spec.mla:
            return (spec.mla.kv_rank + spec.mla.rope_dim) * width
        heads = group.num_kv_heads or spec.num_kv_heads
        return 2 * max(1, heads // ranks) * (group.head_dim or spec.head_dim) * width

    def kv_bytes_per_token(self, width: int, ranks: int = 1) -> int:
        """KV cache bytes of one token in all layers, as if no window ended; linear attention has none.

        An entry of compressed layers is shared by `compression` tokens; a sparse indexer adds an fp8 key with its scale
        to each entry.
        """
        return math.ceil(self._cache_bytes(width, ranks, lambda g: 0 if g.reuses_cache else 1 / g.compression, 1))

    def kv_read_bytes(self, context: float, width: int, ranks: int = 1) -> float:
        """KV cache bytes that one token reads on one rank behind `context` others."""
        return self._cache_bytes(width, ranks, lambda group: _seen(group, context), context)

    def _cache_bytes(self, width: int, ranks: int, entries: Callable[[AttentionGroup], float], tokens: float) -> float:
        """Bytes of so many `entries` of each group, and of the indexer keys of `tokens`."""
        groups, mla = groups_of(self.spec), self.spec.mla
        total = sum(g.num_layers * entries(g) * self.kv_bytes_per_layer(width, ranks, g) for g in groups)
        indexed = next((group for group in groups if group.index_top), None)
        if mla and indexed:
            total += mla.num_indexers * (mla.index_dim + _INDEX_SCALE) * tokens / indexed.compression
        return total

    def state_bytes(self, width: int, ranks: int = 1) -> int:
        """Bytes of linear attention for one sequence on one rank: in each layer conv_width - 1 inputs and the state.

        Ranks that outnumber the groups of a Mamba 2 repeat them (`MambaStateShapeCalculator` of vLLM 0.32,
        model_executor/layers/mamba/mamba_utils.py).
        """
        linear = self.spec.linear
        if linear is None:
            return 0
        layers = sum(group.num_layers for group in groups_of(self.spec) if group.kind == "linear")
        values = linear.num_value_heads * linear.value_dim
        inputs = 2 * -(-linear.num_key_heads // ranks) * linear.key_dim + values // ranks
        return layers * (
            (linear.conv_width - 1) * inputs * width + values // ranks * linear.key_dim * linear.state_width
        )


def _seen(group: AttentionGroup, context: float) -> float:
    """Tokens or cache entries that one token attends to behind `context` others."""
    near = context if group.window is None else min(context, group.window)
    if group.kind == "linear":
        return 0.0
    if group.kind == "compressed":
        return near + min(context / group.compression, group.index_top or math.inf)
    return min(near, group.index_top or math.inf)


def analyse(spec: ModelSpec) -> Requirements:
    """Every linear of `spec` and what stands beside them, from its shape alone."""
    gemms, inputs = linears(spec), spec.layer_inputs
    tables = inputs.vocab_size * inputs.width * spec.num_layers if inputs else 0
    return Requirements(
        spec=spec,
        gemms=gemms,
        table_parameters=(spec.vocab_size + spec.num_positions + spec.num_token_types) * spec.hidden_size + tables,
        vector_parameters=vector_parameters(spec, gemms),
    )

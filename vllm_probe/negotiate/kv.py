"""The KV cache as an engine lays it out: groups of layers that share blocks, and what a sequence takes of them."""

import math
from collections import Counter
from dataclasses import dataclass, replace

from vllm_probe.core.model import AttentionGroup, MlaShape
from vllm_probe.negotiate.layers import groups_of
from vllm_probe.negotiate.requirements import Requirements
from vllm_probe.negotiate.stages import Stage

_NEAR = 1.5  # kinds of about as many layers share one group size
_COMPRESSED_BLOCK = 256  # tokens of a block of a compressed cache; its windows have blocks of 64
_ALIGNED = 576  # bytes that its pages are a multiple of


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share a block table: what they attend to, tokens of their blocks, and states of a sequence."""

    kind: str
    window: int | None
    block_tokens: int
    states: int = 1

    def blocks(self, length: int, tokens: int) -> int:
        """Blocks of one sequence of `length` tokens, computed at most `tokens` a step.

        vLLM, vllm/v1/kv_cache_interface.py: `max_memory_usage_bytes` of FullAttentionSpec, SlidingWindowSpec,
        ChunkedLocalAttentionSpec and MambaSpec.
        """
        if self.kind == "linear":
            return self.states
        if self.window is None:
            return -(-length // self.block_tokens)
        if self.kind == "chunked":
            return -(-min(self.window + tokens, length) // self.block_tokens)
        return -(-min(self.window - 1 + tokens, length) // self.block_tokens) + 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Blocks of one rank: the bytes of one, and the groups that draw on them."""

    block_bytes: int
    groups: tuple[CacheGroup, ...]

    def blocks(self, length: int, tokens: int) -> int:
        """Blocks of one sequence of `length` tokens in all groups."""
        return sum(group.blocks(length, tokens) for group in self.groups)

    def held_tokens(self, num_blocks: int, length: int, tokens: int, counting: str) -> int:
        """Tokens that an engine logs for `num_blocks`.

        `blocks`: those of one group; `concurrency`: sequences of `length` times their tokens, which is what a cache
        whose groups differ can hold.
        """
        if not self.groups:
            return 0
        if counting == "concurrency":
            return num_blocks * length // self.blocks(length, tokens)
        return num_blocks // len(self.groups) * min(group.block_tokens for group in self.groups)


def layout(  # noqa: PLR0913 - what a layout depends on
    need: Requirements, width: int, ranks: int, stage: Stage, block_size: int, *, grouped: bool, states: int = 1
) -> Layout:
    """The layout for blocks of at least `block_size` tokens whose values have `width` bytes.

    Engines that group layers give each kind of attention blocks of one size: a group has as many layers as the rarest
    kind (or the most frequent one, where that is less than 1.5 times as many), the last group of a kind is filled up,
    and a kind whose tokens take fewer bytes gets more tokens a block. A state of linear attention is one block, so
    blocks of attention grow until they hold one; an engine that caches prefixes of such models keeps two `states` of a
    sequence (vllm/v1/core/kv_cache_utils.py, vllm/model_executor/models/config.py). It caches none of a model that has
    states alone (`is_prefix_caching_supported` of vllm/config/model.py).
    """
    per_token = math.ceil(need.kv_bytes_per_token(width, ranks) * stage.share)
    held = math.ceil(need.state_bytes(2, ranks) * stage.share)
    if not per_token:
        return Layout(held, (CacheGroup("linear", None, block_size),) if held else ())
    kinds = Counter[AttentionGroup]()
    for group in (group for group in groups_of(need.spec) if not group.reuses_cache):
        kinds[replace(group, num_layers=1, index_top=None)] += math.ceil(group.num_layers * stage.share)
    if grouped and need.spec.mla and any(kind.kind == "compressed" for kind in kinds):
        return _compressed(need.spec.mla, kinds)
    flat = len(kinds) == 1 or any(kind.kind == "compressed" for kind in kinds)
    if flat or not grouped:
        only = next(iter(kinds)) if len(kinds) == 1 else AttentionGroup(kind="full", num_layers=1)
        state = 0 if flat else held
        window = only.window if grouped else None
        return Layout(per_token * block_size + state, (CacheGroup(only.kind, window, block_size),))
    bytes_of = {kind: need.kv_bytes_per_layer(width, ranks, kind) for kind in kinds}
    linear = sum(count for kind, count in kinds.items() if kind.kind == "linear")
    if linear:
        least = need.state_bytes(2, ranks) * stage.share / linear / max(bytes_of.values())
        block_size *= math.ceil(max(least, block_size) / block_size)
    page = max(bytes_of.values()) * block_size
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < _NEAR * fewest else fewest
    cached = tuple(
        CacheGroup(kind.kind, kind.window, page // bytes_of[kind] if bytes_of[kind] else block_size, states)
        for kind, count in kinds.items()
        for _ in range(-(-count // size))
    )
    return Layout(page * size, cached)


def _compressed(mla: MlaShape, kinds: Counter[AttentionGroup]) -> Layout:
    """The layout of DeepSeek-V4: entries, keys of the indexer, windows of every layer, and states of the compressors.

    A block is as many tuples of pages, one of each size, as a group has layers: groups of a number that wastes the
    least. An entry takes 8 bits a value, 16 where it is rotated, and 8 bytes of scales; a state is fp32, values and
    gates, twice as long where entries overlap (vllm/models/deepseek_v4/compressor.py and attention.py, grouped by
    `_get_kv_cache_groups_uniform_groups` of vllm/v1/core/kv_cache_utils.py, 0.22; 0.29 packs blocks about 5 % denser).
    """
    block, window = _COMPRESSED_BLOCK, next(iter(kinds)).window
    layers = {kind.compression: count for kind, count in kinds.items() if kind.kind == "compressed"}
    entries = [block // compression * (mla.kv_rank + 2 * mla.rope_dim + 8) for compression in layers]
    pages = [*entries, block // min(layers) * (mla.index_dim + 4)]
    counts = [max(layers.values()), sum(kinds.values())]
    kept = [CacheGroup("full", None, block), CacheGroup("sliding", window, block // 4)]
    for compression, count in layers.items():
        overlaps = compression == min(layers)
        counts.append(count)
        kept.append(CacheGroup("sliding", compression * (2 if overlaps else 1), 4 if overlaps else 8))
    size = min(range(counts[0], max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))
    groups = tuple(group for group, count in zip(kept, counts, strict=True) for _ in range(-(-count // size)))
    return Layout(size * sum(-(-page // _ALIGNED) * _ALIGNED for page in pages), groups)

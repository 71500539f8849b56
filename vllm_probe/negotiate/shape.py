"""The sizes that the memory of a rank depends on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Lengths and counts of one config.

    Attributes:
        max_model_len: longest sequence.
        seqs: sequences in one step.
        tokens: tokens in one step.
        block_size: tokens of a KV block.
        kv_dtype: format of the KV cache.
        has_graphs: graphs are captured.
    """

    max_model_len: int
    seqs: int
    tokens: int
    block_size: int
    kv_dtype: str
    has_graphs: bool

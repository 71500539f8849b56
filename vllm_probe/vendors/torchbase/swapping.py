"""Moves blocks of memory between a device and the host."""

from collections.abc import Callable, Sequence

import torch


def gathered(pool: torch.Tensor, blocks: Sequence[int], host: torch.Tensor, block_bytes: int, to_device: bool) -> None:
    """All blocks in one transfer, gathered or scattered on the device."""
    there = host[: len(blocks) * block_bytes].view(-1, block_bytes)
    rows = pool[: len(pool) // block_bytes * block_bytes].view(-1, block_bytes)
    index = torch.tensor(blocks, dtype=torch.int64, device=pool.device)
    if to_device:
        rows.index_copy_(0, index, there.to(pool.device, non_blocking=True))
    elif pool.device == host.device:
        torch.index_select(rows, 0, index, out=there)
    else:
        there.copy_(rows.index_select(0, index), non_blocking=True)


def one_by_one(
    pool: torch.Tensor, blocks: Sequence[int], host: torch.Tensor, block_bytes: int, to_device: bool
) -> None:
    """A transfer for each block: nothing is held twice."""
    for block, there in zip(blocks, host.split(block_bytes), strict=False):
        here = pool[block * block_bytes : (block + 1) * block_bytes]
        source, target = (there, here) if to_device else (here, there)
        target.copy_(source, non_blocking=True)


SWAP: dict[str, Callable[[torch.Tensor, Sequence[int], torch.Tensor, int, bool], None]] = {
    "gathered": gathered,
    "blocks": one_by_one,
}
"""Name to an implementation of `HardwareAdapter.swap`."""

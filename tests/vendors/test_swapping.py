"""Blocks travel between a pool and the host as they are."""

from collections.abc import Iterator

import pytest
import torch

from vllm_probe.core.errors import BadUsage
from vllm_probe.core.primitive import Primitive
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
from vllm_probe.vendors.torchbase.swapping import SWAP

BLOCK, COUNT = 96, 9


@pytest.fixture
def adapter() -> Iterator[CpuAdapter]:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    yield adapter
    adapter.close()


@pytest.mark.parametrize("name", [None, *SWAP])
def test_blocks_go_out_and_come_back_where_they_belong(adapter: CpuAdapter, name: str | None) -> None:
    pool, host = adapter.allocate(BLOCK * COUNT + 7), adapter.allocate_pinned(BLOCK * 4)
    pool.copy_(torch.arange(len(pool)) % 113)
    before = pool.clone()
    adapter.swap(pool, [8, 1, 2], host, block_bytes=BLOCK, to_device=False, implementation=name)
    for i, block in enumerate((8, 1, 2)):
        assert torch.equal(host[i * BLOCK : (i + 1) * BLOCK], before[block * BLOCK : (block + 1) * BLOCK])
    assert torch.equal(pool, before)
    adapter.swap(pool, [0, 7, 3], host, block_bytes=BLOCK, to_device=True, implementation=name)
    for target, source in ((0, 8), (7, 1), (3, 2)):
        before[target * BLOCK : (target + 1) * BLOCK] = before[source * BLOCK : (source + 1) * BLOCK].clone()
    assert torch.equal(pool, before)


@pytest.mark.parametrize("name", SWAP)
def test_nothing_to_swap_changes_nothing(adapter: CpuAdapter, name: str) -> None:
    pool, host = adapter.allocate(BLOCK).fill_(1), adapter.allocate_pinned(BLOCK).fill_(2)
    adapter.swap(pool, [], host, block_bytes=BLOCK, to_device=True, implementation=name)
    assert int(pool.sum()) == BLOCK


@pytest.mark.parametrize("name", SWAP)
def test_a_block_outside_the_pool_is_an_error(adapter: CpuAdapter, name: str) -> None:
    pool, host = adapter.allocate(BLOCK * 2), adapter.allocate_pinned(BLOCK)
    with pytest.raises(BadUsage):
        adapter.swap(pool, [2], host, block_bytes=BLOCK, to_device=True, implementation=name)


@pytest.mark.parametrize("name", SWAP)
def test_memory_of_the_host_that_is_too_small_is_refused_and_stays_where_it_is(adapter: CpuAdapter, name: str) -> None:
    pool, host = adapter.allocate(BLOCK * 4), adapter.allocate_pinned(BLOCK)
    begin = host.data_ptr()
    with pytest.raises(BadUsage, match="2 blocks"):
        adapter.swap(pool, [0, 3], host, block_bytes=BLOCK, to_device=False, implementation=name)
    assert (len(host), host.data_ptr()) == (BLOCK, begin)


def test_a_swap_has_no_number_format(adapter: CpuAdapter) -> None:
    assert adapter.implementations(Primitive.SWAP, "int8") == adapter.implementations(Primitive.SWAP, "bf16")

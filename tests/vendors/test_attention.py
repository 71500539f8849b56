"""Attention of a chunk: the last queries of a sequence see what they see when all of it is computed."""

import pytest
from torch.profiler import ProfilerActivity, profile

from tests.vendors.test_cpu_adapter import error, opened
from tests.vendors.tolerance import TOLERANCE
from vllm_probe.core.primitive import Primitive


@pytest.mark.parametrize("length", [2, 70, 600])
@pytest.mark.parametrize("heads", [(12, 12), (4, 2), (4, 1)])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_last_queries_of_a_sequence_attend_as_in_the_whole(dtype: str, heads: tuple[int, int], length: int) -> None:
    adapter = opened()
    query, key, value = (
        adapter.random((length, num, 32), dtype, seed) for seed, num in enumerate((heads[0], *heads[1:] * 2))
    )
    exact = adapter.attention(query.float(), key.float(), value.float(), [length], causal=True)
    for name in adapter.implementations(Primitive.ATTENTION, dtype):
        for count in (1, length // 2, length - 1):
            found = adapter.attention(query[-count:], key, value, [length], causal=True, implementation=name)
            assert (len(found), found.dtype) == (count, query.dtype)
            assert error(found, exact[-count:].double()) <= TOLERANCE[dtype], f"{name} with {count}"
    adapter.close()


def test_keys_and_values_are_copied_once_and_not_for_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_probe.vendors.torchbase.attention._SCORES", 1)
    adapter = opened()
    heads = adapter.random((1024, 8, 64), "bf16", 1)
    query, key, value = heads[:, :4], heads[:, 4:6], heads[:, 6:]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        adapter.attention(query, key, value, [1024], causal=True, implementation="bmm")
    sizes = [event.input_shapes[0] for event in recorded.events() or () if event.name == "aten::copy_"]
    assert [size for size in sizes if size[-2:] == [768, 64]] == []
    assert len([size for size in sizes if size[-2:] == [1024, 64]]) == 2
    adapter.close()

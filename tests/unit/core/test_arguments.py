"""What is given to an adapter is checked once, before its hooks."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.unit.core.test_adapter import DEVICE, Generous, ListAdapter, Numbers, opened
from vllm_probe.core.errors import BadUsage, UnknownName


class Typed(Numbers):
    """With a format, as arrays have."""

    dtype = "int64"


def numbers(count: int) -> Numbers:
    return Numbers([1.0] * count)


def attending() -> ListAdapter:
    adapter = Generous()
    adapter.set_device(DEVICE)
    adapter.open()
    return adapter


def attend(queries: int, lengths: list[Any], *, causal: bool = True, values: int = 4) -> object:
    tensors = numbers(queries), numbers(4), numbers(values)
    return attending().attention(*tensors, lengths, causal=causal)


def swap(blocks: list[Any], *, host: int = 4, block_bytes: Any = 8) -> None:
    opened().swap(numbers(4), blocks, numbers(host), block_bytes=block_bytes, to_device=True)


MEANINGLESS: dict[str, Callable[[ListAdapter], object]] = {
    "half a byte": lambda adapter: adapter.allocate(cast("int", 1.5)),
    "a word of bytes": lambda adapter: adapter.allocate_pinned(cast("int", "5")),
    "less than nothing": lambda adapter: adapter.allocate_pageable(-1),
    "a true alignment": lambda adapter: adapter.allocate(8, alignment=True),
    "an alignment of 2.0": lambda adapter: adapter.allocate(8, cast("int", 2.0)),
    "an alignment of 3": lambda adapter: adapter.allocate(8, 3),
    "an alignment of 0": lambda adapter: adapter.allocate(8, 0),
    "a negative shape": lambda adapter: adapter.random((3, -1), "fp32", 0),
    "one over many": lambda adapter: adapter.copy(numbers(1), numbers(100)),
    "many over one": lambda adapter: adapter.copy(numbers(100), numbers(1)),
    "another format": lambda adapter: adapter.copy(type("Other", (Typed,), {"dtype": "fp64"})([1.0]), Typed([1.0])),
    "a narrower format": lambda adapter: adapter.copy(numbers(1), type("Narrow", (Numbers,), {"nbytes": 1})([1.0])),
    "a queue too far": lambda adapter: adapter.copy(numbers(1), numbers(1), queue=1),
    "a queue before": lambda adapter: adapter.copy(numbers(1), numbers(1), queue=-1),
    "a part beyond": lambda adapter: adapter.part(numbers(4), 31, 2),
    "a part before": lambda adapter: adapter.part(numbers(4), -1, 2),
    "more tokens than there are": lambda _: attend(4, [2, 5]),
    "fewer tokens than there are": lambda _: attend(4, [2]),
    "a negative length": lambda _: attend(4, [5, -1]),
    "fewer queries that see all": lambda _: attend(2, [4], causal=False),
    "fewer queries of two": lambda _: attend(2, [2, 2]),
    "more queries than keys": lambda _: attend(5, [4]),
    "fewer values than keys": lambda _: attend(4, [4], values=3),
    "a block beyond": lambda _: swap([4]),
    "a block before": lambda _: swap([-1]),
    "a block twice": lambda _: swap([1, 1]),
    "a small host": lambda _: swap([0, 1], host=1),
    "blocks of nothing": lambda _: swap([0], block_bytes=0),
}
UNKNOWN: dict[str, Callable[[ListAdapter], object]] = {
    "a galaxy": lambda adapter: adapter.fence(cast("Any", "galaxy")),
    "random doubles": lambda adapter: adapter.random((1,), "fp64", 0),
    "doubles of the host": lambda adapter: adapter.from_host([1.0], "fp64"),
}


@pytest.mark.parametrize("call", MEANINGLESS.values(), ids=MEANINGLESS)
def test_what_means_nothing_is_refused_before_the_hook(call: Callable[[ListAdapter], object]) -> None:
    with pytest.raises(BadUsage):
        call(opened())


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_a_word_that_is_none_is_refused_before_the_hook(call: Callable[[ListAdapter], object]) -> None:
    with pytest.raises(UnknownName):
        call(opened())


def test_a_format_is_held_only_where_the_adapter_says_so() -> None:
    adapter = opened()
    adapter.held_formats = ("int8",)
    assert adapter.from_host([1.0], "int8") == [1.0]
    with pytest.raises(UnknownName, match="fp32"):
        adapter.random((1,), "fp32", 0)


def test_what_the_contract_allows_reaches_the_hook() -> None:
    adapter = opened()
    adapter.copy(Typed([3.0]), target := Typed([1.0]))
    assert target == [3.0]
    assert adapter.part(numbers(4), 0, 32) is None
    for lengths in ([4], [1, 3], [0, 4]):
        attend(4, lengths, causal=False)
    attend(1, [4])
    swap([])
    swap([3, 0], host=2)

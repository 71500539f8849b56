"""An adapter is brought up in order."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.device import Device
from vllm_probe.core.errors import AdapterOutOfOrder, BadUsage, UnknownName
from vllm_probe.core.primitive import CompileHints, Done, Event, Linear, MemoryReading, Primitive
from vllm_probe.core.values import FenceScope

DEVICE = Device(id="test0", vendor="test", kind="gpu")


class Numbers(list[float]):
    """The smallest tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self),)

    @property
    def nbytes(self) -> int:
        return 8 * len(self)


class ListAdapter(HardwareAdapter[Numbers]):
    """As little as an adapter must have."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts = 0
        self.fences: list[FenceScope] = []
        self.released = 0

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        return ("plain",) if primitive in {Primitive.LINEAR, Primitive.SWAP} else ()

    def software(self) -> dict[str, str]:
        return {}

    def _open(self) -> None:
        self.contexts += 1

    def _close(self) -> None:
        self.contexts -= 1

    def _memory(self) -> MemoryReading:
        return MemoryReading(total_bytes=8, free_bytes=8)

    def _allocate(self, nbytes: int, alignment: int) -> Numbers:
        return Numbers([float(alignment)] * nbytes)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> Numbers:
        return Numbers([float(pinned)] * nbytes)

    def _release(self, tensor: Numbers) -> None:
        self.released += 1

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Numbers:
        return Numbers([float(seed)])

    def _from_host(self, values: Sequence[Any], dtype: str) -> Numbers:
        return Numbers(values)

    def _to_host(self, tensor: Numbers) -> list[Any]:
        return [*tensor]

    def _copy(self, source: Numbers, target: Numbers, *, non_blocking: bool, queue: int) -> Event:
        target[:] = source
        return Done()

    def _read(self, source: Numbers) -> Numbers:
        return Numbers([sum(source)])

    def _triad(self, b: Numbers, c: Numbers, scale: float, out: Numbers) -> None:
        out[:] = [x + scale * y for x, y in zip(b, c, strict=True)]

    def _fence(self, scope: FenceScope) -> None:
        self.fences.append(scope)

    def _synchronize(self) -> None: ...

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        return float(len(calls))

    def _prepare_linear(
        self, weight: Numbers, bias: Numbers | None, dtype: str, implementation: str
    ) -> Linear[Numbers]:
        return lambda x: x

    def _swap(
        self,
        pool: Numbers,
        blocks: Sequence[int],
        host: Numbers,
        block_bytes: int,
        to_device: bool,
        implementation: str | None,
    ) -> None: ...


ONE = Numbers([1.0])


def opened() -> ListAdapter:
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    adapter.open()
    return adapter


CALLS: list[Callable[[ListAdapter], object]] = [
    lambda adapter: adapter.memory(),
    lambda adapter: adapter.telemetry(),
    lambda adapter: adapter.allocate(8),
    lambda adapter: adapter.allocate_pinned(8),
    lambda adapter: adapter.allocate_pageable(8),
    lambda adapter: adapter.release(ONE),
    lambda adapter: adapter.address(ONE),
    lambda adapter: adapter.random((1,), "fp32", 0),
    lambda adapter: adapter.from_host([1.0], "fp32"),
    lambda adapter: adapter.to_host(ONE),
    lambda adapter: adapter.copy(ONE, Numbers([2.0])).wait(),
    lambda adapter: adapter.read(ONE),
    lambda adapter: adapter.triad(ONE, ONE, 1.0, Numbers([2.0])),
    lambda adapter: adapter.stream(ONE, Numbers([2.0])),
    lambda adapter: adapter.fence("device"),
    lambda adapter: adapter.synchronize(),
    lambda adapter: adapter.time_batch([]),
    lambda adapter: adapter.settle(0),
    lambda adapter: adapter.prepare_linear(ONE, None, "fp32", "plain"),
    lambda adapter: adapter.swap(ONE, [0], ONE, block_bytes=8, to_device=True),
    lambda adapter: adapter.compile_model(len, CompileHints()),
]
MISSING: list[Callable[[ListAdapter], object]] = [
    lambda adapter: adapter.attention(ONE, ONE, ONE, [1], causal=True),
    lambda adapter: adapter.rms_norm(ONE, ONE, 1e-6),
    lambda adapter: adapter.rope(ONE, ONE, ONE),
    lambda adapter: adapter.quantize(ONE),
    lambda adapter: adapter.prepare_linear(ONE, None, "fp32", "plain", group_width=32),
    lambda adapter: adapter.prepare_weight_only(ONE, "int4"),
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_runs_before_the_device_is_open(call: Callable[[ListAdapter], object]) -> None:
    adapter = ListAdapter()
    with pytest.raises(AdapterOutOfOrder):
        call(adapter)
    adapter.set_device(DEVICE)
    with pytest.raises(AdapterOutOfOrder, match="open"):
        call(adapter)
    adapter.open()
    call(adapter)
    adapter.close()
    with pytest.raises(AdapterOutOfOrder):
        call(adapter)


def test_a_context_needs_a_device_first() -> None:
    with pytest.raises(AdapterOutOfOrder, match="set_device"):
        ListAdapter().open()


def test_the_device_cannot_change_while_open() -> None:
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    adapter.open()
    with pytest.raises(AdapterOutOfOrder):
        adapter.set_device(DEVICE)


def test_open_and_close_happen_once() -> None:
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    for _ in range(2):
        adapter.open()
    assert adapter.contexts == 1
    for _ in range(2):
        adapter.close()
    assert adapter.contexts == 0
    assert adapter.device == DEVICE


def test_an_allocation_without_an_alignment_gets_the_adapter_s_own() -> None:
    adapter = opened()
    assert adapter.allocate(1) == [64.0]
    assert adapter.allocate(1, 256) == [256.0]


@pytest.mark.parametrize("call", MISSING)
def test_a_primitive_that_an_adapter_lacks_is_refused_by_name(call: Callable[[ListAdapter], object]) -> None:
    with pytest.raises(AdapterOutOfOrder, match="before"):
        call(ListAdapter())
    with pytest.raises(UnknownName):
        call(opened())


class Generous(ListAdapter):
    """It has everything, in bf16 only, and looks at no name."""

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        return ("plain",) if dtype == "bf16" else ()

    def _attention(self, *_: Any) -> Numbers:
        return ONE

    def _rms_norm(self, *_: Any) -> Numbers:
        return ONE

    def _rope(self, *_: Any) -> Numbers:
        return ONE

    def _quantize(self, *_: Any) -> tuple[Numbers, Numbers]:
        return ONE, ONE


NAMED: dict[str, Callable[[ListAdapter, str | None], object]] = {
    "attention": lambda adapter, name: adapter.attention(ONE, ONE, ONE, [1], causal=True, implementation=name),
    "rms_norm": lambda adapter, name: adapter.rms_norm(ONE, ONE, 1e-6, implementation=name),
    "rope": lambda adapter, name: adapter.rope(ONE, ONE, ONE, implementation=name),
    "quantize": lambda adapter, name: adapter.quantize(ONE, implementation=name),
    "swap": lambda adapter, name: adapter.swap(ONE, [0], ONE, block_bytes=8, to_device=True, implementation=name),
}


@pytest.mark.parametrize("primitive", NAMED)
def test_a_name_that_a_primitive_does_not_have_is_refused_whatever_the_hook_does(primitive: str) -> None:
    adapter = Generous()
    adapter.set_device(DEVICE)
    adapter.open()
    for name in (None, "plain", "plain"):
        NAMED[primitive](adapter, name)
    with pytest.raises(UnknownName, match=f"{primitive} has no implementation 'nonesuch'"):
        NAMED[primitive](adapter, "nonesuch")


@pytest.mark.parametrize("primitive", Primitive)
def test_what_is_supported_follows_from_the_implementations(primitive: Primitive) -> None:
    support = opened().supports(primitive, "fp32")
    assert support.ok == (primitive in {Primitive.LINEAR, Primitive.SWAP})
    assert support.ok or support.reason == f"the adapter has no {primitive} in fp32"


def test_pinned_memory_is_given_back_once_by_release_and_the_rest_by_close() -> None:
    adapter = opened()
    first, _second = adapter.allocate_pinned(2), adapter.allocate_pinned(3)
    adapter.allocate_pageable(100)
    assert adapter.pinned_bytes == 40
    for _ in range(2):
        adapter.release(first)
    assert (adapter.pinned_bytes, adapter.released) == (24, 1)
    adapter.close()
    assert (adapter.pinned_bytes, adapter.released) == (0, 2)


def test_no_weight_is_kept_narrow_unless_the_adapter_says_so() -> None:
    with pytest.raises(AdapterOutOfOrder, match="set_device"):
        ListAdapter().weight_only_formats()
    assert opened().weight_only_formats() == ()


def test_a_swap_ends_with_a_fence_that_reaches_the_other_side() -> None:
    adapter = opened()
    adapter.swap(ONE, [0], ONE, block_bytes=8, to_device=False)
    assert adapter.fences == ["system"]


def test_without_a_compiler_a_function_stays_as_it_is_and_the_reason_is_said() -> None:
    compiled = opened().compile_model(len, CompileHints())
    assert compiled.function is len
    assert compiled.backend is None
    assert "test0" in compiled.reason


def test_a_width_of_the_process_is_limited_before_the_adapter_is_open_or_never() -> None:
    adapter = ListAdapter()
    with pytest.raises(AdapterOutOfOrder):
        adapter.process_widths()
    with pytest.raises(AdapterOutOfOrder):
        adapter.limit_width(8)
    adapter.set_device(DEVICE)
    assert adapter.process_widths() == ()
    with pytest.raises(UnknownName, match="8 lanes wide"):
        adapter.limit_width(8)
    with pytest.raises(AdapterOutOfOrder, match="after open"):
        opened().limit_width(8)


def test_without_stores_past_the_caches_nothing_is_copied() -> None:
    target = Numbers([2.0])
    assert not opened().stream(ONE, target)
    assert target == [2.0]


@pytest.mark.parametrize(("nbytes", "alignment"), [(-1, None), (64, 3), (64, 6), (64, -8), (64, 0)])
def test_a_size_or_an_alignment_that_cannot_be_is_refused_before_the_device_is_asked(
    nbytes: int, alignment: int | None
) -> None:
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    adapter.open()
    for allocate in (adapter.allocate, adapter.allocate_pinned):
        with pytest.raises(BadUsage, match=f"test0: {nbytes} bytes at multiples of "):
            allocate(nbytes, alignment)
    if nbytes < 0:
        with pytest.raises(BadUsage):
            adapter.allocate_pageable(nbytes)
    assert adapter.pinned_bytes == 0


def test_what_is_at_some_places_comes_from_all_of_the_tensor_unless_an_adapter_knows_better() -> None:
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    adapter.open()
    adapter._to_host = lambda tensor: [[1.0, 2.0], [3.0, 4.0]]  # type: ignore[method-assign]
    assert adapter.at(Numbers(), [(1,), (0, 1)]) == [[3.0, 4.0], 2.0]

"""An adapter is brought up in order."""

from collections.abc import Callable, Sequence

import pytest

from vllm_probe.core.adapter import HardwareAdapter, Linear, MemoryReading, Primitive, Support
from vllm_probe.core.device import Device
from vllm_probe.core.errors import AdapterOutOfOrder
from vllm_probe.core.values import FenceScope

DEVICE = Device(id="test0", vendor="test", kind="gpu")


class ListAdapter(HardwareAdapter[list[float]]):
    def __init__(self) -> None:
        super().__init__()
        self.contexts = 0

    def supports(self, primitive: Primitive, dtype: str) -> Support:
        return Support(ok=True)

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        return ("plain",)

    def copy(self, source: list[float], target: list[float]) -> None:
        target[:] = source

    def read(self, source: list[float]) -> list[float]:
        return [sum(source)]

    def triad(self, b: list[float], c: list[float], scale: float, out: list[float]) -> None:
        out[:] = [x + scale * y for x, y in zip(b, c, strict=True)]

    def fence(self, scope: FenceScope) -> None: ...

    def synchronize(self) -> None: ...

    def time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        return float(len(calls))

    def software(self) -> dict[str, str]:
        return {}

    def _open(self) -> None:
        self.contexts += 1

    def _close(self) -> None:
        self.contexts -= 1

    def _memory(self) -> MemoryReading:
        return MemoryReading(total_bytes=8, free_bytes=8)

    def _allocate(self, nbytes: int, alignment: int) -> list[float]:
        return [float(alignment)] * nbytes

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> list[float]:
        return [float(seed)]

    def _prepare_linear(
        self, weight: list[float], bias: list[float] | None, dtype: str, implementation: str
    ) -> Linear[list[float]]:
        return lambda x: x


CALLS: list[Callable[[ListAdapter], object]] = [
    lambda adapter: adapter.memory(),
    lambda adapter: adapter.allocate(8),
    lambda adapter: adapter.random((1,), "fp32", 0),
    lambda adapter: adapter.prepare_linear([1.0], None, "fp32", "plain"),
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
    adapter = ListAdapter()
    adapter.set_device(DEVICE)
    adapter.open()
    assert adapter.allocate(1) == [64.0]
    assert adapter.allocate(1, 256) == [256.0]

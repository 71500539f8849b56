"""A device without arithmetic or time of its own: scripted rates, a clock that only its own work advances."""

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from random import Random
from typing import Any, NamedTuple

from vllm_probe.bench.timing import Case, Work
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.device import Device, DeviceMemory
from vllm_probe.core.document import Stamp
from vllm_probe.core.primitive import Done, Event, Linear, MemoryReading, Primitive, Support
from vllm_probe.core.values import FenceScope

MIB = 1 << 20
STAMP = Stamp(created_at="2026-01-02T03:04:05Z", tool_version="0.1.0", host_fingerprint="sha256:0123456789abcdef")


def cpu(**details: object) -> Device:
    """A bare 2-core CPU at 4 GHz with AVX-512 BF16: 1024 GFLOP/s in bf16 at most."""
    known = {
        "isa": ["sse4_2", "avx2", "avx512", "avx512_vnni", "avx512_bf16"],
        "threads": 2,
        "caches": {"l1d": 32 << 10, "l2": MIB, "l3": 8 * MIB},
        "frequency_mhz": {"current": 2000, "max": 4000},
        "hypervisor": None,
    }
    memory = DeviceMemory(reported_bytes=16 << 30, usable_bytes=12 << 30, kind="shared")
    return Device(id="cpu0", vendor="cpu", kind="cpu", arch="avx512_bf16", memory=memory, details=known | details)


def prepared(case: Case, divisor: int = 1) -> Work:
    """The work of a case that is timed from outside."""
    work = case.prepare(divisor)
    assert isinstance(work, Work)
    return work


class Values(NamedTuple):
    """A tensor: what it would be made of, drawn only when somebody looks."""

    shape: tuple[int, ...]
    seed: int
    product_of: tuple["Values", "Values", float] | None = None

    @property
    def nbytes(self) -> int:
        """As if every element were fp32."""
        return 4 * prod(self.shape)

    def tolist(self) -> list[list[float]]:
        if self.product_of is None:
            return _drawn(self.shape, self.seed)
        x, weight, error = self.product_of
        return [[value + error for value in row] for row in _product(x.shape, x.seed, weight.shape, weight.seed)]


@cache
def _drawn(shape: tuple[int, ...], seed: int) -> list[list[float]]:
    random = Random(seed)
    return [[float(random.randrange(-128, 128)) for _ in range(shape[1])] for _ in range(shape[0])]


@cache
def _product(shape: tuple[int, ...], seed: int, other: tuple[int, ...], other_seed: int) -> list[list[float]]:
    x, weight = _drawn(shape, seed), _drawn(other, other_seed)
    return [[sum(map(float.__mul__, row, column)) for column in weight] for row in x]


class FakeAdapter(HardwareAdapter[Values]):
    """Rates in GFLOP/s by (format, implementation) and GB/s; `before` runs before every operation and may raise."""

    memory_fence_scope: FenceScope = "system"

    def __init__(self, device: Device | None = None) -> None:
        super().__init__()
        self.linears = {
            ("fp32", "plain"): 200.0,
            ("bf16", "plain"): 400.0,
            ("bf16", "packed"): 500.0,
            ("fp16", "plain"): 40.0,
            ("int8", "plain"): 800.0,
        }
        self.gb_s = 40.0
        self.wrong: dict[tuple[str, str], float] = {}
        self.before: Callable[[str], None] = lambda operation: None
        self.slowness: Callable[[int], float] = lambda batch: 1.0
        self.batches = 0
        self.ran: list[str] = []
        self._now = 0.0
        self.set_device(device or cpu())
        self.open()

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        ok = bool(self.implementations(primitive, dtype))
        return Support(ok=ok, reason="" if ok else f"no {primitive} in {dtype}")

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        return tuple(name for known, name in self.linears if known == dtype and primitive is Primitive.LINEAR)

    def _copy(self, source: Values, target: Values, *, non_blocking: bool, queue: int) -> Event:
        self._work("copy", 8 * source.shape[0] / self.gb_s)
        return Done()

    def _read(self, source: Values) -> Values:
        self._work("read", 4 * source.shape[0] / self.gb_s)
        return source

    def _triad(self, b: Values, c: Values, scale: float, out: Values) -> None:
        self._work("triad", 12 * b.shape[0] / self.gb_s)

    def _fence(self, scope: FenceScope) -> None: ...

    def _synchronize(self) -> None: ...

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        start = self._now
        for call in calls:
            call()
        self.batches += 1
        return (self._now - start) * self.slowness(self.batches)

    def software(self) -> dict[str, str]:
        return {"torch": "2.13.0"}

    def _work(self, operation: str, nanoseconds: float) -> None:
        self.before(operation)
        self.ran.append(operation)
        self._now += nanoseconds / 1e9

    def _open(self) -> None: ...

    def _close(self) -> None: ...

    def _memory(self) -> MemoryReading:
        return MemoryReading(total_bytes=16 << 30, free_bytes=12 << 30)

    def _allocate(self, nbytes: int, alignment: int) -> Values:
        return Values((nbytes,), 0)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> Values:
        return Values((nbytes,), 0)

    def _from_host(self, values: Sequence[Any], dtype: str) -> Values:
        return Values((len(values),), 0)

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Values:
        self.before(f"random {dtype} {' '.join(map(str, shape))}")
        return Values(shape, seed)

    def _prepare_linear(self, weight: Values, bias: Values | None, dtype: str, implementation: str) -> Linear[Values]:
        rate = self.linears[dtype, implementation]
        error = self.wrong.get((dtype, implementation), 0.0)

        def linear(x: Values) -> Values:
            self._work(f"{dtype} {implementation} {x.shape[0]}", 2.0 * x.shape[0] * x.shape[1] * weight.shape[0] / rate)
            return Values((x.shape[0], weight.shape[0]), 0, (x, weight, error))

        return linear

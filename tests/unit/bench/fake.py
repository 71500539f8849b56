"""A device without arithmetic or time of its own: scripted rates, a clock that only its own work advances."""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from math import prod
from operator import getitem
from typing import Any

from vllm_probe.bench.timing import Case, Work
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.device import Device, DeviceMemory
from vllm_probe.core.document import Stamp
from vllm_probe.core.primitive import Done, Event, Linear, MemoryReading, Primitive, Support
from vllm_probe.core.values import FenceScope
from vllm_probe.vendors.conformance import numerics, reference

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


class Values:
    """A tensor whose elements are made when somebody looks; `at` makes only what is at one place."""

    def __init__(
        self,
        shape: tuple[int, ...],
        make: Callable[[], list[Any]],
        at: Callable[[Sequence[int]], Any] | None = None,
    ) -> None:
        self.shape = shape
        self._make = make
        self.at: Callable[[Sequence[int]], Any] = at or (lambda place: reduce(getitem, place, make()))

    def become(self, make: Callable[[], list[Any]], at: Callable[[Sequence[int]], Any]) -> None:
        """Holds something else from now on."""
        self._make, self.at = make, at

    @property
    def nbytes(self) -> int:
        """As if every element were fp32."""
        return 4 * prod(self.shape)

    def tolist(self) -> list[Any]:
        return self._make()


def given(values: Sequence[Any]) -> Values:
    shape, inner = [], values
    while isinstance(inner, Sequence):
        shape.append(len(inner))
        inner = inner[0]
    return Values(tuple(shape), lambda: [*values])


@cache
def drawn(shape: tuple[int, ...], dtype: str, seed: int, first: int) -> list[Any]:
    """What a random tensor holds from `first` on in its first dimension."""
    return numerics.values(shape, dtype, 1_000_003 * seed + first)


def plus(nested: Any, error: float) -> Any:
    return [plus(inner, error) for inner in nested] if isinstance(nested, list) else nested + error


class FakeAdapter(HardwareAdapter[Values]):
    """Rates in GFLOP/s by (format, implementation), ns of a rope, GB/s; `before` every operation may raise."""

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
        self.ropes = {"slow": 8e6, "fast": 2e6}
        self.gb_s = 40.0
        self.wrong: dict[tuple[str, str], float] = {}
        self.before: Callable[[str], None] = lambda operation: None
        self.slowness: Callable[[int], float] = lambda batch: 1.0
        self.batches = 0
        self.busy = 1.0
        self.ran: list[str] = []
        self._now = 0.0
        self._used = 0.0
        self.set_device(device or cpu())
        self.open()

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        ok = bool(self.implementations(primitive, dtype)) and prod(shape) < 4000  # python would be slow
        return Support(ok=ok, reason="" if ok else f"no {primitive} in {dtype}")

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        if primitive is Primitive.ROPE:
            return tuple(self.ropes) if dtype in {"fp32", "bf16"} else ()
        return tuple(name for known, name in self.linears if known == dtype and primitive is Primitive.LINEAR)

    def _copy(self, source: Values, target: Values, *, non_blocking: bool, queue: int) -> Event:
        self._work("copy", max(8 * source.shape[0] / self.gb_s, 1e3))
        target.become(source.tolist, source.at)
        return Done()

    def _read(self, source: Values) -> Values:
        self._work("read", 4 * source.shape[0] / self.gb_s)
        return given([source.at((0,))])

    def _triad(self, b: Values, c: Values, scale: float, out: Values) -> None:
        self._work("triad", 12 * b.shape[0] / self.gb_s)
        at_b, at_c = b.at, c.at
        out.become(list, lambda place: at_b(place) + scale * at_c(place))

    def _fence(self, scope: FenceScope) -> None: ...

    def _synchronize(self) -> None: ...

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        start = self._now
        for call in calls:
            call()
        self.batches += 1
        seconds = (self._now - start) * self.slowness(self.batches)
        self._now = start + seconds
        self._used += 2 * self.busy * seconds
        return seconds

    def _clock(self) -> float:
        return self._now

    def _processor_s(self) -> float:
        """Both threads work for a share `busy` of a batch."""
        return self._used

    def _at(self, tensor: Values, places: Sequence[Sequence[int]]) -> list[Any]:
        return [tensor.at(place) for place in places]

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
        self._now += 1e-6
        return Values((nbytes,), lambda: [0] * nbytes)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> Values:
        return self._allocate(nbytes, alignment)

    def _from_host(self, values: Sequence[Any], dtype: str) -> Values:
        return given(values)

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Values:
        self.before(f"random {dtype} {' '.join(map(str, shape))}")

        def at(place: Sequence[int]) -> Any:
            block = min(shape[0], 1 if len(shape) > 1 else 1024)
            first, index = divmod(place[0], block)
            return reduce(getitem, (index, *place[1:]), drawn((block, *shape[1:]), dtype, seed, first))

        return Values(shape, lambda: [at((place,)) for place in range(shape[0])], at)

    def _prepare_linear(self, weight: Values, bias: Values | None, dtype: str, implementation: str) -> Linear[Values]:
        rate = self.linears[dtype, implementation]
        error = self.wrong.get((dtype, implementation), 0.0)

        def linear(x: Values) -> Values:
            (m, k), n = x.shape, weight.shape[0]
            self._work(f"{dtype} {implementation} {m}", 2.0 * m * k * n / rate)

            def at(place: Sequence[int]) -> Any:
                row, columns = x.at(place[:1]), [place[1]] if len(place) > 1 else [*range(n)]
                sums = [reference.dot(row, weight.at((j,))) + (bias.at((j,)) if bias else 0) + error for j in columns]
                return sums[0] if len(place) > 1 else sums

            return Values((m, n), lambda: [at((row,)) for row in range(m)], at)

        return linear

    def _rope(self, heads: Values, cosines: Values, sines: Values, implementation: str | None) -> Values:
        name = implementation or "slow"
        self._work(f"rope {name}", self.ropes[name])
        error = self.wrong.get(("rope", name), 0.0)
        shape = heads.shape

        def at(place: Sequence[int]) -> Any:
            token = place[:1]
            flat = plus(reference.rope([heads.at(token)], [cosines.at(token)], [sines.at(token)]), error)
            rows = [flat[i : i + shape[2]] for i in range(0, len(flat), shape[2])]
            return reduce(getitem, place[1:], rows)

        return Values(shape, lambda: [at((token,)) for token in range(shape[0])], at)

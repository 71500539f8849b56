"""Memory bandwidth: read, copy and triad over arrays that no cache holds, a copy past the caches, a read in them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.doubt import doubt_of_operands
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability

CREDITED = {"read": 1, "copy": 2, "triad": 3, "streaming_copy": 2, "cached_read": 1}
"""Kind of access to how many times the bytes of an array count; what a store reads before it writes does not."""

_KERNELS = {"streaming_copy": "stream", "cached_read": "read"}
_FP32_BYTES = 4
_SCALE = 0.42
_CACHED = 4
_SHARED = "other virtual machines share this memory and its caches, and what they take of its rate is not seen"
_SHARED_NOISY_PCT = 2.5  # from one process to the next such memory drifts by about twice what its rounds show


def memory_cases(adapter: HardwareAdapter[Any], plan: BenchPlan) -> list[Case]:
    """Accesses to three fp32 arrays, which take turns where one access does not touch them all."""

    @cache
    def arrays(elements: int) -> tuple[Any, Any, Any, str | None]:
        a, b, c = (adapter.random((elements,), "fp32", seed) for seed in range(3))
        return a, b, c, doubt_of_operands(adapter, a, b, c)

    def prepare(kind: str, divisor: int) -> Work | Reading:
        if kind == "cached_read":
            return _cached_read(adapter, plan)
        elements = plan.array_bytes // _FP32_BYTES // divisor
        a, b, c, doubt = arrays(elements)
        if kind == "streaming_copy":
            a = adapter.random((elements,), "fp32", 3)  # what was copied before may hold the same everywhere
            if not adapter.stream(b, a):
                return absent("unsupported", "no store that bypasses the caches is known here")
        if kind != "read":
            _require_work(adapter, kind, a, b, c)
        turns = ((a, b, c), (b, c, a), (c, a, b))[: 1 if kind == "triad" else 3]
        size = elements * _FP32_BYTES
        is_cold = plan.cache_known and size >= 4 * plan.cache_bytes
        work = _work(adapter, kind, [_call(adapter, kind, *turn) for turn in turns], size, doubt, is_cold=is_cold)
        return replace(work, verify=partial(_require_work, adapter, kind, a, b, c))

    return [
        Case(
            key=(kind, 0),
            title=f"memory {kind.replace('_', ' ')}",
            unit="GB/s",
            prepare=partial(prepare, kind),
            expected=plan.expectations.bandwidth(kind),
        )
        for kind in CREDITED
    ]


def _require_work(adapter: HardwareAdapter[Any], kind: str, a: Any, b: Any, c: Any) -> str | None:
    """Makes one access and compares a few values; what reading gives must follow what is read.

    Returns:
        What stays doubtful.

    Raises:
        ArithmeticError: the target holds something else.
    """
    if kind == "read":
        return spot.require_read(adapter, b)
    if kind == "triad":
        adapter.triad(b, c, -_SCALE, a)
        adapter.synchronize()
        spot.require_triad(adapter, b, c, -_SCALE, a)
    else:
        _call(adapter, kind, a, b, c)()
        adapter.synchronize()
        spot.require_same(adapter, b, a)
    return None


def _call(adapter: HardwareAdapter[Any], kind: str, a: Any, b: Any, c: Any) -> Callable[[], object]:
    match kind:
        case "read":
            return partial(adapter.read, b)
        case "copy":
            return partial(adapter.copy, b, a)
        case "triad":
            return partial(adapter.triad, b, c, _SCALE, a)
        case _:
            return partial(adapter.stream, b, a)


def _cached_read(adapter: HardwareAdapter[Any], plan: BenchPlan) -> Work | Reading:
    """Reads one array again and again that fills a quarter of the last-level cache; calls count too."""
    if not plan.cache_known:
        return absent("skipped", "no source gives the size of the last-level cache")
    elements = plan.cache_bytes // _CACHED // _FP32_BYTES
    array = adapter.random((elements,), "fp32", 0)
    doubt, size = doubt_of_operands(adapter, array), elements * _FP32_BYTES
    work = _work(adapter, "cached_read", [partial(adapter.read, array)], size, doubt, is_cold=True)
    return replace(work, verify=partial(spot.require_read, adapter, array))


def _work(
    adapter: HardwareAdapter[Any],
    kind: str,
    calls: list[Callable[[], object]],
    size: int,
    doubt: str | None,
    *,
    is_cold: bool,
) -> Work:
    credited = CREDITED[kind]
    is_shared = bool(adapter.device.details.get("hypervisor"))
    work = Work(
        calls=calls,
        amount=credited * size,
        method=f"{kind} over fp32 arrays of N = {size >> 20} MiB, {credited} x N bytes counted, write-allocate is not",
        implementation=adapter.kernels.get(_KERNELS.get(kind, kind)),
        doubts=(
            *((doubt,) if doubt else ()),
            *(() if is_cold else ("arrays may be partly cached",)),
            *((_SHARED,) if is_shared else ()),
        ),
    )
    return replace(work, noisy_pct=_SHARED_NOISY_PCT) if is_shared else work


class MemorySection(Section):
    """The rates of `/memory`."""

    name = "memory"

    def total(self) -> int:
        """One of each kind."""
        return len(CREDITED)

    def batches(self) -> Iterator[Sequence[Case]]:
        """All at once, and again after everything else that does not heat the device."""
        cases = memory_cases(self.adapter, self.plan)
        yield from (cases, (), ())
        yield [replace(case, again=True) for case in cases]

    def write(self, sheet: Sheet) -> None:
        """Each kind, and the headline: reading on a CPU, triad elsewhere."""
        for kind in CREDITED:
            sheet.put(f"/memory/{kind}_gb_s", *self.readings.get((kind, 0), self.pending))
        headline = "read" if self.adapter.device.kind == "cpu" else "triad"
        sheet.put("/memory/bandwidth_gb_s", *self.readings.get((headline, 0), self.pending))

    def restore(self, partial: Capability) -> None:
        """What has a value."""
        for kind in CREDITED:
            pointer, value = f"/memory/{kind}_gb_s", getattr(partial.memory, f"{kind}_gb_s")
            if value is not None and pointer in partial.measurements:
                self.readings[kind, 0] = Reading(value, partial.measurements[pointer])

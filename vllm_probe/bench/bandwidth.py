"""Device memory bandwidth: read, copy and triad over arrays that no cache holds."""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Case, Reading, Work
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability

KINDS = ("read", "copy", "triad")
_FP32_BYTES = 4
_SCALE = 0.42


def memory_cases(adapter: HardwareAdapter[Any], plan: BenchPlan) -> list[Case]:
    """Read (N bytes credited), copy (2 N) and triad `a = b + s * c` (3 N) over fp32 arrays of N bytes."""

    @cache
    def arrays(elements: int) -> tuple[Any, Any, Any]:
        a, b, c = (adapter.random((elements,), "fp32", seed) for seed in range(3))
        return a, b, c

    def prepare(kind: str, divisor: int) -> Work:
        elements = plan.array_bytes // _FP32_BYTES // divisor
        a, b, c = arrays(elements)
        call, credited = {
            "read": (partial(adapter.read, b), 1),
            "copy": (partial(adapter.copy, b, a), 2),
            "triad": (partial(adapter.triad, b, c, _SCALE, a), 3),
        }[kind]
        size = elements * _FP32_BYTES
        doubts = () if plan.cache_known and size >= 4 * plan.cache_bytes else ("arrays may be partly cached",)
        method = f"{kind} over fp32 arrays of N = {size >> 20} MiB, {credited} x N bytes counted, write-allocate is not"
        return Work(calls=(call,), amount=credited * size, method=method, doubts=doubts)

    return [
        Case(
            key=(kind, 0),
            title=f"memory {kind}",
            unit="GB/s",
            prepare=partial(prepare, kind),
            expected=plan.expectations.bandwidth(kind),
        )
        for kind in KINDS
    ]


class MemorySection(Section):
    """The rates of `/memory`."""

    name = "memory"

    def total(self) -> int:
        """One of each kind."""
        return len(KINDS)

    def batches(self) -> Iterator[Sequence[Case]]:
        """All at once."""
        yield memory_cases(self.adapter, self.plan)

    def write(self, sheet: Sheet) -> None:
        """Each kind, and the headline: reading on a CPU, triad elsewhere."""
        for kind in KINDS:
            sheet.put(f"/memory/{kind}_gb_s", *self.readings.get((kind, 0), self.pending))
        headline = "read" if self.adapter.device.kind == "cpu" else "triad"
        sheet.put("/memory/bandwidth_gb_s", *self.readings.get((headline, 0), self.pending))

    def restore(self, partial: Capability) -> None:
        """What has a value."""
        for kind in KINDS:
            pointer, value = f"/memory/{kind}_gb_s", getattr(partial.memory, f"{kind}_gb_s")
            if value is not None and pointer in partial.measurements:
                self.readings[kind, 0] = Reading(value, partial.measurements[pointer])

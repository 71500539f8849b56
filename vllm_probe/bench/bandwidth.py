"""Device memory bandwidth: read, copy and triad over arrays that no cache holds."""

from functools import cache, partial
from typing import Any

from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.timing import Case, Work
from vllm_probe.core.adapter import HardwareAdapter

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

    return [Case(key=(kind, 0), title=f"memory {kind}", unit="GB/s", prepare=partial(prepare, kind)) for kind in KINDS]

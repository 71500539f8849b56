"""bench's matrix rates beside a plain torch loop over the same operator, shapes and number of weights.

Both take turns, five times; the ratio of their medians must stay within 3 % of 1.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from vllm_probe.bench.gemm import LinearFormat
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe

if TYPE_CHECKING:
    from vllm_probe.bench.contest import Decided

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}
ROWS = (128, 512, 1024)
TURNS = 5
SECONDS = 0.3


def operators(implementation: str, weights: list[torch.Tensor]) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    if implementation == "int_mm":
        return [partial(matmul_int8, weight.t().contiguous()) for weight in weights]
    if implementation == "onednn_prepacked":
        pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001 the operators themselves are the peer
        return [partial(matmul_packed, pack(weight)) for weight in weights]
    return [partial(matmul, weight) for weight in weights]


def matmul_int8(columns: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(x, columns)  # noqa: SLF001


def matmul_packed(packed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")  # noqa: SLF001


def matmul(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, weight)


def random(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.int8:
        return torch.randint(-128, 128, (rows, columns), dtype=dtype)
    return torch.randn(rows, columns).to(dtype)


def loop_gflops(linears: list[Callable[[torch.Tensor], torch.Tensor]], x: torch.Tensor, flop: float) -> float:
    for linear in linears:
        linear(x)
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        linears[calls % len(linears)](x)
        calls += 1
    return flop * calls / (time.perf_counter() - begin) / 1e9


def main() -> None:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    plan = replace(make_plan(adapter.device, quick=False, only=frozenset()), soft_s=3600.0, hard_s=3600.0)
    print("format implementation     rows  torch loop  bench  ratio   (GFLOP/s)")
    for dtype, torch_dtype in DTYPES.items():
        choices: dict[str, Decided] = {}
        form = LinearFormat(adapter, plan, dtype, choices)
        sets = len(form.prepare(ROWS[0], 1).calls)
        name = choices[dtype].choice.implementation
        linears = operators(name, [random(plan.width, plan.depth, torch_dtype) for _ in range(sets)])
        for rows in ROWS:
            x, flop = random(rows, plan.depth, torch_dtype), 2.0 * rows * plan.depth * plan.width
            pairs = []
            for _ in range(TURNS):
                direct = loop_gflops(linears, x, flop)
                ((_, reading),) = Stopwatch(adapter, plan).run([form.case(rows)], lambda _: None)
                pairs.append((direct, reading.value))
            direct, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(f"{dtype:6} {name:18} {rows:4} {direct:11.1f} {ours:6.1f}  {ours / direct:.3f}", flush=True)


if __name__ == "__main__":
    main()

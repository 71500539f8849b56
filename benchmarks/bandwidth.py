"""bench's memory rates beside a plain torch loop, and likwid-bench's plain and non-temporal kernels where installed.

The torch loop and bench take turns, five times; the ratio of their medians must stay within 5 % of 1. likwid-bench
shows what other stores reach: torch decides itself whether it stores past the caches.
"""

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from vllm_probe.bench.bandwidth import memory_cases
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe

ARRAYS = {"read": 1, "copy": 2, "triad": 3}
KERNELS = {"read": ("load",), "copy": ("copy", "copy_mem"), "triad": ("stream", "stream_mem")}
TURNS = 5
SECONDS = 0.4


def loop_gb_s(call: Callable[[], object], credited: int) -> float:
    call()
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        call()
        calls += 1
    return credited * calls / (time.perf_counter() - begin) / 1e9


def likwid_gb_s(kernel: str, nbytes: int, threads: int) -> float | None:
    argv = ["likwid-bench", "-t", kernel, "-w", f"N:{nbytes // 1000}kB:{threads}"]
    found = re.search(r"MByte/s:\s+([0-9.]+)", subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    return float(found[1]) / 1000 if found else None


def main() -> None:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    plan = replace(make_plan(adapter.device, quick=False, only=frozenset()), soft_s=3600.0, hard_s=3600.0)
    a, b, c = (torch.randn(plan.array_bytes // 4) for _ in range(3))
    calls = {"read": b.sum, "copy": lambda: a.copy_(b), "triad": lambda: torch.add(b, c, alpha=0.42, out=a)}
    width = "_avx512" if "avx512" in adapter.device.details["isa"] else "_avx"
    print("kind   torch loop  bench  ratio   (GB/s)")
    for case in memory_cases(adapter, plan):
        kind, pairs = case.key[0], []
        for _ in range(TURNS):
            direct = loop_gb_s(calls[kind], ARRAYS[kind] * plan.array_bytes)
            ((_, reading),) = Stopwatch(adapter, plan).run([case], lambda _: None)
            pairs.append((direct, reading.value))
        direct, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
        peers = ""
        if shutil.which("likwid-bench"):
            nbytes, threads = ARRAYS[kind] * plan.array_bytes, adapter.device.details["threads"]
            rates = {kernel: likwid_gb_s(kernel + width, nbytes, threads) for kernel in KERNELS[kind]}
            peers = "   " + "  ".join(f"{kernel}{width} {rate or 0:.1f}" for kernel, rate in rates.items())
        print(f"{kind:6} {direct:10.1f} {ours:6.1f}  {ours / direct:.3f}{peers}", flush=True)


if __name__ == "__main__":
    main()

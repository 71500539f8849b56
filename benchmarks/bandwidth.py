"""bench's memory rates beside a plain torch loop and likwid-bench's kernel of the same kind, where that is installed.

All take turns, nine times; the median of the ratios within a turn must stay within 5 % of 1, because the bandwidth of a
machine that others share drifts from turn to turn. A kind is what happens to the caches: torch stores through them,
`movntps` and likwid's `_mem` kernels past them.
"""

import math
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from vllm_probe.bench.bandwidth import CREDITED, memory_cases
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe

KERNELS = {"read": "load", "copy": "copy", "triad": "stream", "streaming_copy": "copy_mem"}
TURNS = 9
SECONDS = 0.25


def loop_gb_s(calls: list[Callable[[], object]], nbytes: int) -> float:
    seconds: list[float] = []
    while math.fsum(seconds) < SECONDS:
        begin = time.perf_counter()
        calls[len(seconds) % len(calls)]()
        seconds.append(time.perf_counter() - begin)
    return nbytes / statistics.median(seconds) / 1e9


def likwid_gb_s(kernel: str, nbytes: int, threads: int) -> float:
    """Over a working set of `nbytes` in all."""
    argv = ["likwid-bench", "-t", kernel, "-w", f"N:{nbytes // 1000}kB:{threads}", "-i", "30"]
    found = re.search(r"MByte/s:\s+([0-9.]+)", subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    return float(found[1]) / 1000 if found else 0.0


def paired(ours: list[float], theirs: list[float]) -> float:
    """Median of the ratios of turns."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True) if other)


def main() -> None:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    plan = replace(make_plan(adapter.device, quick=False, only=frozenset()), soft_s=3600.0, hard_s=3600.0)
    a, b, c = (torch.randn(plan.array_bytes // 4) for _ in range(3))
    loops: dict[str, list[Callable[[], object]]] = {
        "read": [a.sum, b.sum, c.sum],
        "copy": [lambda: a.copy_(b), lambda: b.copy_(c), lambda: c.copy_(a)],
        "triad": [lambda: torch.add(b, c, alpha=0.42, out=a)],
    }
    width, threads = (
        "_avx512" if "avx512" in adapter.device.details["isa"] else "_avx",
        adapter.device.details["threads"],
    )
    print("kind             bench  torch loop  ratio  likwid-bench          ratio   (GB/s)")
    for case in memory_cases(adapter, plan):
        kind = case.key[0]
        nbytes = CREDITED[kind] * plan.array_bytes
        ours: list[float] = []
        direct: list[float] = []
        peer: list[float] = []
        for _ in range(TURNS):
            ((_, reading),) = Stopwatch(adapter, plan).run([case], lambda _: None)
            ours.append(reading.value or 0.0)
            direct += [loop_gb_s(loops[kind], nbytes)] if kind in loops else []
            if kind in KERNELS and shutil.which("likwid-bench"):
                peer.append(likwid_gb_s(KERNELS[kind] + width, 3 * plan.array_bytes, threads))
        value = statistics.median(ours)
        line = f"{kind:15} {value:6.1f}"
        line += f"  {statistics.median(direct):10.1f}  {paired(ours, direct):.3f}" if direct else " " * 19
        if peer:
            line += f"  {KERNELS[kind] + width:15} {statistics.median(peer):5.1f}  {paired(ours, peer):.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""What the mapper chose beside every other implementation of rope, RMS norm, attention and linear, in bf16 on the CPU.

`vllm-probe bench --only gemm,primitives` chooses, compiled implementations among the candidates; then all of them take
turns here, at other sizes than those of bench too. The choice must be at least as fast as each of the others within
10 %, the noise of this machine, and rope at least twice as fast as `naive`, which is how transformers writes it.
    python benchmarks/mapper.py [TURNS]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from vllm_probe.core.primitive import Primitive
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe

DTYPE = "bf16"
HEADS, KV_HEADS, HEAD_DIM, WIDTH = 16, 8, 128, 1024
TOKENS = (1024, 4096)
NOISE, ROPE_BAR = 1.10, 2.0


def adapter(folder: Path) -> CpuAdapter:
    host = LocalHost()
    made = CpuAdapter(host)
    made.set_device(probe(host).devices[0])
    made.open()
    made.compile_folder = folder
    return made


def work(cpu: CpuAdapter, tokens: int) -> Iterator[tuple[Primitive, Callable[[str], Callable[[], object]]]]:
    """A primitive and what makes a call of one of its implementations."""

    def random(*shape: int, seed: int = 0) -> object:
        return cpu.random(shape, DTYPE, seed)

    heads, angles = random(tokens, HEADS + KV_HEADS, HEAD_DIM), random(tokens, HEAD_DIM // 2, seed=1)
    yield Primitive.ROPE, lambda name: partial(cpu.rope, heads, angles, angles, implementation=name)
    rows, scale = random(tokens, WIDTH), random(WIDTH, seed=1)
    yield Primitive.RMS_NORM, lambda name: partial(cpu.rms_norm, rows, scale, 1e-6, implementation=name)
    query, key = random(tokens, HEADS, HEAD_DIM), random(tokens, KV_HEADS, HEAD_DIM, seed=1)
    lengths = [128] * (tokens // 128)
    attend = partial(cpu.attention, query, key, key, lengths, causal=True)
    yield Primitive.ATTENTION, lambda name: partial(attend, implementation=name)
    weight = random(4 * WIDTH, WIDTH, seed=2)
    yield Primitive.LINEAR, lambda name: partial(cpu.prepare_linear(weight, None, DTYPE, name), rows)


def seconds(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median of each, all taking turns of four calls."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(4):
                call()
            if turn >= 2:
                times[name].append((time.perf_counter() - begin) / 4)
    return {name: statistics.median(each) for name, each in times.items()}


def choices(home: Path) -> dict[str, str]:
    """What bench writes down as the winners."""
    file = home / "capability.json"
    command = [sys.executable, "-m", "vllm_probe", "bench", "--only", "gemm,primitives", "--emit", str(file)]
    subprocess.run(command, check=True, env=os.environ | {"HOME": str(home)}, stdout=subprocess.DEVNULL)
    won = json.loads(file.read_text())["primitives"]
    return {name: by_format[DTYPE]["implementation"] for name, by_format in won.items() if DTYPE in by_format}


def main() -> int:
    turns, failed = int(sys.argv[1]) if len(sys.argv) > 1 else 15, False
    with tempfile.TemporaryDirectory() as home:
        won = choices(Path(home))
        cpu = adapter(Path(home) / "compiled")
        for tokens in TOKENS:
            for primitive, make in work(cpu, tokens):
                calls = {name: make(name) for name in cpu.implementations(primitive, DTYPE)}
                for call in calls.values():
                    call()
                assert cpu.settle(120)
                times = seconds(calls, turns)
                own = times[won[primitive]]
                behind = own / min(times.values())
                shown = ", ".join(f"{name} {1e3 * each:.3f}" for name, each in times.items())
                print(f"{tokens} tokens {primitive}: {won[primitive]} chosen, {behind:.2f} of the best; ms: {shown}")
                failed |= behind > NOISE
                if primitive is Primitive.ROPE:
                    print(f"{tokens} tokens rope: {times['naive'] / own:.2f} times as fast as naive")
                    failed |= times["naive"] / own < ROPE_BAR
        cpu.close()
    print(f"load {os.getloadavg()[0]:.1f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

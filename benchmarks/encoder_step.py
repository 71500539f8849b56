"""Where a step of a small encoder goes, beside the matrix product that bench measures: for laws/bundled.json.

The whole engine, then the operators of one layer of all-MiniLM-L6-v2 in turns, 256 tokens in bf16; each line is the
best and the 5th percentile. Two Zen 4 cores, other processes beside it: linears 1072 us (845 GFLOP/s, where
[256, 1024] x [1024, 4096] has 955), attention 540 us (93 GFLOP/s, fp32 linears have 213), norms, sums and gelu 160 us.
    python benchmarks/encoder_step.py [SECONDS]
"""

import sys
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from vllm_probe import api
from vllm_probe.host.local import LocalHost

TOKENS, HIDDEN, INNER, HEADS, COPIES = 256, 384, 1536, 12, 8


def linear(k: int, n: int) -> Callable[[], object]:
    """Products with weights that take turns, as the layers of a model do."""
    rows = torch.randn(TOKENS, k).bfloat16()
    onednn = torch.ops.mkldnn
    reorder, product = onednn._reorder_linear_weight, onednn._linear_pointwise  # noqa: SLF001 - as the CPU adapter
    weights = [reorder(torch.randn(n, k).bfloat16(), TOKENS) for _ in range(COPIES)]
    turn = iter(range(1 << 60))
    return lambda: product(rows, weights[next(turn) % COPIES], None, "none", [], "")


def operators() -> dict[str, Callable[[], object]]:
    """The operators of one layer by name."""
    states, inner = torch.randn(TOKENS, HIDDEN).bfloat16(), torch.randn(TOKENS, INNER).bfloat16()
    weight, heads = torch.ones(HIDDEN).bfloat16(), torch.randn(2, HEADS, TOKENS // 2, HIDDEN // HEADS).bfloat16()
    shapes = ((HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN), (1024, 4096))
    return {
        **{f"linear {k}x{n}": linear(k, n) for k, n in shapes},
        "attention 2x128": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        "norm": lambda: functional.layer_norm(states, (HIDDEN,), weight, weight),
        "gelu": lambda: functional.gelu(inner),
        "sum": lambda: states.add(states),
    }


def report(calls: dict[str, Callable[[], object]], seconds: float) -> None:
    """Lets `calls` take turns and prints a line for each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    with torch.inference_mode():
        while time.perf_counter() < end:
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - begin)
    for name, taken in times.items():
        taken.sort()
        print(f"{name:18} best {taken[0] * 1e6:7.0f} us, 5 % {taken[len(taken) // 20] * 1e6:7.0f} us of {len(taken)}")


def main() -> int:
    """The engine first: threads of the operators' pool would spin beside its own."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    config = api.negotiate(
        "all-MiniLM-L6-v2", LocalHost(), pins={"dtype": "bfloat16", "max_num_batched_tokens": TOKENS}
    )
    engine, ids = api.load_runtime(config), torch.randint(1000, 30_000, (2, TOKENS // 2)).tolist()
    report({"engine 2x128": lambda: engine.embed(ids)}, seconds / 2)
    engine.close()
    report(operators(), seconds / 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())

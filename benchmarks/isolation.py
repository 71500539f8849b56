"""What inputs take among others beside what they take alone: nothing may take more than three times as long.

A random Qwen3 of 4 layers, hidden 256 and 512 positions, prompts over 128 tokens in chunks. The cases take turns, each
alone and then among others; a ratio is that of the medians. What arrives while another prompt runs is held against its
own time and that of what must run before it: one chunk for a short prompt, the short ones for a long prompt.
    python benchmarks/isolation.py [TURNS]
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vllm_probe import api
from vllm_probe.host.local import LocalHost
from vllm_probe.runtime.engine import Engine

MAX_LEN, CHUNK, BAR = 512, 128, 3.0
SHAPE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}
SHAPE |= {"head_dim": 64, "intermediate_size": 512, "vocab_size": 151669, "max_position_embeddings": MAX_LEN}
FIXED = {"architectures": ["Qwen3Model"], "model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6}
Inputs = list[list[int]]


def load() -> Engine:
    """The model with random weights."""
    with tempfile.TemporaryDirectory() as work:
        files = {
            "config.json": {**SHAPE, **FIXED, "rope_theta": 1e6, "dtype": "bfloat16", "tie_word_embeddings": True},
            "modules.json": [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
            "1_Pooling/config.json": {"pooling_mode_lasttoken": True},
        }
        (Path(work) / "1_Pooling").mkdir()
        for name, content in files.items():
            (Path(work) / name).write_text(json.dumps(content))
        pins = {"max_num_batched_tokens": 2048, "max_num_seqs": 64}
        config = api.negotiate(work, LocalHost(), engine="bundled", pins=pins)
        return api.load_runtime(replace(config, prefill_chunk_size=CHUNK), load_format="dummy")


def ids(*lengths: int) -> Inputs:
    """Random token ids, a list for each length."""
    return [random.Random(length).choices(range(150_000), k=length) for length in lengths]


def seconds(engine: Engine, *requests: Inputs, last: int = -1) -> float:
    """From the first submission until request `last` of `requests`, sent at once, is answered."""
    begin = time.perf_counter()
    futures = [engine.submit(engine.prepare(inputs, truncate_prompt_tokens=-1)) for inputs in requests]
    futures[last].result()
    taken = time.perf_counter() - begin
    for future in futures:
        future.result()
    return taken


def cases(engine: Engine) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """Name to what takes the time alone and what takes it among others."""
    long, short, shorts = ids(MAX_LEN), ids(3), ids(*range(2, 34))
    mixed, equal, many = ids(1, MAX_LEN, 3, MAX_LEN - 1, 40), ids(*[100] * 8), ids(*[2, 3, 4, 5] * 500)

    def alone(*parts: Inputs) -> Callable[[], float]:
        return lambda: sum(seconds(engine, part) for part in parts)

    def after_long(inputs: Inputs) -> float:
        seconds(engine, long)
        return seconds(engine, inputs)

    found = {
        f"{length} tokens after {MAX_LEN}": (alone(ids(length)), lambda length=length: after_long(ids(length)))
        for length in (1, MAX_LEN - 1, MAX_LEN, MAX_LEN + 1)
    }
    return found | {
        "short while a long one runs": (alone(short, ids(CHUNK)), lambda: seconds(engine, long, short)),
        "long beside 32 short ones": (alone(long, shorts), lambda: seconds(engine, long, shorts, last=0)),
        "unequal batch": (alone(*([item] for item in mixed)), lambda: seconds(engine, mixed)),
        "equal batch": (alone(*([item] for item in equal)), lambda: seconds(engine, equal)),
        "6,000 inputs in three requests": (alone(many, many, many), lambda: seconds(engine, many, many, many)),
    }


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    engine = load()
    try:
        listed = cases(engine)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in listed}
        for turn in range(turns + 1):
            for name, (alone, among) in listed.items():
                pair = alone(), among()
                if turn:
                    taken[name].append(pair)
    finally:
        engine.close()
    worst = 0.0
    for name, times in taken.items():
        alone_s, among_s = (statistics.median(pair[side] for pair in times) for side in (0, 1))
        worst = max(worst, among_s / alone_s)
        print(
            f"{name:32} alone {alone_s * 1e3:8.1f} ms, among others {among_s * 1e3:8.1f} ms: {among_s / alone_s:.2f}x"
        )
    print(f"largest ratio {worst:.2f}, at most {BAR:g} (load {os.getloadavg()[0]:.1f})")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())

"""The MiniLM server over HTTP beside sentence-transformers in bf16, 32 texts of 128 tokens.

Both take turns; the ratio of their median rates must be at least 1. The server is `vllm-probe serve` with the config
that was negotiated for this machine, asked by the official client in its default encoding.
    python benchmarks/embed_minilm.py [TURNS]
"""

import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import torch
from sentence_transformers import SentenceTransformer

from vllm_probe.host.local import LocalHost
from vllm_probe.models.resolve import resolve_model

MODEL = "all-MiniLM-L6-v2"
WORDS = ("the", "river", "is", "cold", "and", "a", "bank", "keeps", "money", "while", "rain", "falls", "on", "stone")
NUM_TEXTS, NUM_TOKENS = 32, 128


@contextlib.contextmanager
def server(folder: Path, model: str = MODEL, *options: str) -> Iterator[str]:
    """Negotiates, serves with `options`, and gives the base URL."""
    command = [sys.executable, "-m", "vllm_probe"]
    negotiate = [*command, "negotiate", "--model", model, "--dtype", "bfloat16"]
    subprocess.run(negotiate, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    argv = [*command, "serve", "--port", "0", *options]
    with subprocess.Popen(argv, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"http://[\d.:]+", line):
                    yield found[0]
                    break
        finally:
            process.terminate()


def median_seconds(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median time of each call, all taking turns after two turns of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begin)
    for name, values in seconds.items():
        spread = (max(values) - min(values)) / statistics.median(values)
        print(f"{name}: median {statistics.median(values) * 1e3:.1f} ms, spread {spread:.0%}")
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    folder = resolve_model(MODEL, LocalHost(), for_serving=True).weights_path
    peer = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    pick = random.Random(0)
    texts = [" ".join(pick.choices(WORDS, k=NUM_TOKENS - 2)) for _ in range(NUM_TEXTS)]
    assert {len(peer.tokenizer(text)["input_ids"]) for text in texts} == {NUM_TOKENS}
    with tempfile.TemporaryDirectory() as work, server(Path(work)) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")

        def ask() -> torch.Tensor:
            answer = client.embeddings.create(model=MODEL, input=texts)
            return torch.tensor([item.embedding for item in answer.data])

        wanted = torch.tensor(peer.encode(texts).tolist())
        assert torch.nn.functional.cosine_similarity(ask(), wanted).min() > 0.99, "not the same vectors"
        calls = {"sentence-transformers bf16": lambda: peer.encode(texts), "vllm-probe over HTTP": ask}
        peer_s, own_s = median_seconds(calls, turns).values()
    rate = NUM_TEXTS * NUM_TOKENS / own_s
    print(f"{rate:.0f} tokens/s, {peer_s / own_s:.2f}x sentence-transformers (load {os.getloadavg()[0]:.1f})")
    return 0 if peer_s / own_s >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())

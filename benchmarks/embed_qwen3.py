"""The bundled engine beside transformers on the shape of Qwen3-Embedding-0.6B in bf16, with random weights.

Both compute the same weights and take turns: 32 prompts of 128 tokens, then 8 of 512. transformers runs its model with
SDPA, in batches without padding, in a process of its own, because each thread that computes has a pool of OpenMP
threads and two pools in one process slow each other. Each ratio of the median rates must be at least 1; that of the
best turns stands beside it, which other work on the machine disturbs less.
    python benchmarks/embed_qwen3.py [TURNS]
"""

import multiprocessing
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import torch

from vllm_probe import api
from vllm_probe.host.local import LocalHost
from vllm_probe.models.catalogue import load
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.modeling.weights import DummyWeights

MODEL = "Qwen3-Embedding-0.6B"
SHAPES = ((32, 128), (8, 512))
_peer: torch.nn.Module


def make_peer(threads: int) -> None:
    """Loads transformers' Qwen3Model with the engine's dummy weights into this process."""
    import transformers

    global _peer  # noqa: PLW0603 - what a worker of a process pool keeps
    spec = load(MODEL)
    config = transformers.Qwen3Config(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_model_len,
        rope_theta=spec.rope_theta,
        rms_norm_eps=spec.norm_eps,
        dtype="bfloat16",
    )
    torch.set_num_threads(threads)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, attn_implementation="sdpa")
    _peer = model.to_empty(device="cpu").eval()
    _peer.rotary_emb = type(_peer.rotary_emb)(config)
    weights = DummyWeights(spec)
    with torch.no_grad():
        for name, parameter in _peer.named_parameters():
            parameter.copy_(weights.tensor(name, *parameter.shape))


def ask_peer(ids: list[list[int]]) -> tuple[float, list[list[float]]]:
    """Seconds and unit vectors of `ids`."""
    begin = time.perf_counter()
    with torch.inference_mode():
        states = _peer(input_ids=torch.tensor(ids), use_cache=False).last_hidden_state[:, -1]
        vectors = torch.nn.functional.normalize(states.float())
    return time.perf_counter() - begin, vectors.tolist()


def ask_engine(engine: Engine, ids: list[list[int]]) -> tuple[float, list[list[float]]]:
    """As `ask_peer`."""
    begin = time.perf_counter()
    vectors = engine.embed(ids).vectors
    return time.perf_counter() - begin, vectors.tolist()


def compare(peer: ProcessPoolExecutor, engine: Engine, count: int, length: int, turns: int) -> float:
    """The engine's median rate over the peer's, after one turn of warm-up."""
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(0, 150_000, (count, length), generator=generator).tolist()
    theirs, ours = [], []
    for turn in range(turns + 1):
        their_s, wanted = peer.submit(ask_peer, ids).result()
        our_s, found = ask_engine(engine, ids)
        cosines = torch.nn.functional.cosine_similarity(torch.tensor(found), torch.tensor(wanted))
        assert cosines.min() > 0.9995, "not the same vectors"
        if turn:
            theirs.append(their_s)
            ours.append(our_s)
    ratio = statistics.median(theirs) / statistics.median(ours)
    num_tokens, load_1 = count * length, os.getloadavg()[0]
    print(
        f"{count}x{length}: engine {num_tokens / statistics.median(ours):.0f} tokens/s, transformers bf16 SDPA"
        f" {num_tokens / statistics.median(theirs):.0f}: {ratio:.2f}x; best turns {num_tokens / min(ours):.0f} and"
        f" {num_tokens / min(theirs):.0f}: {min(theirs) / min(ours):.2f}x (load {load_1:.1f})",
        flush=True,
    )
    return ratio


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    pins = {"dtype": "bfloat16", "max_model_len": 512}
    config = api.negotiate(MODEL, LocalHost(), engine="bundled", pins=pins)
    engine = api.load_runtime(config, load_format="dummy")
    threads, context = config.threads or torch.get_num_threads(), multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, context, initializer=make_peer, initargs=(threads,)) as peer:
            ratios = [compare(peer, engine, count, length, turns) for count, length in SHAPES]
    finally:
        engine.close()
    return 0 if min(ratios) >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())

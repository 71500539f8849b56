"""The bundled engine beside transformers on the shape of Qwen3-Embedding-0.6B in bf16, with random weights.

Both compute the same weights and take turns: 32 prompts of 128 tokens, then 8 of 512. transformers runs its model with
SDPA, in batches without padding. Each ratio of the median rates must be at least 1.
    python benchmarks/embed_qwen3.py [TURNS]
"""

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import transformers

from vllm_probe import api
from vllm_probe.host.local import LocalHost
from vllm_probe.models.catalogue import load
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.modeling.weights import DummyWeights

MODEL = "Qwen3-Embedding-0.6B"
SHAPES = ((32, 128), (8, 512))


def make_peer() -> torch.nn.Module:
    """Transformers' Qwen3Model with the engine's dummy weights."""
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
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, attn_implementation="sdpa")
    model = model.to_empty(device="cpu").eval()
    model.rotary_emb = type(model.rotary_emb)(config)
    weights = DummyWeights(spec)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.tensor(name, *parameter.shape))
    return model


def make_engine() -> Engine:
    """The engine with the config that is negotiated for this machine."""
    config = api.negotiate(MODEL, LocalHost(), engine="bundled", pins={"dtype": "bfloat16", "max_model_len": 512})
    return api.load_runtime(config, load_format="dummy")


def median_rates(calls: dict[str, Callable[[], object]], num_tokens: int, turns: int) -> dict[str, float]:
    """Median tokens/s of each call, all taking turns after one turn of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    return {name: num_tokens / statistics.median(values) for name, values in seconds.items()}


def compare(peer: torch.nn.Module, engine: Engine, count: int, length: int, turns: int) -> float:
    """The engine's rate over the peer's."""
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(0, 150_000, (count, length), generator=generator)
    listed = ids.tolist()

    def theirs() -> torch.Tensor:
        with torch.inference_mode():
            states = peer(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
        return torch.nn.functional.normalize(states.float())

    def ours() -> torch.Tensor:
        return engine.embed(listed).vectors

    assert (theirs() * ours()).sum(1).min() > 0.9995, "not the same vectors"
    peer_rate, own_rate = median_rates({"transformers": theirs, "engine": ours}, count * length, turns).values()
    load_1 = os.getloadavg()[0]
    print(
        f"{count}x{length}: engine {own_rate:.0f} tokens/s, transformers bf16 SDPA {peer_rate:.0f}, "
        f"{own_rate / peer_rate:.2f}x (load {load_1:.1f})"
    )
    return own_rate / peer_rate


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    peer, engine = make_peer(), make_engine()
    try:
        ratios = [compare(peer, engine, count, length, turns) for count, length in SHAPES]
    finally:
        engine.close()
    return 0 if min(ratios) >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Golden decisions: the models and devices that people ask about first, each reviewed for sense.

`pytest tests/unit/negotiate/test_golden.py --snapshot-update` writes them anew; read the difference before keeping it.
"""

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.negotiate.cases import ARC, ASCEND, GIB, RTX, config, decision, descriptor
from vllm_probe.core.capability import Capability
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.units import format_bytes, format_rounded
from vllm_probe.core.values import Engine
from vllm_probe.models import catalogue
from vllm_probe.vendors.descriptors import load_capability

CAPABILITIES = Path(__file__).resolve().parents[3] / "capabilities"
MODELS = ("Qwen3-Embedding-0.6B", "Qwen3-8B", "Qwen3-32B", "GLM-4.5-Air", "GLM-5.3", "DeepSeek-R1-Distill-Qwen-7B")
DOCUMENTS = {"ascend-version-1": ASCEND, "arc-version-1": ARC, "rtx-4060-laptop-version-1": RTX}
DEVICES = ("rtx-4060-laptop", "rx-7900-xtx", "arc-a770-16gb", "h100-sxm-80gb", "mi300x", "gb10", "cpu-zen5-2core")


def capability(device: str) -> Capability:
    if device in DOCUMENTS:
        return descriptor(DOCUMENTS[device])
    return load_capability(CAPABILITIES / f"{device}.capability.json")


def lines(found: RuntimeConfig) -> list[str]:
    """The decided values and the first reason of a refusal or choice."""
    budget, speed = found.budget, found.predicted.tokens_per_s.value
    ranks = f"{found.tensor_parallel_size}x{found.pipeline_parallel_size}"
    shape = f"{found.dtype}/{found.quantization}, kv {found.kv_cache_dtype}, ranks {ranks}"
    steps = f"{found.max_num_seqs} sequences, {found.max_num_batched_tokens} tokens a step, block {found.block_size}"
    sizes = f"weights {format_bytes(budget.weights_bytes)}, kv {format_bytes(budget.kv_cache_bytes)}"
    rate = f"{format_rounded(speed)} tokens/s" if speed else found.predicted.method.partition(" (")[0]
    known = [
        f"{found.engine}: {budget.verdict}, {shape}, context {found.max_model_len}, {steps}",
        f"{sizes} of {format_bytes(budget.requested_bytes)}; {rate}",
        f"because {decision(found, 'quantization').rule}",
    ]
    known += [f"needs {each}" for each in found.requires]
    return known + [f"or {each.change} ({format_bytes(each.requested_bytes)})" for each in found.alternatives[:3]]


def asked(device: str) -> list[tuple[str, Engine]]:
    """Every model with vLLM, and with the bundled runtime what it can run."""
    return [(MODELS[0], "bundled"), *((name, "vllm") for name in MODELS)]


@pytest.mark.parametrize("device", [*DOCUMENTS, *DEVICES])
def test_decisions_are_the_reviewed_ones(device: str, snapshot: SnapshotAssertion) -> None:
    shown = []
    for name, engine in asked(device):
        shown += [
            name,
            *(f"  {line}" for line in lines(config(catalogue.load(name), capability(device), engine=engine))),
        ]
    assert "\n".join(shown) == snapshot


@pytest.mark.parametrize("device", ["rx-7900-xtx", "rtx-4090"])
def test_an_embedding_model_on_a_24_gb_card_takes_what_it_needs_and_not_the_card(device: str) -> None:
    pins: dict[str, Any] = {"max_model_len": 8192, "quantization": "none"}
    found = config(catalogue.load(MODELS[0]), capability(device), engine="vllm", pins=pins)
    assert found.budget.requested_bytes is not None
    assert 2.5 < found.budget.requested_bytes / GIB < 3.5
    assert decision(found, "kv_cache_memory_bytes").passed_on == "--kv-cache-memory-bytes"

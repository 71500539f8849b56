"""A sound device on which values are trusted fully, and what must hold of one that is not."""

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.bench.fake import STAMP
from tests.unit.bench.scripted import play
from vllm_probe.bench.expectations import Expectations
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.progress import silent
from vllm_probe.core.schema import violations
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script

MIB = 1 << 20
SCRIPT = Script(rates_gflops={"bf16": ((1, 200.0),)}, bandwidth_gb_s=100.0, launch_us=0.01)
GEMM, READ, TRIAD = "/compute_units/bf16/throughput_gflops", "/memory/read_gb_s", "/memory/triad_gb_s"
TRUTH = {GEMM: 200.0, READ: 100.0, TRIAD: 100.0}
PARTS = frozenset({"gemm", "memory"})


class Sound(NullAdapter):
    """Draws vectors of different numbers."""

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> NullTensor:
        tensor = super()._random(shape, dtype, seed)
        if len(shape) == 1 and shape[0] <= 1024:
            tensor.value = [random.Random(f"{seed} {i}").gauss(0, 1) for i in range(shape[0])]
        return tensor


def sheet() -> Capability:
    """Peaks of the scripted device at 2 GHz: a quarter and a tenth over what it reaches."""
    about = {"source": "datasheet", "status": "measured", "clock_mhz": 2000.0}
    return codec.from_json(
        Capability,
        {
            "device_type": "null",
            "compute_units": {"bf16": {"throughput_gflops": 250.0}},
            "memory": {"bandwidth_gb_s": 110.0},
            "dma": {},
            "measurements": {GEMM: about},
        },
    )


def started(kind: type[NullAdapter] = Sound, script: Script = SCRIPT, **device: Any) -> NullAdapter:
    return play(script, kind, **({"details": {"caches": {"l2": MIB}}} | device))


def plan_of(adapter: NullAdapter, parts: frozenset[str] = PARTS, **changes: Any) -> BenchPlan:
    known = Expectations(device=adapter.device, datasheet=sheet())
    plan = make_plan(adapter.device, quick=True, only=parts, expectations=known)
    changed: dict[str, Any] = {"rows": (256,), "most_rounds": 4} | changes
    return replace(plan, **changed)


def bench(adapter: NullAdapter, plan: BenchPlan | None = None) -> Capability:
    document = run_bench(adapter, plan or plan_of(adapter), STAMP, save=lambda document: None, progress=silent)
    assert violations("capability", codec.to_json(document)) == ()
    return document


def value_at(document: Capability, pointer: str) -> Any:
    value: Any = codec.to_json(document)
    for key in pointer.split("/")[1:]:
        value = value[key]
    return value


def doubted(document: Capability, *pointers: str) -> list[Measurement]:
    """What stands about the values, none of which is trusted fully and is wrong."""
    for pointer, truth in TRUTH.items():
        if document.measurements[pointer].confidence == "high":
            assert value_at(document, pointer) == pytest.approx(truth, rel=0.03), pointer
    abouts = [document.measurements[pointer] for pointer in pointers]
    assert all(about.confidence != "high" for about in abouts)
    assert all(about.reason for about in abouts)
    return abouts

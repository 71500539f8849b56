"""The whole bench on this machine's CPU, small: what it says, never how fast it is."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp
from vllm_probe.core.primitive import Linear, Primitive
from vllm_probe.core.progress import silent
from vllm_probe.core.schema import violations

torch = pytest.importorskip("torch")

from vllm_probe.host.local import LocalHost  # noqa: E402
from vllm_probe.vendors.cpu.adapter import CpuAdapter  # noqa: E402
from vllm_probe.vendors.cpu.probe import probe  # noqa: E402

STAMP = Stamp(created_at="2026-01-02T03:04:05Z", tool_version="0.1.0", host_fingerprint="sha256:0123456789abcdef")


@pytest.fixture(scope="module")
def adapter() -> Iterator[CpuAdapter]:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    yield adapter
    adapter.close()


def small(adapter: CpuAdapter) -> BenchPlan:
    plan = make_plan(adapter.device, quick=True, only=frozenset())
    return replace(
        plan, rows=(32, 64), point_rows=64, depth=64, width=64, round_s=0.001, batch_s=0.0002, array_bytes=1 << 16
    )


@pytest.fixture(scope="module")
def document(adapter: CpuAdapter) -> Capability:
    return bench(adapter)


def bench(adapter: CpuAdapter) -> Capability:
    return run_bench(adapter, small(adapter), STAMP, save=lambda document: None, progress=silent)


def test_every_format_of_the_adapter_is_measured_and_every_implementation_is_right(
    adapter: CpuAdapter, document: Capability
) -> None:
    assert violations("capability", codec.to_json(document)) == ()
    for dtype in ("fp32", "bf16", "fp16", "int8"):
        rate, names = document.compute_units[dtype].throughput_gflops, adapter.implementations(Primitive.LINEAR, dtype)
        assert (rate is not None) == adapter.supports(Primitive.LINEAR, dtype).ok
        if rate is not None:
            linear = document.primitives["linear"][dtype]
            assert linear["implementation"] in names
            assert "refused" not in linear
    assert document.memory.read_gb_s
    assert document.memory.copy_gb_s
    assert document.memory.triad_gb_s


def test_what_this_device_has_no_linear_for_is_unsupported_with_its_reason(document: Capability) -> None:
    for dtype in ("tf32", "fp8_e4m3", "int4"):
        pointer = f"/compute_units/{dtype}/throughput_gflops"
        assert document.measurements[pointer].status == "unsupported"
        assert dtype in document.unknown[pointer]


def test_small_arrays_and_weights_are_never_trusted(document: Capability) -> None:
    measurements = document.measurements
    for pointer in ("/memory/read_gb_s", "/compute_units/fp32/throughput_gflops"):
        assert "cached" in (measurements[pointer].reason or "")
        assert measurements[pointer].confidence == "low"


class Transposed(CpuAdapter):
    """An adapter whose packed linears forget that the weight is [n, k]."""

    def _prepare_linear(self, weight: Any, bias: Any, dtype: str, implementation: str) -> Linear[Any]:
        square = weight.shape[0] == weight.shape[1]
        turned = weight.t().contiguous() if implementation == "onednn_prepacked" and square else weight
        return super()._prepare_linear(turned, bias, dtype, implementation)


def test_a_linear_in_the_wrong_layout_is_refused(adapter: CpuAdapter) -> None:
    if "onednn_prepacked" not in adapter.implementations(Primitive.LINEAR, "fp32"):
        pytest.skip("this torch packs no fp32 weights")
    wrong = Transposed(LocalHost())
    wrong.set_device(adapter.device)
    wrong.open()
    linear = bench(wrong).primitives["linear"]["fp32"]
    assert linear["implementation"] == "aten"
    assert "is allowed in fp32" in linear["refused"]["onednn_prepacked"]

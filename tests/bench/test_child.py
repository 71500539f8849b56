"""A child of the sweep, as bench starts it on this machine."""

import json
import sys

import pytest

pytest.importorskip("torch")

from vllm_probe.bench.child import Order, Point
from vllm_probe.core import codec
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.system import CommandResult
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe


@pytest.fixture(scope="module")
def adapter() -> CpuAdapter:
    adapter = CpuAdapter(LocalHost())
    adapter.set_device(probe(LocalHost()).devices[0])
    if not adapter.process_widths():
        pytest.skip("this processor has one vector width")
    return adapter


def child(order: Order) -> CommandResult:
    text = json.dumps(codec.to_json(order))
    return LocalHost().run([sys.executable, "-m", "vllm_probe.bench.child", text], timeout_s=250)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_child_times_what_it_is_ordered_to(adapter: CpuAdapter, narrow: bool) -> None:
    lanes = adapter.process_widths()[narrow]
    formats = ("fp32", *(["int8"] if adapter.supports(Primitive.LINEAR, "int8").ok else []))
    result = child(Order(device=adapter.device, lanes=lanes, threads=(1,), formats=formats))
    assert result.returncode == 0, result.stderr
    points = codec.from_json(tuple[Point, ...], json.loads(result.stdout))
    assert [(point.lanes, point.threads) for point in points] == [(lanes, 1)] * len(formats)
    assert {point.dtype for point in points} == set(formats)
    assert all(point.gflops and point.measurement.samples for point in points)


def test_a_width_that_is_not_there_is_an_error_of_the_child(adapter: CpuAdapter) -> None:
    result = child(Order(device=adapter.device, lanes=3, threads=(1,), formats=("fp32",)))
    assert result.returncode == 1
    assert "3 lanes wide" in result.stderr

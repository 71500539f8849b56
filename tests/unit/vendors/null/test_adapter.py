from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_probe.core import codec
from vllm_probe.core.errors import AdapterOutOfOrder, InvalidJson, SchemaViolation
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Curve, Script, probe

HOST = ReplayHost(Scene(facts=Facts()))
Play = Callable[[Script], NullAdapter]
STEPS: Curve = ((1, 10.0), (512, 200.0))


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """An open adapter on the device that a script describes."""

    def start(script: Script) -> NullAdapter:
        path = tmp_path / "script.json"
        path.write_text(codec.dumps(script), encoding="utf-8")
        monkeypatch.setenv("VLLM_PROBE_NULL_SCRIPT", str(path))
        adapter = NullAdapter(HOST)
        adapter.set_device(probe(HOST).devices[0])
        adapter.open()
        return adapter

    return start


def test_the_device_has_the_memory_of_the_script(play: Play) -> None:
    adapter = play(Script(memory_bytes=123))
    assert adapter.device.id == "null0"
    assert adapter.device.memory.usable_bytes == 123
    assert adapter.memory().free_bytes == 123


def test_a_linear_takes_what_the_rate_at_its_rows_says(play: Play) -> None:
    adapter = play(Script(rates_gflops={"bf16": STEPS}, launch_us=3.0))
    linear = adapter.prepare_linear(adapter.random((64, 32), "bf16", 1), None, "bf16", "scripted")
    for rows, rate in ((1, 10.0), (511, 10.0), (512, 200.0), (4096, 200.0)):
        x = adapter.random((rows, 32), "bf16", 0)
        seconds = adapter.time_batch([lambda x=x: linear(x)])  # type: ignore[misc]  # bound for this turn
        assert seconds == pytest.approx(2 * rows * 32 * 64 / (rate * 1e9) + 3e-6)


def test_memory_calls_take_what_the_bandwidth_says(play: Play) -> None:
    adapter = play(Script(bandwidth_gb_s=10.0, launch_us=0.0))
    a, b, c = (adapter.random((1000,), "fp32", seed) for seed in range(3))
    assert adapter.time_batch([lambda: adapter.read(a)]) == pytest.approx(4000 / 1e10)
    assert adapter.time_batch([lambda: adapter.copy(a, b)]) == pytest.approx(8000 / 1e10)
    assert adapter.time_batch([lambda: adapter.triad(a, b, 2.0, c)] * 2) == pytest.approx(24000 / 1e10)


def test_results_are_those_of_arrays_of_one_value(play: Play) -> None:
    adapter = play(Script())
    x, weight, bias = (adapter.random(shape, "int8", seed) for seed, shape in enumerate([(2, 5), (3, 5), (3,)]))
    product = adapter.prepare_linear(weight, bias, "int8", "scripted")(x)
    assert product.dtype == "int32"
    a, b, c = (tensor.elements[0] for tensor in (x, weight, bias))
    assert adapter.to_host(product) == [[5 * a * b + c] * 3] * 2
    assert adapter.to_host(adapter.read(x)) == [10 * a]
    adapter.triad(x, x, 0.5, x)
    assert x.value == 1.5 * a


def test_results_are_worked_out_where_elements_differ(play: Play) -> None:
    adapter = play(Script())
    x, weight = adapter.from_host([[1, 2], [3, 4]], "fp32"), adapter.from_host([[1, 0], [0, 1], [2, 5]], "fp32")
    bias = adapter.from_host([0.5, 0, 0], "fp32")
    product = adapter.prepare_linear(weight, bias, "fp32", "scripted")(x)
    assert adapter.to_host(product) == [[1.5, 2, 12], [3.5, 4, 26]]
    assert adapter.to_host(adapter.read(x)) == [10]
    adapter.triad(x, x, 2.0, x)
    assert adapter.to_host(x) == [[3, 6], [9, 12]]
    assert adapter.to_host(adapter.from_host([[[1, 2], [3, 4]]], "int8")) == [[[1, 2], [3, 4]]]


def test_noise_is_bounded_and_the_same_in_every_run(play: Play) -> None:
    def batches() -> list[float]:
        adapter = play(Script(noise_pct=10.0, seed=4, launch_us=1.0, bandwidth_gb_s=1e6))
        tensor = adapter.random((1,), "int8", 0)
        return [adapter.time_batch([lambda: adapter.read(tensor)]) for _ in range(20)]

    first = batches()
    assert first == batches()
    assert len(set(first)) == 20
    assert all(0.9e-6 <= seconds <= 1.101e-6 for seconds in first)


def test_a_fault_is_raised_by_the_call_it_names(play: Play) -> None:
    adapter = play(Script(faults={"linear.bf16": "illegal instruction", "copy": "lost"}))
    weight = adapter.random((8, 8), "bf16", 0)
    linear = adapter.prepare_linear(weight, None, "bf16", "scripted")
    with pytest.raises(RuntimeError, match="illegal instruction"):
        linear(weight)
    with pytest.raises(RuntimeError, match="lost"):
        adapter.copy(weight, weight)
    assert adapter.read(weight).dtype == "bf16"


def test_addresses_are_aligned_and_capacity_is_kept(play: Play) -> None:
    adapter = play(Script(memory_bytes=1 << 20))
    addresses = [adapter.allocate(100, alignment).address for alignment in (64, 4096, 256, 1)]
    assert [address % alignment for address, alignment in zip(addresses, (64, 4096, 256, 1), strict=True)] == [0] * 4
    assert all(later - earlier >= 100 for earlier, later in pairwise(addresses))
    with pytest.raises(MemoryError, match="1048577 of 1048576 bytes"):
        adapter.allocate((1 << 20) + 1)


def test_only_formats_of_the_script_are_supported(play: Play) -> None:
    adapter = play(Script(rates_gflops={"bf16": STEPS}))
    assert adapter.implementations(Primitive.LINEAR, "bf16") == ("scripted",)
    assert adapter.implementations(Primitive.LINEAR, "fp16") == ()
    assert adapter.supports(Primitive.ATTENTION, "bf16").reason == "the script has no attention in bf16"


def test_calls_out_of_order_are_refused() -> None:
    with pytest.raises(AdapterOutOfOrder):
        NullAdapter(HOST).open()


def test_a_script_that_is_none_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "script.json"
    monkeypatch.setenv("VLLM_PROBE_NULL_SCRIPT", str(path))
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidJson):
        probe(HOST)
    path.write_text('{"rates_gflops": {"bf16": [[0, 5]]}}', encoding="utf-8")
    with pytest.raises(SchemaViolation, match="/rates_gflops/bf16/0/0"):
        probe(HOST)


def test_a_transfer_waits_for_its_queue_and_shares_its_way_of_the_link(play: Play) -> None:
    adapter = play(Script(link_gb_s=20.0, queue_gb_s=10.0, pageable_gb_s=4.0, launch_us=0.0))
    device, pinned, pageable = adapter.allocate(10**9), adapter.allocate_pinned(10**9), adapter.allocate_pageable(10**9)

    def seconds(*copies: tuple[NullTensor, NullTensor, int]) -> float:
        adapter.synchronize()
        begin = adapter.clock()
        for event in [adapter.copy(a, b, non_blocking=True, queue=queue) for a, b, queue in copies]:
            event.wait()
        return adapter.clock() - begin

    up, down = (pinned, device), (device, pinned)
    assert seconds((*up, 0)) == pytest.approx(0.1)
    assert seconds((*up, 0), (*up, 0)) == pytest.approx(0.2), "one queue"
    assert seconds((*up, 0), (*up, 1)) == pytest.approx(0.1), "two queues"
    assert seconds(*((*up, queue) for queue in range(4))) == pytest.approx(0.2), "the link"
    assert seconds((*up, 0), (*down, 1)) == pytest.approx(0.1), "both ways"
    assert seconds((pageable, device, 0)) == pytest.approx(0.25)


def test_a_clock_that_falls_takes_the_rates_with_it(play: Play) -> None:
    adapter = play(Script(rates_gflops={"bf16": ((1, 1.0),)}, throttle_s=2.0, clock_mhz=2000, throttled_mhz=500))
    linear = adapter.prepare_linear(adapter.random((1000, 1000), "bf16", 1), None, "bf16", "scripted")
    x = adapter.random((500, 1000), "bf16", 0)
    assert adapter.time_batch([lambda: linear(x)]) == pytest.approx(1.0, rel=1e-3)
    assert adapter.telemetry().clock_mhz == 2000
    adapter.clock_s = 2.0
    assert adapter.time_batch([lambda: linear(x)]) == pytest.approx(4.0, rel=1e-3)
    assert adapter.telemetry().clock_mhz == 500


def test_a_part_stands_in_the_memory_of_the_whole(play: Play) -> None:
    adapter = play(Script())
    whole = adapter.allocate(100, 64)
    part = adapter.part(whole, 16, 32)
    assert part is not None
    assert (part.nbytes, adapter.address(part)) == (32, whole.address + 16)
    four = adapter.part(adapter.random((100,), "fp32", 0), 396, 4)
    assert four is not None
    assert (four.dtype, four.nbytes) == ("int8", 4)

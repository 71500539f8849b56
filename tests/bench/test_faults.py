"""What goes wrong while a device is measured lowers confidence or sets a status; no wrong value is trusted fully."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.bench.faulty import (
    GEMM,
    MIB,
    PARTS,
    READ,
    SCRIPT,
    TRIAD,
    TRUTH,
    Numbers,
    Sound,
    bench,
    doubted,
    hold,
    numbers_in,
    plan_of,
    started,
    value_at,
)
from tests.unit.bench.fake import STAMP, FakeAdapter, cpu
from vllm_probe.bench.bandwidth import MemorySection
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.bench.timing import Case, Stopwatch, Work
from vllm_probe.core.capability import Capability
from vllm_probe.core.primitive import Linear, Telemetry
from vllm_probe.core.progress import silent
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.probe import probe as probe_cpu
from vllm_probe.vendors.cpu.sensors import Sensors
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor


def test_a_sound_device_is_trusted_fully() -> None:
    document = bench(started())
    for pointer, truth in TRUTH.items():
        about = document.measurements[pointer]
        assert (about.status, about.confidence, about.verdict) == ("measured", "high", "normal"), (
            pointer,
            about.reason,
        )
        assert value_at(document, pointer) == pytest.approx(truth, rel=0.01)


class Zero(NullAdapter):
    """Fills every array with zeros, which it reads four times as fast from its compressed memory."""

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> NullTensor:
        tensor = super()._random(shape, dtype, seed)
        tensor.value = 0
        return tensor


def test_zeros_as_data() -> None:
    document = bench(started(Zero))
    for about in doubted(document, GEMM, READ, TRIAD):
        assert "alike" in (about.reason or "")


def test_compressed_zeros() -> None:
    document = bench(started(Zero, replace(SCRIPT, bandwidth_gb_s=400.0)))
    assert [about.status for about in doubted(document, READ, TRIAD)] == ["suspect", "suspect"]


def test_arrays_that_a_cache_holds() -> None:
    adapter = started(details={"caches": {"l2": 8 * MIB}})
    document = bench(adapter, plan_of(adapter, array_bytes=2 * MIB, operand_bytes=MIB))
    for about in doubted(document, GEMM, READ, TRIAD):
        assert "cached" in (about.reason or "")


def test_a_probe_that_tells_a_smaller_cache_than_there_is() -> None:
    """The arrays fit into the real cache, which is five times as fast as the memory."""
    document = bench(started(script=replace(SCRIPT, bandwidth_gb_s=500.0)))
    assert {about.status for about in doubted(document, READ, TRIAD)} == {"suspect"}


def test_a_cache_that_nobody_tells() -> None:
    document = bench(started(details={}))
    doubted(document, GEMM, READ, TRIAD)


def test_operations_counted_twice() -> None:
    adapter = started()
    x, weight = (adapter.random((512, 512), "bf16", seed) for seed in range(2))
    linear = adapter.prepare_linear(weight, None, "bf16", "scripted")
    work = Work(calls=(lambda: linear(x),), amount=2 * 2.0 * 512**3, method="twice as many")
    plan = plan_of(adapter)
    case = Case(
        key=("a", 0),
        title="a",
        unit="GFLOP/s",
        prepare=lambda divisor: work,
        expected=plan.expectations.compute("bf16"),
    )
    ((_, reading),) = Stopwatch(adapter, plan).run([case], lambda case: None)
    assert (reading.measurement.status, reading.measurement.confidence) == ("suspect", "low")


def on_processors(share: float, **changes: Any) -> Capability:
    """A CPU whose threads get `share` of their time."""
    adapter = FakeAdapter()
    plan = make_plan(adapter.device, quick=True, only=frozenset({"memory"}))
    section = MemorySection(adapter, plan)
    adapter.busy = share
    watch = Stopwatch(adapter, plan)
    for batch in section.batches():
        for case, reading in watch.run(batch, lambda case: None):
            section.readings[case.key] = reading
    return section.readings["read", 0].measurement  # type: ignore[return-value]


def test_other_work_on_the_processors() -> None:
    about: Any = on_processors(0.55)
    assert (about.status, about.confidence) == ("throttled", "low")
    assert "55 % of the processor time" in about.reason


def container(throttled: int) -> ReplayHost:
    """Two processors of which a control group allows one, and how often it has stopped them."""
    files = {
        "/proc/cpuinfo": "".join(f"processor\t: {n}\nflags\t\t: avx2 fma\ncpu MHz\t\t: 3000.0\n\n" for n in range(2)),
        "/proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n",
        "/proc/self/status": "Cpus_allowed_list:\t0-1\n",
        "/proc/self/cgroup": "0::/\n",
        "/sys/devices/system/cpu/online": "0-1\n",
        "/sys/fs/cgroup/cpu.max": "100000 100000\n",
        "/sys/fs/cgroup/cpu.stat": f"usage_usec 1\nnr_periods 100\nnr_throttled {throttled}\nthrottled_usec 1\n",
    }
    return ReplayHost(Scene(facts=Facts(files=files)))


def test_a_quota_of_one_of_two_processors_is_the_number_of_threads() -> None:
    assert probe_cpu(container(0)).devices[0].details["threads"] == 1


class Quota(FakeAdapter):
    """Ignores the quota: its threads are stopped in one period after the other."""

    asked = 0

    def _telemetry(self) -> Telemetry:
        self.asked += 1
        return Sensors(container(self.asked), (0, 1)).read()


def test_threads_that_a_quota_stops() -> None:
    adapter = Quota(cpu())
    document = run_bench(
        adapter,
        make_plan(adapter.device, quick=True, only=frozenset({"memory"})),
        STAMP,
        save=lambda document: None,
        progress=silent,
    )
    about = document.measurements[READ]
    assert (about.status, about.confidence) == ("throttled", "low")


def test_a_clock_that_falls_while_a_test_runs() -> None:
    document = bench(started(script=replace(SCRIPT, throttle_s=0.5, throttled_mhz=1200.0)))
    doubted(document, GEMM)


def test_a_clock_that_was_low_from_the_start() -> None:
    document = bench(started(script=replace(SCRIPT, throttle_s=0.0, throttled_mhz=1000.0)))
    (about,) = doubted(document, GEMM)
    assert about.clock_mhz == 1000
    assert "1000 of 2000 MHz" in (about.reason or "")


class Hot(Sound):
    """Is held down by heat."""

    def _telemetry(self) -> Telemetry:
        return Telemetry(clock_mhz=1900.0, held_down=("thermal",))


def test_a_device_that_says_that_it_is_too_hot() -> None:
    assert {about.status for about in doubted(bench(started(Hot)), GEMM, READ, TRIAD)} == {"throttled"}


class Deaf(Sound):
    """Has a sensor that fails."""

    def _telemetry(self) -> Telemetry:
        raise OSError("no sensor")


def test_a_broken_sensor_costs_no_value() -> None:
    assert value_at(bench(started(Deaf)), READ) == pytest.approx(100, rel=0.01)


def test_a_clock_that_jumps() -> None:
    document = bench(started(script=replace(SCRIPT, noise_pct=25.0)))
    assert {about.status for about in doubted(document, GEMM, READ, TRIAD)} <= {"noisy", "suspect"}


class Small(Sound):
    """Has room for arrays of 8 MiB."""

    limit = 8 * MIB

    def _allocate(self, nbytes: int, alignment: int) -> NullTensor:
        if nbytes > self.limit:
            raise MemoryError(f"{nbytes} bytes")
        return super()._allocate(nbytes, alignment)


def test_too_little_memory_halves_the_arrays() -> None:
    adapter = started(Small)
    document = bench(adapter, plan_of(adapter, array_bytes=32 * MIB))
    assert value_at(document, READ) == pytest.approx(100, rel=0.01)
    assert "N = 8 MiB" in (document.measurements[READ].method or "")


class Full(Small):
    """Has no memory at all."""

    limit = 0


def test_no_memory_at_all() -> None:
    document = bench(started(Full), None)
    for pointer in (GEMM, READ, TRIAD):
        assert value_at(document, pointer) is None
        assert document.measurements[pointer].status == "error"
        assert "Memory" in document.unknown[pointer]


def test_a_kernel_that_raises_costs_no_other_value() -> None:
    document = bench(started(script=replace(SCRIPT, faults={"linear.bf16": "illegal instruction"})))
    assert document.measurements[GEMM].status == "error"
    assert "illegal instruction" in document.unknown[GEMM]
    assert value_at(document, READ) == pytest.approx(100, rel=0.01)


class Wrong(Sound):
    """Multiplies to something else, a thousand times as fast."""

    def result(self, product: float) -> float:
        return product + 1

    def _prepare_linear(
        self, weight: NullTensor, bias: NullTensor | None, dtype: str, implementation: str
    ) -> Linear[NullTensor]:
        right = super()._prepare_linear(weight, bias, dtype, implementation)

        def linear(rows: NullTensor) -> NullTensor:
            out = right(rows)
            product = numbers_in(out)
            hold(out, Numbers(lambda place: self.result(product[place]), 0.0))
            return out

        return linear


class NotANumber(Wrong):
    def result(self, product: float) -> float:
        return math.nan


@pytest.mark.parametrize(("kind", "said"), [(Wrong, "off by"), (NotANumber, "not finite")])
def test_results_that_are_wrong_have_no_rate(kind: type[NullAdapter], said: str) -> None:
    document = bench(started(kind))
    assert value_at(document, GEMM) is None
    assert document.measurements[GEMM].status == "error"
    assert said in document.unknown[GEMM]


class Timed(Sound):
    """Tells of every batch what `told` makes of its seconds."""

    def told(self, seconds: float) -> float:
        return -seconds

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        return self.told(super()._time_batch(calls))


class Still(Timed):
    def told(self, seconds: float) -> float:
        return 0.0


class Lost(Timed):
    def told(self, seconds: float) -> float:
        return math.nan


class Endless(Timed):
    def told(self, seconds: float) -> float:
        return math.inf


@pytest.mark.parametrize("kind", [Timed, Still, Lost, Endless])
def test_times_that_cannot_be(kind: type[NullAdapter]) -> None:
    document = bench(started(kind))
    for pointer in (GEMM, READ, TRIAD):
        assert value_at(document, pointer) is None
        assert document.measurements[pointer].status == "error"


class Quick(Timed):
    """Its timer counts three of ten seconds."""

    def told(self, seconds: float) -> float:
        return 0.3 * seconds


class Slow(Timed):
    """Its timer counts eleven of ten seconds."""

    def told(self, seconds: float) -> float:
        return 1.1 * seconds


@pytest.mark.parametrize("kind", [Quick, Slow])
def test_a_timer_that_contradicts_the_hosts(kind: type[NullAdapter]) -> None:
    doubted(bench(started(kind)), GEMM, READ, TRIAD)


class Backwards(Sound):
    """The clock of the host is set back with every look at it."""

    looks = 0

    def _clock(self) -> float:
        self.looks += 1
        return -float(self.looks)


def test_a_clock_that_goes_back() -> None:
    adapter = started(Backwards)
    parts = PARTS | {"copies", "overlap", "launch"}
    document = bench(adapter, plan_of(adapter, parts))
    doubted(document, GEMM, READ, TRIAD)
    for pointer in ("/dma/h2d_pinned_gb_s", "/execution/launch_overhead_us", "/dma/max_concurrent_transfers"):
        assert value_at(document, pointer) is None
        assert document.measurements[pointer].status == "error", pointer
    assert document.dma.cpu_bypass is None

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.bench.fake import FakeAdapter, cpu
from tests.unit.bench.scripted import at, play, short, written
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.compute import ComputeSection
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.thermal import ThermalSection
from vllm_probe.bench.timing import Reading, absent
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Measurement
from vllm_probe.core.primitive import Telemetry
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.null.probe import Script

SCRIPT = Script(rates_gflops={"bf16": ((1, 10_000.0),)})


def section(
    adapter: HardwareAdapter[Any], plan: BenchPlan, processor_s: Callable[[], float] = lambda: 0.0
) -> ThermalSection:
    """After a matrix product of 512 rows in bf16."""
    compute = ComputeSection(adapter, plan)
    compute.readings["bf16", 512] = Reading(1.0, Measurement(source="measured", status="measured"))
    return ThermalSection(adapter, plan, compute, processor_s, idle=lambda seconds: None)


def sheet_of(made: ThermalSection) -> Sheet:
    *none, (case,) = made.batches()
    assert none == [(), (), ()]
    reading = case.prepare(1)
    assert isinstance(reading, Reading)
    made.readings[case.key] = reading
    return written(made)


def measured(script: Script, kind: type[NullAdapter] = NullAdapter) -> Sheet:
    adapter = play(script, kind)
    return sheet_of(section(adapter, short(adapter)))


def test_a_device_that_keeps_its_clock_sustains_its_burst() -> None:
    sheet = measured(SCRIPT)
    burst, sustained, ratio = (
        at(sheet, f"/thermal/{name}")[0] for name in ("burst_gflops", "sustained_gflops", "ratio")
    )
    assert (burst, sustained) == pytest.approx((10_000, 10_000), rel=0.02)
    assert ratio == pytest.approx(1, abs=0.01)
    assert at(sheet, "/compute_units/bf16/sustained_gflops")[0] == sustained
    value, about = at(sheet, "/thermal/seconds_to_throttle")
    assert value is None
    assert "did not stay under 97 %" in (about.reason or "")


def test_a_device_whose_clock_falls_is_said_to_sustain_less_and_when_it_fell() -> None:
    sheet = measured(replace(SCRIPT, throttle_s=1.0, clock_mhz=2000.0, throttled_mhz=1500.0))
    assert at(sheet, "/thermal/burst_gflops")[0] == pytest.approx(10_000, rel=0.02)
    assert at(sheet, "/thermal/sustained_gflops")[0] == pytest.approx(7_500, rel=0.02)
    assert at(sheet, "/thermal/ratio")[0] == pytest.approx(0.75, rel=0.02)
    assert at(sheet, "/thermal/seconds_to_throttle")[0] == pytest.approx(1.0, abs=0.5)
    assert at(sheet, "/thermal/sustained_gflops")[1].lowest_clock_mhz == 1500


def test_formats_that_were_not_held_follow_in_the_same_ratio() -> None:
    adapter = play(replace(SCRIPT, throttle_s=1.0, throttled_mhz=1500.0))
    made = section(adapter, short(adapter))
    sheet_of(made)
    sheet = Sheet(values={"compute_units": {"bf16": {"throughput_gflops": 1.0}, "fp32": {"throughput_gflops": 400.0}}})
    made.write(sheet)
    value, about = at(sheet, "/compute_units/fp32/sustained_gflops")
    assert value == pytest.approx(300, rel=0.02)
    assert (about.source, about.confidence) == ("derived", "low")
    assert at(sheet, "/compute_units/bf16/sustained_gflops")[1].source == "measured"


class Silent(NullAdapter):
    """Tells no clock."""

    def _telemetry(self) -> Telemetry:
        return Telemetry()


def test_without_a_clock_the_rate_tells_when_it_fell() -> None:
    sheet = measured(replace(SCRIPT, throttle_s=1.0, throttled_mhz=1500.0), Silent)
    seconds, about = at(sheet, "/thermal/seconds_to_throttle")
    assert seconds == pytest.approx(1.0, abs=0.5)
    assert "rate fell" in (about.method or "")


class Falling(NullAdapter):
    """Loses one percent of its speed with every quarter of a second."""

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        before = self.clock_s
        seconds = super()._time_batch(calls) * (1 + before / 25)
        self.clock_s = before + seconds
        return seconds


def test_a_load_that_does_not_become_steady_is_said_to_fall_still() -> None:
    about = at(measured(SCRIPT, Falling), "/thermal/sustained_gflops")[1]
    assert (about.status, about.confidence) == ("noisy", "low")
    assert "it still fell by" in (about.reason or "")


class Hot(NullAdapter):
    """Is held down by heat all the time."""

    def _telemetry(self) -> Telemetry:
        return Telemetry(clock_mhz=1000.0, held_down=("thermal",))


def test_a_device_that_is_hot_from_the_start_is_throttled() -> None:
    about = at(measured(SCRIPT, Hot), "/thermal/sustained_gflops")[1]
    assert about.status == "throttled"
    assert "held down by thermal" in (about.reason or "")


def test_processors_that_others_took_are_no_heat() -> None:
    adapter = FakeAdapter(cpu())
    sheet = sheet_of(section(adapter, short(play(SCRIPT))))
    assert at(sheet, "/thermal/sustained_gflops")[1].status == "throttled"
    value, about = at(sheet, "/thermal/seconds_to_throttle")
    assert value is None
    assert "other work took the processor" in (about.reason or "")


def test_the_seconds_of_the_window_are_those_of_the_plan_when_asked_for() -> None:
    adapter = play(SCRIPT)
    plan = replace(short(adapter), sustained_s=8.0, settle_s=10.0)
    assert (at(sheet_of(section(adapter, plan)), "/thermal/ratio")[0]) == pytest.approx(1, abs=0.01)
    assert 8.0 <= adapter.clock_s < 12.0


def test_a_bench_that_is_late_shortens_the_window() -> None:
    adapter = play(SCRIPT)
    sheet_of(section(adapter, replace(short(adapter), end_s=3.0)))
    assert 1.0 < adapter.clock_s < 5.0


def test_a_bench_whose_time_is_over_holds_nothing() -> None:
    adapter = play(SCRIPT)
    about = at(sheet_of(section(adapter, replace(short(adapter), end_s=1.0))), "/thermal/sustained_gflops")[1]
    assert (about.status, about.reason) == ("skipped", "the time for bench was over")
    assert adapter.clock_s == 0.0


def test_nothing_is_held_where_no_format_runs() -> None:
    adapter = play(Script(rates_gflops={}))
    compute = ComputeSection(adapter, short(adapter))
    made = ThermalSection(adapter, compute.plan, compute, lambda: 0.0, idle=lambda seconds: None)
    assert at(sheet_of(made), "/thermal/ratio")[1].status == "error"


def test_without_a_curve_the_first_format_is_held() -> None:
    adapter = play(SCRIPT)
    compute = ComputeSection(adapter, short(adapter))
    made = ThermalSection(adapter, compute.plan, compute, lambda: 0.0, idle=lambda seconds: None)
    assert at(sheet_of(made), "/compute_units/bf16/sustained_gflops")[0] == pytest.approx(10_000, rel=0.02)


def test_left_out_it_says_why() -> None:
    adapter = play(SCRIPT)
    made = section(adapter, short(adapter, quick=True))
    assert at(written(made), "/thermal/ratio")[1].reason == "--quick leaves thermal out"
    failed = section(adapter, short(adapter))
    failed.readings["load", 0] = absent("error", "RuntimeError: no kernel")
    assert at(written(failed), "/thermal/burst_gflops")[1].status == "error"


def test_what_was_held_is_taken_up_again() -> None:
    adapter = play(SCRIPT)
    before = section(adapter, short(adapter))
    sheet_of(before)
    after = section(adapter, before.plan)
    after.restore(read_back(document(before)))
    assert after.readings.keys() == before.readings.keys()
    assert at(written(after), "/compute_units/bf16/sustained_gflops")[0] == pytest.approx(10_000, rel=0.02)

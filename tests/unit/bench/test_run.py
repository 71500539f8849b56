from dataclasses import replace

import pytest

from tests.unit.bench.fake import STAMP, FakeAdapter, cpu
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.progress import silent
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.schema import violations
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.null.probe import probe

ROWS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def plan(quick: bool = False, only: frozenset[str] = frozenset()) -> BenchPlan:
    return make_plan(cpu(), quick=quick, only=only)


def bench(
    adapter: FakeAdapter, plan: BenchPlan, resume_from: Capability | None = None
) -> tuple[Capability, list[Capability]]:
    saved: list[Capability] = []
    document = run_bench(adapter, plan, STAMP, resume_from=resume_from, save=saved.append, progress=silent)
    return document, saved


def test_every_format_gets_its_curve_and_the_memory_its_rates() -> None:
    document, _ = bench(FakeAdapter(), plan())
    assert {dtype: unit.throughput_gflops for dtype, unit in document.compute_units.items()} == {
        "fp32": pytest.approx(200),
        "bf16": pytest.approx(500),
        "fp16": pytest.approx(40),
        "int8": pytest.approx(800),
        "tf32": None,
        "fp8_e4m3": None,
        "int4": None,
    }
    assert all([rows for rows, _ in document.compute_units[dtype].curve] == list(ROWS) for dtype in ("bf16", "int8"))
    assert [rows for rows, _ in document.compute_units["fp32"].curve] == [32, 128, 512, 2048]
    memory = document.memory
    assert [memory.read_gb_s, memory.copy_gb_s, memory.triad_gb_s] == pytest.approx([40, 40, 40])
    assert document.measurements["/compute_units/bf16/throughput_gflops"].implementation == "packed"


def test_the_scripted_device_is_measured_as_its_script_says() -> None:
    host = ReplayHost(Scene(facts=Facts()))
    adapter = NullAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    plan = make_plan(adapter.device, quick=False, only=frozenset())
    document = run_bench(adapter, plan, STAMP, save=lambda document: None, progress=silent)
    rates = dict(document.compute_units["bf16"].curve)
    assert (rates[32], rates[4096]) == pytest.approx((50, 200), rel=0.05)
    assert document.memory.bandwidth_gb_s == document.memory.triad_gb_s == pytest.approx(100, rel=0.05)
    assert document.unknown["/compute_units/fp16/throughput_gflops"] == "the script has no linear in fp16"


def test_quick_gives_curves_to_the_fastest_format_and_the_fastest_unquantized_one() -> None:
    document, _ = bench(FakeAdapter(), plan(quick=True))
    lengths = {dtype: len(unit.curve) for dtype, unit in document.compute_units.items() if unit.curve}
    assert lengths == {"fp32": 1, "bf16": 8, "fp16": 1, "int8": 8}


def test_only_runs_what_is_named() -> None:
    adapter = FakeAdapter()
    document, _ = bench(adapter, plan(only=frozenset({"memory"})))
    assert set(adapter.ran) == {"read", "copy", "triad"}
    assert document.compute_units["fp32"].throughput_gflops is None


def test_after_each_test_a_valid_document_says_what_has_not_run() -> None:
    document, saved = bench(FakeAdapter(), plan(quick=True))
    assert len(saved) == 1 + 4 + 5 + 5 + 2 * 7 + (4 + 4)  # and what is timed again
    assert all(violations("capability", codec.to_json(each)) == () for each in saved)
    assert saved[0].unknown["/compute_units/fp32/throughput_gflops"] == "not run yet"
    assert saved[-1] == document


def test_an_interruption_saves_and_the_same_run_resumes_without_repeating() -> None:
    adapter = FakeAdapter()
    saved: list[Capability] = []

    def interrupt(operation: str) -> None:
        if operation == "bf16 packed 1024":
            raise KeyboardInterrupt

    adapter.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_bench(adapter, plan(), STAMP, save=saved.append, progress=silent)
    partial = saved[-1]
    assert [rows for rows, _ in partial.compute_units["bf16"].curve] == [512]
    assert partial.memory.triad_gb_s == pytest.approx(40)
    again = FakeAdapter()
    document, _ = bench(again, plan(), resume_from=partial)
    assert not {"read", "bf16 packed 512", "bf16 plain 512"} & set(again.ran)
    whole, _ = bench(FakeAdapter(), plan())
    assert document.measurements.keys() == whole.measurements.keys()
    assert document.unknown == whole.unknown
    assert document.compute_units["bf16"].throughput_gflops == pytest.approx(500)


def test_one_failing_format_costs_no_other_value() -> None:
    adapter = FakeAdapter()

    def explode(operation: str) -> None:
        if operation.startswith(("int8", "triad")):
            raise ValueError("no kernel")

    adapter.before = explode
    document, _ = bench(adapter, plan(quick=True))
    assert document.measurements["/memory/triad_gb_s"].status == "error"
    assert document.measurements["/compute_units/int8/throughput_gflops"].status == "error"
    assert document.memory.read_gb_s == pytest.approx(40)
    assert document.compute_units["bf16"].throughput_gflops == pytest.approx(500)


def test_when_time_is_over_the_document_is_still_valid() -> None:
    document, _ = bench(FakeAdapter(), replace(plan(), soft_s=-1.0, hard_s=-1.0))
    assert violations("capability", codec.to_json(document)) == ()
    assert document.unknown["/memory/read_gb_s"] == "the time for bench was over"


def test_progress_counts_every_test_and_ends_complete() -> None:
    seen: list[tuple[str, int, int]] = []
    run_bench(
        FakeAdapter(),
        plan(quick=True),
        STAMP,
        save=lambda document: None,
        progress=lambda step, done, total: seen.append((step, done, total)),
    )
    assert seen[0] == ("memory read", 0, 28)
    assert seen[-1][1:] == (28, 28)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_format_that_nobody_would_choose_gets_a_point_and_no_curve() -> None:
    adapter = FakeAdapter()
    adapter.linears["fp16", "plain"] = 124.0
    document, _ = bench(adapter, replace(plan(), groups=frozenset({"gemm"})))
    assert [rows for rows, _ in document.compute_units["fp16"].curve] == [512]
    reason = document.measurements["/compute_units/fp16/curve"].reason or ""
    assert reason.endswith("4096 rows: under 0.25 of the rate of the fastest format")
    adapter.linears["fp16", "plain"] = 126.0
    document, _ = bench(adapter, replace(plan(), groups=frozenset({"gemm"})))
    assert [rows for rows, _ in document.compute_units["fp16"].curve] == [32, 128, 512, 2048]


def test_the_best_rows_come_first_and_the_highest_rates_are_timed_again_at_the_end() -> None:
    titles: list[str] = []
    made = plan(quick=True, only=frozenset({"gemm"}))
    steps = lambda title, done, total: titles.append(title)  # noqa: E731 - a name for the argument
    document = run_bench(FakeAdapter(), made, STAMP, save=lambda document: None, progress=steps)
    order = [title for title in dict.fromkeys(titles) if title.startswith("int8") and title != "int8 512 rows"]
    assert order == [f"int8 {rows} rows" for rows in (1024, 2048, 256, 4096, 128, 64, 32)]
    assert [title.split()[0] for title in titles[-5:]] == ["fp32", "bf16", "fp16", "int8", "done"]
    assert document.compute_units["int8"].throughput_gflops == pytest.approx(800)

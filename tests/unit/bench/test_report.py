"""Every value of the document has a measurement, and every gap a reason."""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.unit.bench.fake import STAMP, FakeAdapter, cpu
from vllm_probe.bench.bandwidth import MemorySection
from vllm_probe.bench.compute import ComputeSection
from vllm_probe.bench.contest import Decided
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.report import Report
from vllm_probe.bench.run import make_sections
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Reading, absent
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability, Confidence, Measurement, Status
from vllm_probe.core.device import Device
from vllm_probe.core.primitive import MemoryReading
from vllm_probe.core.schema import violations
from vllm_probe.core.values import COMPUTE_DTYPES, JsonValue
from vllm_probe.vendors.mapper import Choice

HEADER = {"schema_version", "created_at", "tool_version", "host_fingerprint", "device_type", "unknown", "measurements"}


class Bench(NamedTuple):
    report: Report
    memory: MemorySection
    compute: ComputeSection


def bench(device: Device | None = None, only: frozenset[str] = frozenset()) -> Bench:
    adapter = FakeAdapter(device)
    plan = make_plan(adapter.device, quick=False, only=only)
    made = {type(section): section for section in make_sections(adapter, plan)}
    memory, compute = made[MemorySection], made[ComputeSection]
    assert isinstance(memory, MemorySection)
    assert isinstance(compute, ComputeSection)
    return Bench(Report(adapter, STAMP, tuple(made.values())), memory, compute)


def reading(
    value: float, confidence: Confidence = "medium", status: Status = "measured", spread: float = 1.0
) -> Reading:
    return Reading(
        value,
        Measurement(source="measured", status=status, confidence=confidence, samples=9, spread_pct=spread),
    )


def with_some(device: Device | None = None, only: frozenset[str] = frozenset()) -> Bench:
    made = bench(device, only)
    made.compute.readings.update(
        {
            ("bf16", 32): reading(300.0),
            ("bf16", 512): reading(500.0, "low", "noisy", 3.0),
            ("bf16", 64): absent("skipped", "needs 9 s"),
        }
    )
    choice = Choice(implementation="packed", second="plain", ratio=1.25)
    made.compute.choices["bf16"] = Decided(choice, Measurement(source="measured", status="measured"))
    made.memory.readings.update({("read", 0): reading(40.0), ("copy", 0): absent("error", "ValueError: x")})
    return made


def leaves(value: JsonValue, pointer: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, codec.join(pointer, key))
    else:
        yield pointer, value


def described(document: Capability) -> Iterator[tuple[str, JsonValue]]:
    for pointer, value in leaves(codec.to_json(document)):
        if pointer.split("/")[1] not in HEADER and not pointer.startswith("/primitives/linear/"):
            yield pointer, value


@pytest.mark.parametrize("make", [bench, with_some], ids=["empty", "some"])
@pytest.mark.parametrize(
    "device", [cpu(), Device(id="0000:03:00.0", vendor="acme", kind="gpu")], ids=["cpu", "silent gpu"]
)
def test_every_value_is_described_every_gap_has_a_reason_and_the_schema_holds(
    device: Device, make: Callable[[Device], Bench]
) -> None:
    document = make(device).report.capability()
    for pointer, value in described(document):
        assert pointer in document.measurements, pointer
        if value in (None, [], {}):
            assert document.unknown[pointer], pointer
            assert document.measurements[pointer].status != "measured", pointer
    assert violations("capability", codec.to_json(document)) == ()


def test_values_stand_at_the_keys_of_version_one() -> None:
    document = with_some().report.capability()
    assert document.compute_units["bf16"].throughput_gflops == 500.0
    assert document.compute_units["bf16"].curve == ((32, 300.0), (512, 500.0))
    assert document.compute_units["bf16"].max_threads == 2
    assert document.memory.bandwidth_gb_s == document.memory.read_gb_s == 40.0
    assert set(document.compute_units) == set(COMPUTE_DTYPES)
    assert document.primitives["linear"]["bf16"] == {"implementation": "packed", "second": "plain", "ratio": 1.25}


def test_the_headline_rate_is_one_without_doubts_where_that_costs_little() -> None:
    points = {32: reading(300.0), 512: reading(495.0), 1024: reading(500.0, "low", "noisy", 30.0)}
    made = bench()
    made.compute.readings.update({("bf16", rows): each for rows, each in points.items()})
    document = made.report.capability()
    assert document.compute_units["bf16"].throughput_gflops == 495.0
    assert document.measurements["/compute_units/bf16/throughput_gflops"].status == "measured"


def test_gaps_say_whether_they_are_unsupported_skipped_or_failed() -> None:
    document = with_some(only=frozenset({"memory"})).report.capability()
    found = {pointer: (document.measurements[pointer].status, reason) for pointer, reason in document.unknown.items()}
    assert found["/compute_units/tf32/throughput_gflops"] == ("unsupported", "no linear in tf32")
    assert found["/compute_units/fp32/throughput_gflops"] == ("skipped", "--only leaves gemm out")
    assert found["/memory/triad_gb_s"] == ("skipped", "not run yet")
    assert found["/memory/copy_gb_s"] == ("error", "ValueError: x")
    assert found["/dma/engine_count"][0] == "unsupported"


def test_a_curve_sums_up_its_points_and_names_the_missing_ones() -> None:
    curve = with_some().report.capability().measurements["/compute_units/bf16/curve"]
    assert (curve.status, curve.confidence, curve.samples, curve.spread_pct) == ("noisy", "low", 18, 3.0)
    assert curve.reason == "64 rows: needs 9 s; 512 rows: noisy; not measured at 128, 256, 1024, 2048, 4096 rows"


def test_vector_widths_come_from_the_instruction_sets() -> None:
    execution = bench().report.capability().execution
    assert (execution.group_width["native"], execution.group_width["supported"]) == (16, [4, 8, 16])
    assert execution.matrix_instructions == ("avx512_vnni", "avx512_bf16")
    assert execution.memory_fence_scope == "system"


def test_scalable_vectors_have_no_known_width() -> None:
    execution = bench(cpu(isa=["neon", "sve", "i8mm"])).report.capability().execution
    assert (execution.group_width["native"], execution.group_width["supported"]) == (None, [4])


def test_finished_measurements_are_read_back_from_a_written_document() -> None:
    before, after = with_some(), bench()
    after.report.restore(codec.from_json(Capability, json.loads(codec.dumps(before.report.capability()))))
    for section, restored in zip(sections(before), sections(after), strict=True):
        kept = {key: each for key, each in section.readings.items() if each.measurement.status == "measured"}
        assert restored.readings == kept
        assert kept
    assert after.compute.choices == before.compute.choices


def sections(made: Bench) -> tuple[Section, ...]:
    return made.memory, made.compute


def test_a_partial_document_of_another_device_or_machine_is_not_used() -> None:
    document = with_some().report.capability()
    elsewhere = codec.from_json(Capability, codec.to_json(document) | {"host_fingerprint": "sha256:other"})
    for made, partial in ((bench(), elsewhere), (bench(cpu(threads=4)), document)):
        made.report.restore(partial)
        assert not any(section.readings for section in sections(made))
        assert not made.compute.choices


@pytest.mark.parametrize(
    "header",
    [
        {"tool_version": "0.0.9"},
        {"created_at": "2026-01-02T02:03:04Z"},
        {"created_at": "2026-01-02T03:04:06Z"},
        {"created_at": None},
    ],
    ids=["another release", "over an hour ago", "later than now", "at no known time"],
)
def test_a_partial_document_of_another_release_or_hour_is_not_used(header: dict[str, str | None]) -> None:
    document = codec.from_json(Capability, codec.to_json(with_some().report.capability()) | header)
    made = bench()
    assert not made.report.restore(document)
    assert not any(section.readings for section in sections(made))


def test_a_partial_document_of_the_last_hour_is_used_but_for_what_is_in_doubt() -> None:
    document = with_some().report.capability()
    made = bench()
    assert made.report.restore(
        codec.from_json(Capability, codec.to_json(document) | {"created_at": "2026-01-02T02:04:05Z"})
    )
    assert ("bf16", 32) in made.compute.readings
    assert ("bf16", 512) not in made.compute.readings  # noisy


class Stating(FakeAdapter):
    """Says of its device what no probe of another's can know."""

    num_units = 24
    native_group_width = 16
    supported_group_widths = (32, 8, 16)


def facts_of(adapter: FakeAdapter, unknown: dict[str, str]) -> Capability:
    plan = make_plan(adapter.device, quick=True, only=frozenset())
    return Report(adapter, STAMP, make_sections(adapter, plan), unknown).capability()


def test_what_an_adapter_states_of_its_device_goes_before_what_the_probe_found() -> None:
    document = facts_of(Stating(), {})
    assert (document.device.num_units, document.execution.group_width["native"]) == (24, 16)
    assert document.execution.group_width["supported"] == [8, 16, 32]


def test_a_gap_has_the_reason_of_the_probe() -> None:
    device = Device(id="x:0", vendor="x", kind="gpu")
    adapter = FakeAdapter(device)
    adapter._memory = lambda: MemoryReading(total_bytes=None, free_bytes=None)  # type: ignore[method-assign]
    unknown = {"/memory/usable_bytes": "its driver does not tell what is free", "/arch": "nobody names it"}
    document = facts_of(adapter, unknown)
    assert document.unknown["/memory/usable_bytes"] == "its driver does not tell what is free"
    assert document.unknown["/device/arch"] == "nobody names it"
    assert document.unknown["/execution/group_width/native"] == "neither the driver nor the adapter tells"


@pytest.mark.parametrize(
    "lost",
    [
        absent("skipped", "the time for bench was over"),
        Reading(700.0, Measurement(source="measured", status="noisy", reason="the time for bench was over")),
        Reading(700.0, Measurement(source="measured", status="throttled", reason="the time for bench was over")),
    ],
)
def test_a_highest_rate_beside_rows_that_had_no_time_or_were_disturbed_is_noisy(lost: Reading) -> None:
    made = bench()
    made.compute.readings.update(
        {
            ("int8", 256): reading(800.0, "high"),
            ("int8", 512): reading(900.0, "high"),
            ("int8", 1024): lost,
            ("bf16", 256): reading(480.0, "high"),
            ("bf16", 512): reading(500.0, "high"),
            ("bf16", 1024): reading(490.0, "high"),
            ("bf16", 2048): absent("skipped", "the time for bench was over"),
        }
    )
    measurements = made.report.capability().measurements
    about = measurements["/compute_units/int8/throughput_gflops"]
    assert (about.status, about.confidence) == ("noisy", "low")
    assert about.reason == "1024 rows: the time for bench was over"
    about = measurements["/compute_units/bf16/throughput_gflops"]
    assert (about.status, about.confidence) == ("measured", "high")

"""What a descriptor's speeds are worth."""

from dataclasses import replace

import pytest

from tests.unit.negotiate.cases import ARC, ASCEND, CPU, EMBEDDING, RTX, config, decision, descriptor
from vllm_probe.core.capability import Capability, Confidence, Measurement, Source, Status
from vllm_probe.negotiate.laws import device_row
from vllm_probe.negotiate.rates import Rate, Rates, slower


def rates(capability: Capability) -> Rates:
    return Rates(capability, device_row(capability.device_type)[1])


def test_a_sustained_rate_is_preferred_and_a_burst_is_called_one() -> None:
    both = descriptor(CPU, compute_units={"bf16": {"throughput_gflops": 974, "sustained_gflops": 900}})
    assert rates(both).of("bf16") == Rate(900, "sustained", source="stated")
    assert rates(descriptor(CPU)).of("bf16") == Rate(974, "burst", source="measured")
    assert rates(descriptor(RTX)).of("fp16") == Rate(29000, "burst", source="stated")


def test_the_curve_is_linear_between_its_points_and_flat_beyond_them() -> None:
    known = rates(descriptor(CPU))
    assert [known.at("bf16", rows) for rows in (1, 32, 48, 1024, 2560, 9999)] == [410, 410, 525, 974, 922, 870]
    assert known.at("fp32", 7) == 213
    assert known.at("fp8_e4m3", 7) is None


def test_a_curve_of_bursts_is_scaled_to_the_sustained_rate() -> None:
    unit = {"throughput_gflops": 100, "sustained_gflops": 80, "curve": [[1, 50], [2, 100]]}
    assert rates(descriptor(CPU, compute_units={"bf16": unit})).at("bf16", 1) == 40


def test_weight_only_rates_stand_in_where_a_format_does_not_compute() -> None:
    document = CPU | {"weight_only": {"int4": {"curve": [[1, 20.0, 80.0], [512, 3.0, 700.0]]}}}
    known = rates(descriptor(document))
    assert known.of("int4") == Rate(700, "burst", source="measured")
    assert known.at("int4", 1) == 80


@pytest.mark.parametrize(("document", "count"), [(ASCEND, 2), (ARC, 2), (RTX, 0), (CPU, 0)])
def test_values_ten_times_off_what_such_devices_reach_are_suspect(document: dict, count: int) -> None:
    found = rates(descriptor(document)).suspects()
    assert len(found) == count
    assert all("suspect: unit?" in each for each in found)


def test_a_bandwidth_in_the_wrong_unit_is_suspect_and_a_measured_one_is_believed() -> None:
    wrong = descriptor(RTX, memory={"bandwidth_gb_s": 256_000})
    assert rates(wrong).suspects() == ("/memory/bandwidth_gb_s 256000: suspect: unit? such devices have 256 to 8,000",)
    note = Measurement(source="measured", status="measured")
    assert rates(replace(wrong, measurements={"/memory/bandwidth_gb_s": note})).suspects() == ()


def measured(status: Status, spread_pct: float | None = None) -> Measurement:
    return Measurement(source="measured", status=status, spread_pct=spread_pct)


@pytest.mark.parametrize(
    ("note", "rates_"),
    [
        (measured("noisy", 30), (600, 700, 700, 680)),
        (measured("throttled"), (600, 700, 700, 680)),
        (measured("noisy", 8), (600, 700, 990, 680)),
        (measured("measured", 2), (600, 700, 990, 680)),
    ],
)
def test_a_doubtful_point_of_a_curve_makes_no_peak_alone(note: Measurement, rates_: tuple[float, ...]) -> None:
    unit = {"bf16": {"throughput_gflops": 990, "curve": [[64, 600], [128, 700], [256, 990], [512, 680]]}}
    known = replace(descriptor(CPU, compute_units=unit), measurements={"/compute_units/bf16/curve/2": note})
    assert tuple(rate for _, rate in rates(known).curve("bf16")) == rates_
    lonely = {"bf16": {"throughput_gflops": 990, "curve": [[256, 990]]}}
    first = {"/compute_units/bf16/curve/0": note}
    assert rates(replace(descriptor(CPU, compute_units=lonely), measurements=first)).curve("bf16") == ((256, 990),)


def test_what_was_measured_on_a_busy_device_is_named_with_what_to_do() -> None:
    notes = {
        "/compute_units/bf16/throughput_gflops": measured("throttled", 3),
        "/compute_units/bf16/curve/0": measured("noisy", 30),
        "/compute_units/bf16/curve/2": measured("noisy", 7),
        "/compute_units/fp32/throughput_gflops": measured("measured", 1),
        "/memory/bandwidth_gb_s": measured("noisy", 9),
    }
    known = rates(replace(descriptor(CPU), measurements=notes))
    assert known.doubts(["bf16", "fp32"]) == (
        "measured on a busy device: the bf16 rate (throttled); bf16 at 32, 128 rows (noisy); memory bandwidth (noisy);"
        " run `vllm-probe bench` while it is idle, negotiate again"
    )
    assert "bf16" not in (known.doubts(["fp32"]) or "")
    everywhere = {f"/compute_units/bf16/curve/{index}": measured("throttled") for index in range(7)}
    assert "device: bf16 at all rows (throttled); run" in str(
        rates(replace(descriptor(CPU), measurements=everywhere)).doubts(["bf16"])
    )
    assert rates(descriptor(CPU)).doubts(["bf16", "fp32"]) is None


def test_a_device_that_was_throttled_all_along_is_said_once_and_in_a_line() -> None:
    pointers = [
        f"/compute_units/{word}/{key}"
        for word in ("bf16", "fp32", "fp16")
        for key in ("throughput_gflops", "sustained_gflops", *(f"curve/{index}" for index in range(7)))
    ]
    notes = dict.fromkeys([*pointers, "/memory/bandwidth_gb_s"], measured("throttled"))
    known = rates(replace(descriptor(CPU), measurements=notes))
    assert known.doubts(["bf16", "fp32", "fp16"]) == (
        "measured on a busy device: bf16 at all rows (throttled); the fp32, fp16 rate (throttled); memory bandwidth"
        " (throttled);"
        " run `vllm-probe bench` while it is idle, negotiate again"
    )
    said = [*filter(None, (thermal("throttled").bursts(["bf16"]), thermal("throttled").doubts(["bf16"])))]
    assert len(said) == 2
    assert " ".join(said).count("run `vllm-probe bench`") == 1


def test_what_bench_marked_suspect_stays_suspect_and_what_it_could_not_measure_says_why() -> None:
    pointer = "/compute_units/bf16/throughput_gflops"
    marked = Measurement(source="measured", status="suspect", reason="over the peak")
    assert rates(replace(descriptor(CPU), measurements={pointer: marked})).suspects() == (
        f"{pointer}: suspect: over the peak; run `vllm-probe bench` again",
    )
    gone = Measurement(source="queried", status="skipped", reason="not run yet")
    capability = replace(descriptor(CPU), measurements={"/compute_units/int4/throughput_gflops": gone})
    assert rates(capability).why_missing("int4") == "int4 was not measured: not run yet"
    assert rates(capability).why_missing("tf32") == "the descriptor lists no tf32"


@pytest.mark.parametrize(
    ("gflops", "best", "words"),
    [
        (56, 974, "17 times slower than bf16: 56 against 974 GFLOP/s (in short runs)"),
        (45, 417, "about nine times slower"),
        (41, 417, "about ten times slower"),
        (213, 974, "about five times slower"),
        (490, 974, "about two times slower"),
        (700, 974, "1.4 times slower"),
        (78, 974, "about twelve times slower"),
        (77.9, 974, "13 times slower"),
    ],
)
def test_a_ratio_is_said_in_words(gflops: float, best: float, words: str) -> None:
    said = slower("fp16", Rate(gflops, "burst", source="measured"), "bf16", Rate(best, "burst", source="measured"))
    assert said.startswith("fp16 was measured ")
    assert words in said


def test_a_ratio_of_stated_or_unlike_rates_says_so() -> None:
    stated, lasting = Rate(50, "burst", source="stated"), Rate(100, "sustained", source="measured")
    said = "fp16 is stated as about two times slower than bf16: 50 against 100 GFLOP/s"
    assert slower("fp16", stated, "bf16", lasting) == f"{said} (sustained)"
    assert slower("fp16", stated, "bf16", replace(stated, gflops=100)) == said
    unlike = slower("fp16", replace(stated, source="measured"), "bf16", lasting)
    assert unlike.endswith("(in short runs against sustained)")


def test_the_rate_of_two_int4_matrices_is_not_that_of_int4_weights() -> None:
    unit = {"compute_units": {"int4": {"throughput_gflops": 1000}}}
    assert rates(descriptor(ASCEND | unit)).of("int4") == Rate(1000, "burst", source="stated")
    known = rates(descriptor(CPU | unit))
    assert known.of("int4") is None
    assert known.why_missing("int4").startswith("the int4 rate is of two int4 matrices")


def thermal(status: Status, source: Source = "derived", *, with_ratio: bool = True) -> Rates:
    """Of a bench that held int8 and derived bf16 from its ratio of sustained to burst."""
    units = {
        "int8": {"throughput_gflops": 1800, "sustained_gflops": 82},
        "bf16": {"throughput_gflops": 905, "sustained_gflops": 41.3, "curve": [[1, 300], [512, 905]]},
    }
    low: Confidence = "high" if status == "measured" else "low"
    ratio = Measurement(source="measured", status=status, confidence=low)
    notes = {f"/compute_units/{word}/throughput_gflops": measured("measured") for word in units}
    notes["/compute_units/int8/sustained_gflops"] = measured(status)
    notes["/compute_units/bf16/sustained_gflops"] = Measurement(source=source, status=status, confidence="low")
    notes |= {"/thermal/ratio": ratio} if with_ratio else {}
    return rates(replace(descriptor(CPU, compute_units=units), measurements=notes))


@pytest.mark.parametrize("with_ratio", [True, False])
@pytest.mark.parametrize("status", ["throttled", "noisy", "suspect"])
def test_a_sustained_rate_that_rests_on_a_doubtful_ratio_gives_way_to_the_burst(
    status: Status, with_ratio: bool
) -> None:
    known = thermal(status, with_ratio=with_ratio)
    assert known.of("bf16") == Rate(905, "burst", source="measured")
    assert known.at("bf16", 512) == 905
    assert known.of("int8") == Rate(1800, "burst", source="measured")
    said = str(known.bursts(["bf16", "fp32"]))
    assert said.startswith("rates of short runs count for bf16: ")
    assert f"was not measured well ({status})" in said
    found = config(EMBEDDING, known.capability)
    assert any(warning.startswith("rates of short runs count for bf16: ") for warning in found.warnings)
    assert "bf16 905 GFLOP/s (measured, in short runs)" in decision(found, "dtype").inputs["rate"]


def test_a_rate_derived_from_a_ratio_measured_well_counts_and_is_called_derived() -> None:
    known = thermal("measured")
    assert known.of("bf16") == Rate(41.3, "sustained", source="derived")
    assert str(known.of("bf16")) == "41.3 GFLOP/s (derived, sustained)"
    pins = {"dtype": "bfloat16"}
    sheet = config(EMBEDDING, replace(known.capability, measurements={}), pins=pins).predicted.tokens_per_s.value
    assert (config(EMBEDDING, known.capability, pins=pins).predicted.tokens_per_s.value or 0) > 1.2 * (sheet or 0)
    assert known.bursts(["bf16", "int8"]) is None
    assert thermal("measured", with_ratio=False).of("bf16") == Rate(905, "burst", source="measured")


def test_sustained_rates_that_were_each_measured_rest_on_no_ratio() -> None:
    known = thermal("throttled", "measured")
    assert known.of("bf16") == Rate(41.3, "sustained", source="measured")


def test_what_is_derived_from_a_stated_rate_is_stated() -> None:
    units = {"bf16": {"throughput_gflops": 905, "sustained_gflops": 800}}
    note = Measurement(source="derived", status="measured", confidence="high")
    notes = {"/compute_units/bf16/sustained_gflops": note}
    known = rates(replace(descriptor(RTX, compute_units=units), measurements=notes))
    assert known.of("bf16") == Rate(800, "sustained", source="stated")
    sheet = {"/compute_units/fp16/throughput_gflops": note}
    assert rates(replace(descriptor(RTX), measurements=sheet)).of("fp16") == Rate(29000, "burst", source="stated")

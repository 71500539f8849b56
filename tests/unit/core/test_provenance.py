"""What `capability validate` asks beyond the schema: each value or gap with how it came about, and no contradiction."""

from typing import Any

import pytest

from vllm_probe.core.provenance import unfounded

GFLOPS = "/compute_units/fp32/throughput_gflops"
TOTAL = "/memory/total_bytes"


def note(status: str = "measured", source: str = "measured", **more: Any) -> dict[str, Any]:
    return {"source": source, "status": status, **more}


def document(**more: Any) -> dict[str, Any]:
    """A complete one of version 2, with one value and one gap."""
    return {
        "schema_version": "2.0",
        "device_type": "acme",
        "compute_units": {"fp32": {"throughput_gflops": 100.0}},
        "memory": {"total_bytes": None},
        "dma": {},
        "measurements": {
            GFLOPS: note(confidence="high", pct_of_peak=100.0),
            TOTAL: note("skipped", reason="no driver"),
        },
        **more,
    }


def found(value: dict[str, Any]) -> dict[str, str]:
    return {each.pointer: each.message for each in unfounded(value)}


def noted(pointer: str, **about: Any) -> dict[str, str]:
    """What is found where the entry of `pointer` in the measurements is another."""
    return found(document(measurements={**document()["measurements"], pointer: note(**about)}))


def test_a_document_that_says_of_each_value_how_it_came_about_is_complete() -> None:
    assert found(document()) == {}
    assert found(document(schema_version="2.9")) == {}


def test_a_gap_has_a_reason_in_the_measurements_or_among_the_unknown() -> None:
    assert list(noted(TOTAL, status="skipped")) == [TOTAL]
    measurements = {GFLOPS: note()}
    assert "reason" in found(document(measurements=measurements))[TOTAL]
    assert found(document(measurements=measurements, unknown={TOTAL: "no driver"})) == {}


def test_a_value_has_a_source_of_its_own_or_of_what_it_stands_in() -> None:
    cached = document(cache={"l2": 4096, "l1~data/0": 64})
    assert list(found(cached)) == ["/cache/l1~0data~10", "/cache/l2"]
    cached["measurements"]["/cache"] = note(source="queried")
    assert found(cached) == {}


@pytest.mark.parametrize("status", ["skipped", "unsupported", "error"])
def test_a_value_that_was_not_measured_is_none(status: str) -> None:
    assert noted(GFLOPS, status=status) == {GFLOPS: f"a value, and its status is {status}"}


def test_what_was_measured_is_a_value() -> None:
    assert noted(TOTAL, reason="it is") == {TOTAL: "nothing, and its status is measured"}


@pytest.mark.parametrize(
    "pointer", ["/memory/bandwidth", "/dma/a/b", "memory", "/device_type/x", "/compute_units/fp32/throughput_gflops/0"]
)
def test_a_measurement_of_nothing_in_the_document_is_named(pointer: str) -> None:
    assert "there is none" in noted(pointer, status="skipped", reason="why")[pointer]


def test_points_of_a_curve_are_described_by_their_index() -> None:
    curve = document(compute_units={"fp32": {"throughput_gflops": 1.0, "curve": [[1, 5.0]]}})
    pointer = "/compute_units/fp32/curve"
    curve["measurements"] |= {pointer: note(), f"{pointer}/0": note("noisy")}
    assert found(curve) == {}
    curve["measurements"][f"{pointer}/1"] = note("noisy")
    assert list(found(curve)) == [f"{pointer}/1"]


@pytest.mark.parametrize(
    "doubtful",
    [
        {"pct_of_peak": 10000.0},
        {"spread_pct": 40.0},
        {"samples": 0},
        {"status": "noisy"},
        {"status": "throttled"},
        {"status": "suspect", "reason": "faster than its data sheet"},
    ],
    ids=str,
)
def test_what_is_in_doubt_has_no_high_confidence(doubtful: dict[str, Any]) -> None:
    assert "its confidence is high" in noted(GFLOPS, confidence="high", **doubtful)[GFLOPS]
    assert noted(GFLOPS, confidence="medium", **doubtful) == {}


def test_up_to_the_peak_and_in_calm_rounds_confidence_may_be_high() -> None:
    assert noted(GFLOPS, confidence="high", pct_of_peak=105.0, spread_pct=10.0, samples=3) == {}


def test_what_is_suspect_was_not_simply_measured_and_has_a_reason() -> None:
    assert "its verdict is suspect" in noted(GFLOPS, verdict="suspect", reason="above its peak")[GFLOPS]
    assert "no reason" in noted(GFLOPS, status="suspect", confidence="low")[GFLOPS]
    assert noted(GFLOPS, status="suspect", verdict="suspect", reason="above its peak", confidence="low") == {}


def test_a_rate_that_was_measured_is_not_above_its_curve() -> None:
    def rated(rate: float, source: str) -> dict[str, str]:
        given = document(compute_units={"fp32": {"throughput_gflops": rate, "curve": [[1, 5.0], [8, 9.0]]}})
        given["measurements"] |= {GFLOPS: note(source=source), "/compute_units/fp32/curve": note()}
        return found(given)

    assert rated(9.0, "measured") == {}
    assert rated(9999.0, "measured") == {GFLOPS: "9999, and no point of its curve is above 9"}
    assert rated(9999.0, "datasheet") == {}


def test_of_version_1_and_of_a_document_without_measurements_nothing_is_asked() -> None:
    without = document()
    del without["measurements"]
    assert found(without) == {}
    first = document(measurements={})
    del first["schema_version"]
    assert found(first) == {}


def test_a_key_of_a_later_version_needs_no_source() -> None:
    assert found(document(memory={"total_bytes": None, "later": 3})) == {}

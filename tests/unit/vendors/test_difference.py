from typing import Any

import pytest

from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import from_json
from vllm_probe.vendors.difference import Change, Outcome, compare, measured_in_both


def document(**sections: Any) -> Capability:
    empty: dict[str, Any] = {"device_type": "cuda", "compute_units": {}, "memory": {}, "dma": {}}
    return from_json(Capability, empty | sections)


def test_what_differs_is_shown_with_its_ratio_and_the_rest_is_counted() -> None:
    old = document(memory={"bandwidth_gb_s": 500, "alignment_bytes": 64}, dma={"engine_count": 2})
    new = document(memory={"bandwidth_gb_s": 750, "alignment_bytes": 64}, device={"name": "Card"})
    found = compare("a", old, "b", new)
    assert found.changes == (
        Change(pointer="/device/name", old=None, new="Card", ratio=None),
        Change(pointer="/dma/engine_count", old=2, new=None, ratio=None),
        Change(pointer="/memory/bandwidth_gb_s", old=500, new=750, ratio=1.5),
    )
    assert (found.old, found.new, found.same) == ("a", "b", 2)


def test_curves_are_compared_at_the_same_number_of_rows_in_order_of_rows() -> None:
    old = document(compute_units={"bf16": {"curve": [[32, 10], [128, 30], [1024, 40]]}})
    new = document(
        compute_units={"bf16": {"curve": [[32, 20], [256, 30], [1024, 50]]}},
        weight_only={"int4": {"curve": [[1, 5, 6]]}},
    )
    assert [(change.pointer, change.ratio) for change in compare("a", old, "b", new).changes] == [
        ("/compute_units/bf16/curve/32", 2.0),
        ("/compute_units/bf16/curve/128", None),
        ("/compute_units/bf16/curve/256", None),
        ("/compute_units/bf16/curve/1024", 1.25),
        ("/weight_only/int4/curve/1", None),
    ]


def test_flags_and_zeros_have_no_ratio_and_provenance_is_no_value() -> None:
    note = {"/memory/bandwidth_gb_s": {"source": "measured", "status": "measured"}}
    old = document(memory={"managed_memory_supported": False, "read_gb_s": 0}, schema_version="2.0")
    new = document(memory={"managed_memory_supported": True, "read_gb_s": 9}, measurements=note, tool_version="9")
    changes = compare("a", old, "b", new).changes
    assert [change.ratio for change in changes] == [None, None]


def test_counts_widths_and_lists_have_no_ratio() -> None:
    def of(units: int, widths: list[int], engines: int) -> Capability:
        group = {"native": widths[-1], "supported": widths}
        return document(device={"num_units": units}, execution={"group_width": group}, dma={"engine_count": engines})

    changes = compare("a", of(512, [8, 16], 1), "b", of(128, [32], 2)).changes
    assert [(change.pointer, change.ratio) for change in changes] == [
        ("/device/num_units", None),
        ("/dma/engine_count", None),
        ("/execution/group_width/native", None),
        ("/execution/group_width/supported", None),
    ]


def timed(rate: float, pointer: str = "/memory/read_gb_s", **about: Any) -> Capability:
    known = {"source": "measured", "status": "measured", "samples": 9, "spread_pct": 1.0, "unit": "GB/s"}
    return document(memory={"read_gb_s": rate}, schema_version="2.0", measurements={pointer: known | about})


def outcome(old: Capability, new: Capability) -> Outcome | None:
    (change,) = compare("a", old, "b", new).changes
    return change.outcome


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(94.5, "AMBIGUOUS"), (93.0, "SLOWER"), (96.0, "SAME"), (104.0, "SAME"), (106.0, "AMBIGUOUS"), (107.0, "FASTER")],
)
def test_a_measured_value_is_judged_by_the_gap_between_the_ranges_of_its_rounds(rate: float, expected: str) -> None:
    assert outcome(timed(100.0), timed(rate)) == expected


def test_wide_rounds_and_doubtful_values_decide_nothing() -> None:
    assert outcome(timed(100.0, spread_pct=40.0), timed(80.0)) == "AMBIGUOUS"
    assert outcome(timed(100.0), timed(50.0, status="noisy")) == "AMBIGUOUS"
    assert outcome(timed(100.0, status="throttled"), timed(200.0)) == "AMBIGUOUS"
    assert outcome(timed(100.0), timed(98.0, status="noisy")) == "SAME"


def test_what_heat_holds_down_is_slower_and_what_other_work_does_is_not() -> None:
    assert outcome(timed(100.0), timed(50.0, status="throttled", reason="held down by thermal")) == "SLOWER"
    assert (
        outcome(timed(100.0), timed(50.0, status="throttled", reason="threads had 40 % of the processor"))
        == "AMBIGUOUS"
    )
    assert outcome(timed(100.0), timed(200.0, status="throttled", reason="held down by thermal")) == "AMBIGUOUS"


@pytest.mark.parametrize(
    ("status", "expected"), [("error", "SLOWER"), ("unsupported", "SLOWER"), ("skipped", "AMBIGUOUS")]
)
def test_what_fails_now_is_slower_and_what_was_left_out_is_not(status: str, expected: str) -> None:
    note = {"/memory/read_gb_s": {"source": "measured", "status": status, "reason": "the device went away"}}
    lost = document(memory={"read_gb_s": None}, schema_version="2.0", measurements=note)
    assert outcome(timed(100.0), lost) == expected


def test_of_a_time_less_is_faster() -> None:
    assert outcome(timed(100.0, unit="us"), timed(50.0, unit="us")) == "FASTER"
    assert outcome(timed(50.0, unit="us"), timed(100.0, unit="us")) == "SLOWER"


@pytest.mark.parametrize(("old", "new", "expected"), [(64, 4, "FASTER"), (4, 64, "SLOWER")])
def test_of_an_alignment_that_is_needed_less_is_better(old: int, new: int, expected: str) -> None:
    pointer = "/memory/full_rate_alignment_bytes"
    note = {pointer: {"source": "measured", "status": "measured", "samples": 40, "spread_pct": 0.5}}
    before, after = (document(memory={pointer.split("/")[2]: each}, measurements=note) for each in (old, new))
    (change,) = compare("A", before, "B", after).changes
    assert change.outcome == expected


def test_values_from_a_data_sheet_are_not_judged() -> None:
    sheet: dict[str, Any] = {"source": "datasheet", "samples": None, "spread_pct": None}
    assert outcome(timed(100.0, **sheet), timed(50.0)) is None
    assert outcome(timed(100.0), timed(50.0, **sheet)) is None
    assert outcome(timed(100.0, **sheet), timed(50.0, **sheet)) is None


def test_a_point_of_a_curve_is_judged_by_its_own_measurement() -> None:
    def curve(*rates: float, spread_pct: float) -> Capability:
        about = {"source": "measured", "status": "measured", "samples": 9, "unit": "GFLOP/s"}
        points = [[32, rates[0]], [64, rates[1]]]
        measurements = {
            "/compute_units/bf16/curve/0": about | {"spread_pct": spread_pct},
            "/compute_units/bf16/curve/1": about | {"spread_pct": 1.0},
        }
        return document(compute_units={"bf16": {"curve": points}}, schema_version="2.0", measurements=measurements)

    found = compare("a", curve(10, 20, spread_pct=90.0), "b", curve(5, 10, spread_pct=90.0))
    assert [change.outcome for change in found.changes] == ["AMBIGUOUS", "SLOWER"]
    assert found.outcomes() == {"SAME": 0, "FASTER": 0, "SLOWER": 1, "AMBIGUOUS": 1}


def test_of_a_run_only_what_both_measured_is_kept_and_what_it_can_measure_no_more() -> None:
    timed = {"source": "measured", "status": "measured", "samples": 5}
    places = [f"/memory/{name}_gb_s" for name in ("read", "copy", "triad")]
    old = document(
        memory={"read_gb_s": 10, "copy_gb_s": 10, "triad_gb_s": 10}, measurements=dict.fromkeys(places, timed)
    )
    new = document(
        memory={"read_gb_s": 20},
        device={"name": "Card"},
        measurements={
            places[0]: timed,
            places[1]: timed | {"status": "skipped", "samples": 0},
            places[2]: timed | {"status": "error", "samples": 0},
        },
    )
    found = measured_in_both(compare("a", old, "b", new))
    assert [(each.pointer, each.outcome) for each in found.changes] == [(places[0], "FASTER"), (places[2], "SLOWER")]

from typing import Any

from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import from_json
from vllm_probe.vendors.difference import Change, compare


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

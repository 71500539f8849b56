import json
from pathlib import Path

from vllm_probe.vendors.descriptors import Place, SearchResult
from vllm_probe.vendors.listing import list_descriptors


def test_descriptors_are_listed_in_order_with_what_they_say_and_whom_they_serve(tmp_path: Path) -> None:
    document = {
        "device_type": "cuda",
        "device": {"name": "Card", "arch": "sm_89"},
        "compute_units": {
            "bf16": {"throughput_gflops": 200, "sustained_gflops": 150},
            "int8": {"throughput_gflops": 300},
            "fp32": {"throughput_gflops": None},
        },
        "memory": {"total_bytes": 1024, "bandwidth_gb_s": 500},
        "dma": {},
    }
    first, broken = tmp_path / "card.capability.json", tmp_path / "broken.capability.json"
    first.write_text(json.dumps(document))
    broken.write_text("{")
    place, empty = Place(name="bundled", path=tmp_path), Place(name="empty", path=tmp_path / "nowhere")
    found = {
        "gpu0": (SearchResult(place=place, path=first, used=True, reason=""),),
        "gpu1": (SearchResult(place=place, path=first, reason="is for Card, not Other"),),
    }
    unread, read = list_descriptors([empty, place], found)
    assert (read.name, read.place, read.serves) == ("card", "bundled", ("gpu0",))
    assert (read.device_type, read.device, read.arch) == ("cuda", "Card", "sm_89")
    assert (read.memory_bytes, read.bandwidth_gb_s) == (1024, 500)
    assert read.gflops == {"bf16": 150, "int8": 300}
    assert unread.device_type is None
    assert "broken.capability.json" in (unread.error or "")


def test_a_sustained_rate_that_negotiate_does_not_believe_is_not_listed(tmp_path: Path) -> None:
    derived = {"source": "derived", "status": "throttled", "confidence": "low"}
    document = {
        "device_type": "cpu",
        "device": {"name": "Processor"},
        "compute_units": {"fp32": {"throughput_gflops": 12.8, "sustained_gflops": 0.783}},
        "memory": {},
        "dma": {},
        "measurements": {"/compute_units/fp32/sustained_gflops": derived},
    }
    (tmp_path / "busy.capability.json").write_text(json.dumps(document))
    (listed,) = list_descriptors([Place(name="cache", path=tmp_path)], {})
    assert listed.gflops == {"fp32": 12.8}

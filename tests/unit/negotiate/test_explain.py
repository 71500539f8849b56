"""The record as a text tree."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from tests.unit.negotiate.cases import (
    ASCEND,
    CPU,
    EMBEDDING,
    GIB,
    GLM_5_3,
    H100,
    MINILM,
    QWEN3_8B,
    RTX,
    config,
    decision,
)
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.units import format_bytes, parse_size
from vllm_probe.models import catalogue
from vllm_probe.negotiate.explain import explain, room_of, shortage, way_out
from vllm_probe.negotiate.laws import table
from vllm_probe.vendors.descriptors import load_capability

SHIPPED = sorted((Path(__file__).parents[3] / "capabilities").glob("*.json"))


def test_the_reference_machine_is_explained(snapshot: SnapshotAssertion) -> None:
    assert explain(config(MINILM, CPU, capability_name="reference")) == snapshot


def test_a_version_1_document_is_explained(snapshot: SnapshotAssertion) -> None:
    assert explain(config(EMBEDDING, ASCEND, engine="vllm", capability_name="ascend.json")) == snapshot


def test_a_model_that_does_not_fit_is_explained(snapshot: SnapshotAssertion) -> None:
    text = explain(config(GLM_5_3, RTX, engine="vllm", device_memory_bytes=24 * GIB))
    assert text[text.index("├─ budget") :] == snapshot


def test_every_parameter_has_a_branch_with_its_rule_and_its_carrier() -> None:
    lines = explain(config(MINILM, CPU)).splitlines()
    for key in table("parameters"):
        (index,) = [number for number, line in enumerate(lines) if line.startswith(f"├─ {key} = ")]
        assert lines[index + 1].startswith("│  ├─ because ")
    assert sum(
        line.startswith(("│  └─ passed on", "│  └─ not passed on to", "│  └─ read from")) for line in lines
    ) == len(table("parameters"))


def test_a_pinned_value_is_marked() -> None:
    assert "├─ dtype = float32 (pinned)" in explain(config(MINILM, CPU, pins={"dtype": "float32"}))


def test_the_way_out_is_what_would_boot_and_never_what_would_not() -> None:
    """A pinned method that does not boot keeps the checkpoint, which does not either, among its alternatives."""
    found = config(QWEN3_8B, H100, engine="vllm", device_memory_bytes=5 * GIB, pins={"quantization": "w8a8"})
    assert next(each.verdict for each in found.alternatives) == "oom"
    assert way_out(found).startswith("this would boot: --")
    assert "--quantization none" not in way_out(found)


def test_the_way_out_of_a_length_over_the_limit_is_the_largest_that_boots() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"max_model_len": 200_000})
    assert way_out(found).startswith("this would boot: --max-model-len 40960; --model ")
    assert "GiB" not in way_out(found)


def test_the_way_out_of_too_little_memory_is_more_of_it_and_of_bytes_their_unit() -> None:
    tiny, small = (config(MINILM, CPU, device_memory_bytes=size) for size in (24, 64 << 20))
    assert not tiny.alternatives
    assert way_out(tiny).endswith("MiB of memory: give the memory with its unit, such as --device-memory 24GiB")
    assert way_out(small).startswith("take a device with ")
    assert way_out(small).endswith("MiB of memory, or a smaller model")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(catalogue.entries())),
    st.sampled_from(SHIPPED),
    st.sampled_from(["vllm", "vllm", "bundled"]),
    st.sampled_from(["throughput", "latency", "memory"]),
    st.sampled_from([{}, {"gpu_memory_utilization": 0.3}, {"enforce_eager": True}, {"tensor_parallel_size": 2}]),
    st.sampled_from([1 << 20, 100 << 20, GIB, 6 * GIB]),
)
def test_a_device_with_the_memory_that_is_named_boots(
    name: str, path: Path, engine: str, objective: str, pins: dict[str, Any], memory: int
) -> None:
    asked: dict[str, Any] = {"engine": engine, "objective": objective, "pins": pins}
    spec, document = catalogue.load(name), load_capability(path)
    try:
        found = config(spec, document, device_memory_bytes=memory, **asked)
    except BadUsage:
        return
    said = way_out(replace(found, alternatives=()))
    if said.startswith("leave out --gpu-memory-utilization 0.3: "):
        asked["pins"] = {}
    if words := re.search(r"a device with ([\d.]+ .i?B) of memory", said):
        larger = config(spec, document, device_memory_bytes=parse_size(words[1]), **asked)
        assert larger.budget.verdict == "boots"


def test_the_memory_that_is_named_is_no_more_than_what_boots() -> None:
    asked: dict[str, Any] = {"engine": "vllm", "pins": {"quantization": "none"}}
    said = way_out(replace(config(QWEN3_8B, H100, device_memory_bytes=GIB, **asked), alternatives=()))
    assert said.startswith("take a device with 17.")
    enough = parse_size(said.split(" with ")[1].split(" of ")[0])
    verdicts = [config(QWEN3_8B, H100, device_memory_bytes=enough - less, **asked).budget for less in (0, GIB // 50)]
    assert [each.verdict == "boots" for each in verdicts] == [True, False]


def test_a_pinned_share_is_left_out_where_a_smaller_device_is_enough_without_it() -> None:
    asked: dict[str, Any] = {"engine": "vllm", "device_memory_bytes": 8 * GIB}
    only = {"quantization": "none"}
    small, large = (
        way_out(
            replace(config(QWEN3_8B, H100, pins=only | {"gpu_memory_utilization": share}, **asked), alternatives=())
        )
        for share in (0.05, 0.99)
    )
    free = way_out(replace(config(QWEN3_8B, H100, pins=only, **asked), alternatives=()))
    enough = free.removeprefix("take ").partition(",")[0]
    assert small == f"leave out --gpu-memory-utilization 0.05: {enough} is enough then; or take a smaller model"
    assert large.startswith("take a device with ")


def test_what_no_memory_makes_up_for_is_answered_without_a_size() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_memory_bytes": 1 << 20})
    assert way_out(replace(found, alternatives=())) == "leave out what is pinned, or take a smaller model"


def test_a_cache_that_is_too_small_is_named_with_the_least_that_is_enough() -> None:
    pinned = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_memory_bytes": GIB, "max_model_len": 40960})
    assert shortage(pinned) == (
        "--kv-cache-memory-bytes is too small for Qwen/Qwen3-8B: "
        "one sequence of 40960 tokens takes 5.63 GiB (6042157056 bytes)"
    )
    pins = {"kv_cache_memory_bytes": 6042157056, "max_model_len": 40960}
    assert config(QWEN3_8B, H100, engine="vllm", pins=pins).budget.verdict == "boots"
    left = config(
        QWEN3_8B, H100, engine="vllm", device_memory_bytes=19 * GIB, pins={"max_model_len": 40960, "max_num_seqs": 8}
    )
    assert left.budget.verdict == "kv_too_small"
    assert shortage(left).endswith(
        ": too little is left for the KV cache, of which one sequence of 40960 tokens takes 5.63 GiB"
    )
    assert "kv_too_small" not in shortage(pinned) + shortage(left)


def test_the_way_out_of_a_request_that_nothing_takes_is_a_shorter_one() -> None:
    found = config(MINILM, CPU, device_memory_bytes=24, input_len=10_000_000)
    assert way_out(found) == "ask for shorter requests, or take a model with a longer context"


def test_what_decided_that_a_model_does_not_fit_is_named_and_not_the_capacity_alone() -> None:
    spec, alone = catalogue.load("Llama-3.1-70B"), {"quantization": "none"}
    card = H100 | {"memory": {**H100["memory"], "total_bytes": 140 * GIB, "usable_bytes": 136 * GIB}}
    usable = config(spec, card, engine="vllm", pins=alone | {"kv_cache_memory_bytes": 4 * GIB})
    limit = decision(usable, "gpu_memory_utilization").inputs["limit_bytes"]
    assert limit < 136 * GIB < 140 * GIB
    assert usable.budget.verdict == "oom"
    assert room_of(usable) == f"the {format_bytes(limit)} usable of 140.00 GiB"
    assert f"of which {format_bytes(limit)} are usable" in decision(usable, "gpu_memory_utilization").rule
    share = config(spec, card, engine="vllm", pins=alone | {"gpu_memory_utilization": 0.5})
    assert room_of(share) == "the 70.00 GiB that gpu_memory_utilization 0.5 gives of 140.00 GiB"
    more = config(spec, card, engine="vllm", pins=alone | {"gpu_memory_utilization": 0.99})
    assert room_of(more) == "the 136.00 GiB usable of 140.00 GiB"


def test_how_the_speed_was_predicted_has_a_line_beside_its_formula() -> None:
    speed = config(MINILM, CPU).predicted
    assert speed.summary == "roofline over bf16 974 GFLOP/s (measured, in short runs) and 34 GB/s (stated)"
    assert len(speed.method) > 2 * len(speed.summary)
    withheld = config(EMBEDDING, ASCEND, engine="vllm").predicted
    assert withheld.summary == withheld.method

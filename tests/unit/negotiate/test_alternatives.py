"""What else would boot."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.negotiate.cases import (
    CPU,
    EMBEDDING,
    GIB,
    GLM_5_3,
    H100,
    MINILM,
    QWEN3_8B,
    RTX,
    config,
    selection,
)
from vllm_probe.core.config import Alternative
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.units import parse_size
from vllm_probe.models import catalogue
from vllm_probe.negotiate.alternatives import alternatives
from vllm_probe.negotiate.select import Selection
from vllm_probe.vendors.descriptors import load_capability

SHIPPED = Path(__file__).parents[3] / "capabilities"
RTX_4060 = SHIPPED / "rtx-4060.capability.json"


def ways(found: Selection) -> list[Alternative]:
    return list(alternatives(found))


def test_the_checkpoints_own_format_is_the_first_alternative_with_its_own_budget() -> None:
    found = selection(EMBEDDING, RTX, engine="vllm", device_memory_bytes=8 * GIB)
    (own,) = ways(found)
    assert own.change == "--quantization none"
    assert own.budget == found.own.budget
    assert own.requested_bytes == own.budget.requested_bytes
    assert own.budget.weights_bytes > found.chosen.budget.weights_bytes


def test_what_boots_needs_no_alternative() -> None:
    assert ways(selection(MINILM, CPU)) == []


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        ({"pins": {"max_model_len": 200_000}}, "--max-model-len 40960"),
        ({"input_len": 300, "pins": {"max_model_len": 200}}, "--max-model-len 40960"),
        ({"input_len": 50_000}, "--input-len 40832"),
        ({"input_len": 10, "output_len": 50_000}, "--input-len 20480 --output-len 20480"),
        ({"input_len": 50_000, "pins": {"max_model_len": 200_000}}, "--max-model-len 40960 --input-len 40832"),
        ({"input_len": 50_000, "pins": {"max_model_len": 1000}}, "--input-len 872"),
    ],
)
def test_what_no_device_answers_is_met_with_the_nearest_question_that_it_would(
    request_: dict[str, Any], first: str
) -> None:
    found = selection(QWEN3_8B, H100, engine="vllm", **request_)
    assert found.chosen.budget.verdict == "invalid"
    assert ways(found)[0].change == first
    assert all(each.verdict == "boots" for each in ways(found))
    words = first.split()
    options = {key[2:].replace("-", "_"): int(value) for key, value in zip(words[::2], words[1::2], strict=True)}
    asked = {key: value for key, value in request_.items() if key != "pins"}
    lengths = {key: value for key, value in options.items() if key in ("input_len", "output_len")}
    pins = request_.get("pins", {}) | {key: value for key, value in options.items() if key == "max_model_len"}
    again = selection(QWEN3_8B, H100, engine="vllm", **{**asked, **lengths, "pins": pins})
    assert again.chosen.boots


def test_a_length_over_the_limit_is_lowered_to_what_the_memory_holds() -> None:
    found = selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=20 * GIB, pins={"max_model_len": 200_000})
    (option, length), *_ = (each.change.split() for each in ways(found))
    assert option == "--max-model-len"
    assert int(length) < 40_960
    pins = {"max_model_len": int(length)}
    assert selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=20 * GIB, pins=pins).chosen.boots
    pins = {"max_model_len": int(length) + 16}
    assert not selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=20 * GIB, pins=pins).chosen.boots


def test_a_length_over_the_limit_is_also_met_with_models_that_take_it() -> None:
    changes = [each.change for each in ways(selection(QWEN3_8B, H100, engine="vllm", pins={"max_model_len": 200_000}))]
    assert len(changes) == 3
    for change in changes[1:]:
        other = catalogue.load(change.removeprefix("--model "))
        assert other.max_model_len >= 200_000


def test_a_context_that_is_too_long_is_first_answered_with_a_shorter_one() -> None:
    found = selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=19 * GIB, pins={"max_model_len": 40960})
    changes = [each.change for each in ways(found)]
    assert changes[0] == f"--max-model-len {found.chosen.budget.estimated_max_model_len}"
    assert changes[1:4] == ["--quantization fp8", "--quantization w8a8", "--quantization awq"]
    assert "--tensor-parallel-size 2" in changes
    assert all(each.verdict == "boots" for each in ways(found))
    assert all(each.requested_bytes is not None and each.requested_bytes <= 19 * GIB for each in ways(found))


def test_an_eight_bit_cache_is_offered_where_it_is_enough() -> None:
    found = selection(
        QWEN3_8B, H100, engine="vllm", device_memory_bytes=22 * GIB, pins={"max_model_len": 40960, "max_num_seqs": 8}
    )
    assert found.chosen.budget.verdict == "kv_too_small"
    assert "--kv-cache-dtype fp8" in [each.change for each in ways(found)]
    ampere = selection(
        QWEN3_8B,
        H100 | {"device": {**H100["device"], "arch": "sm_86"}},
        engine="vllm",
        device_memory_bytes=22 * GIB,
        pins={"max_model_len": 40960, "max_num_seqs": 8},
    )
    assert "--kv-cache-dtype fp8" not in [each.change for each in ways(ampere)]


def test_glm_on_a_24_gb_card_needs_a_quantized_twin_on_many_or_another_model() -> None:
    found = selection(GLM_5_3, RTX, engine="vllm", device_memory_bytes=24 * GIB)
    changes = [each.change for each in ways(found)]
    assert found.chosen.budget.verdict == "oom"
    others = ["--model Qwen3.6-35B-A3B-NVFP4", "--model gpt-oss-20b"]
    assert changes == ["--tensor-parallel-size 32 --quantization w4a16", *others]
    assert "32 such devices and a W4A16" in ways(found)[0].note


def test_glm_on_a_cpu_is_answered_with_models_that_an_engine_runs_there() -> None:
    changes = [each.change for each in ways(selection(GLM_5_3, CPU))]
    assert changes == ["--model gemma-2-9b --engine vllm", "--model Qwen3-8B --engine vllm"]


def test_an_embedding_model_that_does_not_fit_is_answered_with_embedding_models() -> None:
    found = selection(replace(EMBEDDING, num_layers=900), CPU, device_memory_bytes=2 * GIB)
    changes = [each.change for each in ways(found)]
    assert changes == ["--model bge-m3", "--model all-MiniLM-L6-v2"]


def added(change: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The question, model and descriptor among it, with the options of an alternative behind those it had."""
    words, again, pins = change.split(), dict(asked), dict(asked.get("pins", {}))
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        value: Any = True if name == "enforce_eager" else words.pop(0)
        if isinstance(value, str) and value[0].isdigit():
            value = int(value) if value.isdigit() else float(value) if "." in value else parse_size(value)
        if name == "model":
            again["spec"] = catalogue.load(value)
        elif name in ("engine", "input_len", "output_len"):
            again[name] = value
        else:
            pins[name] = value
    return again | {"pins": pins}


@pytest.mark.parametrize("gib", [13, 16, 17, 18, 19, 20, 24])
def test_every_alternative_boots_with_the_options_it_names(gib: int) -> None:
    asked: dict[str, Any] = {"engine": "vllm", "device_memory_bytes": gib * GIB, "pins": {"max_model_len": 20000}}
    asked |= {"spec": QWEN3_8B, "document": H100}
    for each in ways(selection(**asked)):
        again = selection(**added(each.change, asked))
        assert again.chosen.budget.verdict == "boots"
        if "--model" not in each.change:
            assert again.chosen.budget.weights_bytes == (each.budget and each.budget.weights_bytes)


PINS: dict[str, list[Any]] = {
    "quantization": ["none", "awq", "fp8"],
    "max_model_len": [4096, 40960, 500_000],
    "kv_cache_memory_bytes": [1 << 20, 2 * GIB],
    "gpu_memory_utilization": [0.1, 0.5],
    "tensor_parallel_size": [2],
    "pipeline_parallel_size": [2],
    "max_num_seqs": [1, 256],
    "max_num_batched_tokens": [512, 16384],
    "dtype": ["float16", "float32"],
    "enforce_eager": [True],
    "kv_cache_dtype": ["fp8"],
    "block_size": [32],
}
"""Values that are pinned in turn and together, small and large."""

pinned = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in PINS.items()})
shipped = sorted(SHIPPED.glob("*.json"))


@settings(max_examples=150, deadline=None)
@given(
    spec=st.sampled_from(sorted(catalogue.entries())).map(catalogue.load),
    path=st.sampled_from(shipped),
    engine=st.sampled_from(["vllm", "vllm", "bundled"]),
    objective=st.sampled_from(["throughput", "latency", "memory"]),
    pins=st.one_of(st.just({}), pinned),
    sizes=st.fixed_dictionaries(
        {},
        optional={
            "device_memory_bytes": st.integers(1, 640).map(lambda step: step * GIB // 4),
            "num_devices": st.sampled_from([1, 2, 8]),
            "input_len": st.sampled_from([1, 3000, 60_000]),
            "output_len": st.sampled_from([1, 3000, 60_000]),
            "engine_version": st.sampled_from(["0.8.5", "0.11.0"]),
        },
    ),
)
def test_whatever_is_said_to_boot_does_when_its_options_are_added_to_the_question(
    spec: ModelSpec, path: Path, engine: str, objective: str, pins: dict[str, Any], sizes: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {"engine": engine, "objective": objective, "pins": pins, **sizes}
    asked |= {"spec": spec, "document": load_capability(path)}
    try:
        found = config(**asked)
    except BadUsage:
        return
    for each in found.alternatives:
        if each.verdict in ("boots", "unknown"):
            again = config(**added(each.change, asked))
            assert again.budget.verdict in ("boots", "unknown"), each.change


def test_without_graphs_a_twin_that_needs_their_memory_boots_before_more_cards_are_asked_for() -> None:
    changes = {each.change: each for each in config(QWEN3_8B, load_capability(RTX_4060), engine="vllm").alternatives}
    first = next(iter(changes))
    assert first == "--quantization awq --enforce-eager"
    assert re.search(r"AWQ checkpoint of Qwen3-8B; slower: no CUDA graphs, under [\d.]+ tokens/s;", changes[first].note)
    assert "--tensor-parallel-size 4" in changes


def test_without_graphs_the_checkpoint_as_it_is_goes_before_one_that_has_to_be_obtained() -> None:
    asked: dict[str, Any] = {"engine": "vllm", "pins": {"quantization": "none"}}
    found = config(QWEN3_8B, H100, device_memory_bytes=round(17.8 * GIB), **asked)
    changes = [each.change for each in found.alternatives]
    assert changes[:2] == ["--enforce-eager", "--quantization fp8"]
    eager = config(QWEN3_8B, H100, engine="vllm", device_memory_bytes=17 * GIB, pins={"enforce_eager": True})
    assert "--enforce-eager" not in " ".join(each.change for each in eager.alternatives)


def test_a_checkpoint_that_is_quantized_already_is_offered_in_no_other_format() -> None:
    found = config(catalogue.load("gpt-oss-20b"), load_capability(RTX_4060), engine="vllm")
    changes = [each.change for each in found.alternatives]
    assert changes[0] == "--tensor-parallel-size 4"
    assert not any("--quantization" in change for change in changes)


def test_another_model_is_offered_for_the_pins_that_were_given() -> None:
    """A pinned method that is none of its checkpoint's, or a cache that holds nothing of it, rules a model out."""
    plain, small = (
        [each.change for each in config(GLM_5_3, H100, engine="vllm", pins=pins).alternatives]
        for pins in ({"quantization": "none"}, {"kv_cache_memory_bytes": 1 << 20})
    )
    offered = [catalogue.load(change.removeprefix("--model ")) for change in plain if "--model" in change]
    assert offered
    assert {each.quantization for each in offered} == {"none"}
    assert not any("--model" in change for change in small)


def test_a_pinned_share_that_is_too_small_is_answered_with_the_smallest_that_boots() -> None:
    asked: dict[str, Any] = {"engine": "vllm", "pins": {"gpu_memory_utilization": 0.01}}
    found = config(QWEN3_8B, H100, **asked)
    change = found.alternatives[0].change
    assert change.startswith("--gpu-memory-utilization 0.")
    share = float(change.split()[1])
    for tried, verdict in ((share, True), (share - 0.01, False)):
        pins = {"gpu_memory_utilization": tried}
        assert (config(QWEN3_8B, H100, engine="vllm", pins=pins).budget.verdict == "boots") is verdict


@pytest.mark.parametrize("size", [1024, 100 * GIB])
def test_a_pinned_cache_that_cannot_be_is_answered_with_the_smallest_that_boots(size: int) -> None:
    found = config(QWEN3_8B, H100, engine="vllm", pins={"kv_cache_memory_bytes": size, "quantization": "none"})
    change = found.alternatives[0].change
    assert change.startswith("--kv-cache-memory-bytes ")
    mebibytes = int(change.split()[1].removesuffix("MiB"))
    for tried, verdict in ((mebibytes, True), (mebibytes - 3, False)):
        pins = {"kv_cache_memory_bytes": tried << 20, "quantization": "none", "max_model_len": found.max_model_len}
        assert (config(QWEN3_8B, H100, engine="vllm", pins=pins).budget.verdict == "boots") is verdict

"""Which candidate wins, and what else would boot."""

from dataclasses import replace
from typing import Any

import pytest

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
    selection,
)
from vllm_probe.core.config import Alternative
from vllm_probe.models import catalogue
from vllm_probe.negotiate.select import Selection, alternatives


def quantization(found: Selection) -> str:
    return found.chosen.candidate.quantization


def methods(found: Selection) -> dict[Any, str]:
    return {each.value: each.because for each in found.methods}


def ways(found: Selection) -> list[Alternative]:
    return list(alternatives(found))


def test_a_quantized_twin_wins_when_it_is_fast_enough_and_names_its_checkpoint() -> None:
    found = selection(EMBEDDING, ASCEND, engine="vllm")
    assert quantization(found) == "awq"
    assert "1.88 times as fast on this workload, --objective throughput of 32 x (512 + 0) tokens" in found.rule
    assert found.chosen.candidate.requires == ("an AWQ checkpoint of Qwen3-Embedding-0.6B",)
    assert methods(found)["none"] == found.rule


def test_a_gain_under_the_threshold_is_not_worth_another_checkpoint() -> None:
    document = ASCEND | {"compute_units": {"fp16": {"throughput_gflops": 128}, "int4": {"throughput_gflops": 160}}}
    found = selection(EMBEDDING, document, engine="vllm")
    assert quantization(found) == "none"
    assert (
        "1.23 times as fast on this workload, --objective throughput of 32 x (512 + 0) tokens: under the 1.3"
        in methods(found)["awq"]
    )


def test_of_two_twins_with_one_rate_the_first_of_the_table_wins() -> None:
    document = RTX | {"compute_units": {"fp16": {"throughput_gflops": 100}, "int4": {"throughput_gflops": 400}}}
    found = selection(EMBEDDING, document, engine="vllm")
    assert quantization(found) == "awq"
    assert methods(found)["gptq"] == "no better than awq"
    assert methods(found)["w8a8"] == "the descriptor lists no int8"


def test_a_pinned_method_is_taken_measured_or_not() -> None:
    assert quantization(selection(EMBEDDING, RTX, engine="vllm", pins={"quantization": "none"})) == "none"
    assert quantization(selection(EMBEDDING, RTX, engine="vllm", pins={"quantization": "int4"})) == "awq"
    found = selection(EMBEDDING, RTX, engine="vllm", pins={"quantization": "gptq"})
    assert quantization(found) == "gptq"
    assert set(methods(found).values()) == {"--quantization gptq is pinned"}


def test_a_twin_that_boots_wins_over_a_checkpoint_that_does_not_whatever_its_speed() -> None:
    slow = RTX | {"compute_units": {"fp16": {"throughput_gflops": 29000}, "int8": {"throughput_gflops": 20000}}}
    found = selection(QWEN3_8B, slow, engine="vllm", device_memory_bytes=12 * GIB)
    assert quantization(found) == "w8a8"
    assert found.rule == "none does not fit: oom"
    assert ways(found)[0].verdict == "oom"


def test_each_objective_changes_the_choice_for_a_stated_reason() -> None:
    units = {"fp16": 100.0, "int8": 170.0, "int4": 110.0}
    document = RTX | {"compute_units": {word: {"throughput_gflops": 1000 * rate} for word, rate in units.items()}}
    rules = {}
    for objective, method in (("throughput", "w8a8"), ("latency", "awq"), ("memory", "awq")):
        found = selection(
            QWEN3_8B,
            document,
            engine="vllm",
            objective=objective,
            input_len=2048,
            output_len=40,
            device_memory_bytes=40 * GIB,
        )
        assert quantization(found) == method, objective
        rules[objective] = found.rule
    assert "--objective throughput of 32 x (2048 + 40) tokens" in rules["throughput"]
    assert "--objective latency of 1 x (2048 + 40) tokens" in rules["latency"]
    assert rules["memory"].startswith("--objective memory: 5.69 GiB of weights instead of 15.27 GiB")


def test_memory_first_takes_the_smallest_whose_rate_is_known_and_among_equals_the_first() -> None:
    units = {word: {"throughput_gflops": rate} for word, rate in (("fp16", 100), ("int8", 90), ("int4", 80))}
    found = selection(QWEN3_8B, RTX | {"compute_units": units}, engine="vllm", objective="memory")
    assert quantization(found) == "awq"
    assert methods(found)["w4a16"] == "no better than awq"
    assert quantization(selection(QWEN3_8B, RTX, engine="vllm", objective="memory")) == "w8a8"


def test_a_format_whose_speed_is_not_measured_is_an_alternative_where_nothing_else_fits() -> None:
    roomy, tight = (selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=size * GIB) for size in (40, 12))
    assert (quantization(roomy), quantization(tight)) == ("none", "none")
    assert methods(roomy)["awq"].startswith("the descriptor lists no int4")
    assert [way.change for way in ways(tight)][:2] == ["--quantization fp8", "--quantization w8a8"]


def test_of_two_that_fit_the_one_that_holds_more_wins() -> None:
    document = H100 | {"compute_units": H100["compute_units"] | {"fp8_e4m3": {"throughput_gflops": 800_000}}}
    found = [
        selection(QWEN3_8B, document, engine="vllm", device_memory_bytes=size * GIB, output_len=4)
        for size in (15, 22, 40)
    ]
    assert [quantization(each) for each in found] == ["fp8", "fp8", "none"]
    assert "none holds " in found[1].rule
    assert "of 32 sequences, fp8 holds 40960 tokens and 32" in found[1].rule


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


@pytest.mark.parametrize("gib", [13, 16, 17, 18, 19, 20, 24])
def test_every_alternative_boots_with_the_options_it_names(gib: int) -> None:
    pins = {"max_model_len": 20000}
    found = selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=gib * GIB, pins=pins)
    for each in ways(found):
        words = each.change.split()
        options = {key[2:].replace("-", "_"): value for key, value in zip(words[::2], words[1::2], strict=True)}
        again = pins | {key: int(value) if value.isdigit() else value for key, value in options.items()}
        if "model" not in again:
            redone = selection(QWEN3_8B, H100, engine="vllm", device_memory_bytes=gib * GIB, pins=again)
            assert redone.chosen.budget.verdict == "boots"
            assert redone.chosen.budget.weights_bytes == (each.budget and each.budget.weights_bytes)


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

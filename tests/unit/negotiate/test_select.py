"""Which candidate wins."""

from typing import Any

from tests.unit.negotiate.cases import (
    ASCEND,
    EMBEDDING,
    GIB,
    H100,
    QWEN3_8B,
    RTX,
    selection,
)
from vllm_probe.core.config import Alternative
from vllm_probe.negotiate.alternatives import alternatives
from vllm_probe.negotiate.select import Selection


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


def test_memory_first_takes_the_smallest_whatever_is_known_of_its_speed_and_among_equals_the_first() -> None:
    units = {word: {"throughput_gflops": rate} for word, rate in (("fp16", 100), ("int8", 90), ("int4", 80))}
    for document in (RTX | {"compute_units": units}, RTX):
        found = selection(QWEN3_8B, document, engine="vllm", objective="memory")
        assert quantization(found) == "awq"
        assert methods(found)["w4a16"] == "no better than awq"
        assert methods(found)["w8a8"] == "no better than awq"


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

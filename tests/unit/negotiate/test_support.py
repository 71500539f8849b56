"""What an engine certainly cannot run on a device: the device itself, a method, a number format."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import ARC, ASCEND, CPU, H100, QWEN3_8B, RTX, case, config, decision, rejections
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.candidates import match
from vllm_probe.negotiate.explain import unsupported

GPT_OSS = catalogue.load("gpt-oss-20b")
AVX2 = CPU | {
    "device": {"id": "cpu0", "vendor": "cpu", "kind": "cpu", "arch": "avx2"},
    "compute_units": {"bf16": {"throughput_gflops": 20}, "fp32": {"throughput_gflops": 200}},
    "execution": {"matrix_instructions": ["avx2"]},
}


def on(arch: str | None, device_type: str = "nvidia") -> dict[str, Any]:
    return H100 | {"device_type": device_type, "device": {**H100["device"], "arch": arch}}


def stored(method: str) -> ModelSpec:
    return replace(QWEN3_8B, quantization=method)


def answer(spec: ModelSpec, document: dict[str, Any], **request: Any) -> RuntimeConfig:
    return config(spec, document, engine="vllm", **request)


@pytest.mark.parametrize(
    ("arch", "version", "says"),
    [
        ("sm_61", None, "vllm 0.33 runs on sm_75 and newer, this is sm_61: no release does"),
        ("sm_61", "0.11.0", "vllm 0.11.0 runs on sm_70 and newer, this is sm_61: no release does"),
        ("sm_70", None, "vllm 0.33 runs on sm_75 and newer, this is sm_70: 0.14 is the last release that does"),
        ("sm_70", "0.14.1", None),
        ("sm_70", "0.15", "0.14 is the last release that does"),
        ("sm_75", None, None),
        ("sm_121", None, None),
    ],
)
def test_a_card_older_than_a_release_runs_on_is_refused_with_the_release_that_does(
    arch: str, version: str | None, says: str | None
) -> None:
    found = answer(QWEN3_8B, on(arch), engine_version=version)
    reason = unsupported(found)
    assert (says is None) == (reason is None)
    assert says is None or (
        says in (reason or "") and found.budget.verdict == "invalid" and found.warnings[0] == reason
    )


def test_an_older_release_that_lacks_the_architecture_is_no_way_out() -> None:
    found = answer(catalogue.load("Qwen3.6-27B-NVFP4"), on("sm_70"))
    lacks = "it has no Qwen3_5ForConditionalGeneration: none runs Qwen3.6-27B-NVFP4 here"
    assert str(unsupported(found)).endswith(f"0.14 is the last release that does, and {lacks}")
    assert not any("--engine-version" in each.change for each in found.alternatives)


@pytest.mark.parametrize(
    ("arch", "device_type", "runs"),
    [
        ("gfx1030", "amd", False), ("gfx908", "amd", False), ("gfx90a", "amd", True), ("gfx1151", "amd", True),
        ("gfx1201", "amd", True), ("310b4", "ascend", False), ("910a", "ascend", False), ("910b3", "ascend", True),
        ("910_93", "ascend", True), ("310p3", "ascend", True), ("bmg", "intel_xpu", True), ("avx2", "cpu", True),
    ],
)  # fmt: skip
def test_an_architecture_that_no_release_names_is_refused(arch: str, device_type: str, runs: bool) -> None:
    reason = unsupported(answer(QWEN3_8B, on(arch, device_type)))
    assert (reason is None) == runs
    assert runs or f"this is {arch}: no release" in str(reason)


@pytest.mark.parametrize(
    ("arch", "device_type", "runs"),
    [
        ("910B3", "ascend", True), ("Ascend910B3", "ascend", True), ("ascend910b3", "ascend", True),
        ("Ascend910_9392", "ascend", True), ("Ascend950PR", "ascend", True), ("Ascend910A", "ascend", False),
        ("GFX942", "amd", True), ("gfx942:sramecc+:xnack-", "amd", True), ("GFX1030", "amd", False),
        ("SM_90", "nvidia", True), ("sm_90a", "nvidia", True), ("SM_61", "nvidia", False),
    ],
)  # fmt: skip
def test_how_an_architecture_is_spelled_does_not_decide(arch: str, device_type: str, runs: bool) -> None:
    found = answer(QWEN3_8B, on(arch, device_type))
    assert (unsupported(found) is None) == runs
    assert found.dtype == "bfloat16" if runs else f"this is {arch}" in str(unsupported(found))
    assert not any("is none of" in each for each in found.warnings)


@pytest.mark.parametrize(
    ("arch", "device_type"),
    [("hopper", "nvidia"), ("9.0", "nvidia"), ("MI300X", "amd"), ("Ascend910", "ascend"), ("davinci", "ascend")],
)
def test_a_word_that_is_no_architecture_of_the_vendor_is_only_doubted(arch: str, device_type: str) -> None:
    found = answer(QWEN3_8B, on(arch, device_type))
    assert unsupported(found) is None
    said = f"the descriptor's arch '{arch}' is none of {device_type}"
    assert any("runs on" in each and said in each for each in found.warnings)


@pytest.mark.parametrize("document", [RTX, ASCEND, ARC, on(None, "amd")])
def test_an_unknown_architecture_is_only_doubted(document: dict[str, Any]) -> None:
    found = answer(QWEN3_8B, document)
    assert unsupported(found) is None
    is_floored = document is not ARC
    assert any("runs on" in each and "names no arch" in each for each in found.warnings) == is_floored


@pytest.mark.parametrize(
    ("spec", "arch", "version", "says"),
    [
        (GPT_OSS, "sm_75", None, "mxfp4 with vllm on nvidia: its kernels need sm_80, this is sm_75"),
        (stored("fp8"), "sm_70", "0.14", "fp8 with vllm on nvidia: its kernels need sm_75, this is sm_70"),
        (stored("w8a8"), "sm_100", None, "its kernels end with sm_90, this is sm_100: CUTLASS int8 ends with Hopper"),
        (stored("hqq"), "sm_90", None, "hqq with vllm on nvidia: vLLM does not know this method"),
        (stored("exl3"), "sm_90", None, "exl3 with vllm on nvidia: vLLM does not know this method"),
        (stored("unknown"), "sm_90", None, "unknown with vllm on nvidia: vLLM does not know this method"),
    ],
)
def test_a_checkpoint_without_kernels_is_refused_with_what_has_them(
    spec: ModelSpec, arch: str, version: str | None, says: str
) -> None:
    found = answer(spec, on(arch), engine_version=version)
    assert says in str(unsupported(found))
    assert found.budget.verdict == "invalid"
    assert found.predicted.tokens_per_s.value is None
    assert found.alternatives
    assert all(each.verdict == "boots" for each in found.alternatives)
    assert found.warnings.count(str(unsupported(found))) == 1


@pytest.mark.parametrize(
    ("spec", "arch", "device_type", "word"),
    [
        (stored("nvfp4"), "bmg", "intel_xpu", "nvfp4"), (stored("quark"), "bmg", "intel_xpu", "quark"),
        (replace(stored("fp8"), quantized_parts={"experts": "nvfp4"}), "bmg", "intel_xpu", "nvfp4"),
        (stored("experts_int8"), "gfx942", "amd", "experts_int8"), (stored("nvfp4"), "gfx942", "amd", None),
        (stored("w8a16"), "bmg", "intel_xpu", None), (stored("auto-round"), "gfx942", "amd", None),
        (stored("bitsandbytes"), "gfx942", "amd", None), (QWEN3_8B, "bmg", "intel_xpu", None),
    ],
)  # fmt: skip
def test_a_method_that_a_closed_list_lacks_is_refused(
    spec: ModelSpec, arch: str, device_type: str, word: str | None
) -> None:
    found = answer(spec, on(arch, device_type), device_memory_bytes=80 << 30)
    said = f"{word} with vllm on {device_type}: the engine takes no methods there but fp8, "
    assert (found.budget.verdict, said in str(unsupported(found))) == (("invalid", True) if word else ("boots", False))
    assert unsupported(answer(spec, on(arch, device_type), engine_version="0.31")) is None


def test_what_can_run_instead_of_a_pinned_method_does_not_name_what_cannot() -> None:
    with pytest.raises(BadUsage) as caught:
        match(case(stored("nvfp4"), on("bmg", "intel_xpu"), engine="vllm", pins={"quantization": "mxfp8"}))
    assert caught.value.hint == "these can: fp8, awq, gptq, w4a16, w8a8"
    with pytest.raises(BadUsage) as caught:
        match(case(QWEN3_8B, on("gfx1030", "amd"), engine="vllm", pins={"quantization": "mxfp8"}))
    assert caught.value.hint == "none can here"


@pytest.mark.parametrize(
    ("arch", "device_type", "since", "before"),
    [("bmg", "intel_xpu", "0.32", "0.31"), ("910b3", "ascend", "0.12", "0.11.2"), ("310p3", "ascend", "0.33", "0.11")],
)
def test_int8_checkpoints_run_on_intel_and_ascend_since_a_release(
    arch: str, device_type: str, since: str, before: str
) -> None:
    pins = {"quantization": "w8a8"}
    found = answer(stored("w8a8"), on(arch, device_type), engine_version=since)
    assert unsupported(found) is None
    assert not any("no kernels are known" in each for each in found.warnings)
    assert any("W8A8 of LLM-Compressor" in each for each in found.warnings) == (arch == "310p3")
    assert answer(QWEN3_8B, on(arch, device_type), engine_version=since, pins=pins).quantization == "w8a8"
    assert "its kernels came with" in str(
        unsupported(answer(stored("w8a8"), on(arch, device_type), engine_version=before))
    )
    with pytest.raises(BadUsage, match=f"its kernels came with .*, this is {before}"):
        answer(QWEN3_8B, on(arch, device_type), engine_version=before, pins=pins)


def test_int8_on_intel_is_offered_and_not_taken_for_the_rate_of_the_card() -> None:
    fast = ARC | {"compute_units": {"fp16": {"throughput_gflops": 100000}, "int8": {"throughput_gflops": 400000}}}
    found = answer(QWEN3_8B, fast, device_memory_bytes=40 << 30)
    assert found.quantization == "none"
    assert "in Triton kernels, far below the int8 rate of the card" in rejections(found, "quantization")["w8a8"]


def test_a_method_that_a_release_may_have_had_is_only_doubted() -> None:
    found = answer(stored("hqq"), on("sm_80"), engine_version="0.11")
    assert unsupported(found) is None
    assert any("no kernels are known" in each for each in found.warnings)
    assert any("no file says how many bits hqq stores" in each for each in found.warnings)
    sized = answer(replace(stored("hqq"), weight_bytes=5_000_000_000), on("sm_80"), engine_version="0.11")
    assert sized.budget.weights_bytes < found.budget.weights_bytes / 2
    assert not any("how many bits" in each for each in sized.warnings)


@pytest.mark.parametrize(
    ("spec", "document", "dtype"),
    [
        (
            GPT_OSS,
            H100 | {"compute_units": {"bf16": {"throughput_gflops": 100}, "fp16": {"throughput_gflops": 9000}}},
            0,
        ),
        (stored("awq"), AVX2, 0),
        (stored("gptq"), AVX2, 0),
        (stored("fp8"), AVX2, 0),
        (stored("w8a8"), AVX2, 2),
        (stored("torchao"), AVX2, 2),
        (QWEN3_8B, AVX2 | {"memory": {"total_bytes": 90 << 30, "kind": "shared"}}, 2),
    ],
)
def test_a_quantized_checkpoint_runs_in_a_format_that_its_method_takes(
    spec: ModelSpec, document: dict[str, Any], dtype: int
) -> None:
    small = replace(spec, weight_bytes=None, num_parameters=None)
    big = document | {"memory": document["memory"] | {"total_bytes": 90 << 30, "usable_bytes": 90 << 30}}
    assert answer(small, big).dtype == ("bfloat16", "float16", "float32")[dtype]


@pytest.mark.parametrize(
    ("spec", "document", "dtype", "message"),
    [
        (GPT_OSS, H100, "float16", "--dtype float16 cannot run: vllm computes mxfp4 in bfloat16 only"),
        (stored("awq"), H100, "float32", "vllm computes awq in bfloat16 or float16 only"),
        (stored("fp8"), H100, "float32", "vllm computes fp8 in bfloat16 or float16 only"),
        (replace(QWEN3_8B, quantization="fp8", quantized_parts={"experts": "mxfp4"}), H100, "float16", "mxfp4"),
        (QWEN3_8B, on("310p3", "ascend"), "bfloat16", "this is 310p3: vllm-ascend runs 310P in float16 alone"),
    ],
)
def test_a_pinned_format_that_the_checkpoint_cannot_be_computed_in_is_bad_usage(
    spec: ModelSpec, document: dict[str, Any], dtype: str, message: str
) -> None:
    with pytest.raises(BadUsage) as caught:
        match(case(spec, document, engine="vllm", pins={"dtype": dtype}))
    assert message in str(caught.value)
    assert dtype not in str(caught.value.hint).removeprefix("use one of ").split(", ")


def test_a_format_pinned_with_a_twin_that_does_not_take_it_is_bad_usage() -> None:
    with pytest.raises(BadUsage, match="vllm computes awq in bfloat16 or float16 only"):
        answer(QWEN3_8B, H100, pins={"dtype": "float32", "quantization": "awq"})


def test_twins_that_do_not_take_the_fastest_format_are_rejected_and_a_pinned_one_changes_it() -> None:
    found = answer(catalogue.load("Qwen3-0.6B"), AVX2)
    assert found.dtype == "float32"
    assert rejections(found, "quantization")["awq"] == (
        "vllm computes awq in bfloat16 or float16 only, float32 is taken here"
    )
    pinned = answer(catalogue.load("Qwen3-0.6B"), AVX2, pins={"quantization": "awq"})
    assert (pinned.dtype, pinned.quantization) == ("bfloat16", "awq")
    assert "computes awq in bfloat16 or float16 only" in rejections(pinned, "dtype")["float32"]


def test_a_310p_runs_in_float16_whatever_the_checkpoint_is() -> None:
    found = answer(QWEN3_8B, on("310p3", "ascend"))
    assert found.dtype == "float16"
    assert "float16 alone" in rejections(found, "dtype")["bfloat16"]
    assert answer(QWEN3_8B, on("910b3", "ascend")).dtype == "bfloat16"


def test_no_number_format_left_is_said_with_the_reason_of_each() -> None:
    reason = str(unsupported(answer(GPT_OSS, on("310p3", "ascend"))))
    assert reason.startswith("no number format is left: bfloat16: its kernels are for 910b")
    assert "float16: vllm computes mxfp4 in bfloat16 only; float32: vllm has no fp32 kernels here" in reason


def test_the_bundled_runtime_has_no_such_limits() -> None:
    found = config(catalogue.load("Qwen3-Embedding-0.6B"), on("sm_61"))
    assert unsupported(found) is None
    assert "unsupported" not in decision(found, "quantization").inputs

"""Each number format and quantization is accepted or rejected with what decided."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.unit.negotiate.cases import ARC, ASCEND, CPU, EMBEDDING, GIB, H100, MINILM, QWEN3_8B, RTX, case
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.candidates import Candidate, Match, match
from vllm_probe.negotiate.gemm import Part


def matched(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Match:
    return match(case(spec, document, **request))


def reasons(found: Match) -> dict[Any, str]:
    return {each.value: each.because for each in (*found.dtypes, *found.methods)}


def test_the_fastest_measured_format_wins_on_a_cpu_and_fp16_says_how_much_slower_it_is() -> None:
    found = matched(MINILM, CPU)
    assert found.own.dtype == "bfloat16"
    assert reasons(found)["float16"].startswith(
        "fp16 was measured 17 times slower than bf16: 56 against 974 GFLOP/s (in short runs)"
    )
    assert "about five times slower than bf16: 213 against 974" in reasons(found)["float32"]


@pytest.mark.parametrize("engine", ["bundled", "vllm"])
def test_fp16_is_never_chosen_on_a_cpu_without_fp16_arithmetic_however_fast_a_document_says_it_is(engine: str) -> None:
    fast = CPU | {"compute_units": {"fp16": {"throughput_gflops": 9000}, "fp32": {"throughput_gflops": 200}}}
    found = matched(MINILM, fast, engine=engine)
    assert found.own.dtype == "float32"
    assert "no fp16 arithmetic" in reasons(found)["float16"]
    unmeasured = matched(MINILM, CPU | {"compute_units": {}}, engine=engine)
    assert unmeasured.own.dtype == "float32"


def test_fp16_arithmetic_makes_it_a_choice_of_vllm_on_a_cpu() -> None:
    document = CPU | {
        "compute_units": {"fp16": {"throughput_gflops": 900}, "fp32": {"throughput_gflops": 200}},
        "execution": {"matrix_instructions": ["avx512_fp16"]},
    }
    assert matched(MINILM, document, engine="vllm").own.dtype == "float16"
    assert "no fp16 kernels" in reasons(matched(MINILM, document))["float16"]


def test_the_checkpoints_own_format_wins_what_bench_cannot_tell_apart() -> None:
    assert matched(QWEN3_8B, H100, engine="vllm").own.dtype == "bfloat16"
    halved = replace(QWEN3_8B, dtype="float16")
    assert matched(halved, H100, engine="vllm").own.dtype == "float16"


def test_a_bfloat16_checkpoint_is_not_run_in_float16_for_speed() -> None:
    document = H100 | {"compute_units": {"bf16": {"throughput_gflops": 100}, "fp16": {"throughput_gflops": 200}}}
    found = matched(QWEN3_8B, document, engine="vllm")
    assert found.own.dtype == "bfloat16"
    assert "65504" in reasons(found)["float16"]


def test_a_format_that_the_architecture_lacks_is_rejected_by_its_number() -> None:
    turing = H100 | {"device": {"arch": "sm_75"}}
    found = matched(QWEN3_8B, turing, engine="vllm")
    assert found.own.dtype == "float16"
    assert reasons(found)["bfloat16"] == "its kernels need sm_80, this is sm_75"
    pascal = matched(QWEN3_8B, H100 | {"device": {"arch": "sm_61"}}, engine="vllm")
    assert reasons(pascal)["awq"] == "its kernels need sm_75, this is sm_61"
    blackwell = matched(QWEN3_8B, H100 | {"device": {"arch": "sm_120"}}, engine="vllm")
    assert reasons(blackwell)["w8a8"].startswith("its kernels end with sm_90, this is sm_120: CUTLASS int8")


def twin_of(found: Match, name: str) -> Candidate:
    return next(twin for twin in found.twins if twin.quantization == name)


def test_below_its_native_architecture_fp8_is_stored_narrow_and_computed_wide() -> None:
    fast = H100 | {"compute_units": H100["compute_units"] | {"fp8_e4m3": {"throughput_gflops": 1_500_000}}}
    hopper, ampere = (
        twin_of(matched(QWEN3_8B, fast | {"device": {"arch": arch}}, engine="vllm"), "fp8")
        for arch in ("sm_90", "sm_80")
    )
    assert (hopper.compute, hopper.unmeasured) == ("fp8_e4m3", None)
    assert ampere.compute == "bf16"
    assert ampere.unmeasured == "sm_80 unpacks its weights to bf16; it is multiplied as it is from sm_89 on"
    assert ampere.weights.bits == hopper.weights.bits == 8


@pytest.mark.parametrize(("version", "count"), [("0.32", 0), ("0.33", 1), ("0.40", 1)])
@pytest.mark.parametrize("name", ["gguf", "bitsandbytes"])
def test_methods_that_left_the_core_are_doubted_from_that_version_on(name: str, version: str, count: int) -> None:
    found = matched(replace(QWEN3_8B, quantization=name), H100, engine="vllm", engine_version=version)
    assert sum("only since 0.33" in doubt for doubt in found.own.doubts) == count


def test_what_the_descriptor_does_not_list_is_rejected_and_what_has_no_arch_is_doubted() -> None:
    found = matched(EMBEDDING, ASCEND, engine="vllm")
    assert found.own.dtype == "float16"
    assert reasons(found)["bfloat16"] == "the descriptor lists no bf16"
    assert [twin.quantization for twin in found.twins if not twin.unmeasured] == ["awq"]
    doubts = {twin.quantization: twin.doubts for twin in matched(EMBEDDING, RTX, engine="vllm").twins}
    floor = "vllm 0.33 runs on sm_75 and newer; the descriptor names no arch"
    assert doubts["w8a8"] == (floor, "w8a8 needs sm_75 or newer; the descriptor names no arch")
    own = matched(catalogue.load("gpt-oss-20b"), RTX, engine="vllm").own
    assert "mxfp4 needs sm_80 or newer; the descriptor names no arch" in own.doubts


def test_the_bundled_runtime_has_no_quantized_kernels_yet() -> None:
    found = matched(MINILM, CPU)
    assert found.twins == ()
    assert reasons(found)["int8"] == reasons(found)["int4"] == "the bundled runtime has no int8/int4 kernels yet"


def test_encoders_and_quantized_checkpoints_have_no_twins_to_choose() -> None:
    refusals = {twin.refusal for twin in matched(MINILM, CPU, engine="vllm").twins}
    assert refusals
    assert all("made of decoders only" in (refusal or "") for refusal in refusals)
    packed = matched(replace(EMBEDDING, quantization="awq"), ARC, engine="vllm")
    assert packed.own.quantization == "awq"
    assert packed.own.requires == ()
    assert {twin.refusal for twin in packed.twins} == {"the checkpoint is awq already"}


def test_memory_first_takes_the_narrowest_format_and_unfit_float32_is_said() -> None:
    slow = CPU | {"compute_units": {"bf16": {"throughput_gflops": 100}, "fp32": {"throughput_gflops": 200}}}
    assert matched(MINILM, slow).own.dtype == "float32"
    assert matched(MINILM, slow, objective="memory").own.dtype == "bfloat16"
    found = matched(QWEN3_8B, slow, engine="vllm", device_memory_bytes=24 * GIB)
    assert found.own.dtype == "bfloat16"
    assert "30.51 GiB of weights do not fit" in reasons(found)["float32"]


def test_an_unknown_device_type_is_doubted_and_not_refused() -> None:
    found = matched(EMBEDDING, RTX | {"device_type": "abacus"}, engine="vllm")
    assert found.own.dtype == "float16"
    assert found.own.doubts == ("vLLM needs a platform plug-in for this device type",)
    assert "only ever run on CPUs" in matched(EMBEDDING, RTX).own.doubts[0]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"pins": {"dtype": "float16"}}, "--dtype float16 cannot run: the bundled runtime has no fp16 kernels"),
        ({"pins": {"quantization": "int8"}}, "--quantization int8 cannot run: the bundled runtime has no int8/int4"),
        ({"pins": {"quantization": "zip"}, "engine": "vllm"}, "--quantization zip cannot run: vllm has no such method"),
    ],
)
def test_a_pinned_format_without_kernels_is_bad_usage(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(BadUsage) as caught:
        matched(EMBEDDING, CPU, **request_)
    assert message in str(caught.value)


def test_a_pinned_dtype_is_kept_and_the_others_say_so() -> None:
    found = matched(MINILM, CPU, pins={"dtype": "float32"})
    assert found.own.dtype == "float32"
    assert set(reasons(found).values()) >= {"--dtype float32 is pinned"}


def test_parts_of_a_checkpoint_that_differ_are_stored_as_they_say() -> None:
    weights = matched(catalogue.load("Qwen3.6-27B-NVFP4"), H100, engine="vllm").own.weights
    bits = {part: weights.storage(part)[0] for part in get_args(Part)}
    assert bits == {"attention": 8, "feed_forward": 4.5, "experts": 4.5, "lm_head": 4.5, "kept": None}
    twin = matched(QWEN3_8B, H100, engine="vllm").twins[0].weights
    assert twin.storage("lm_head") == (None, 0)


@pytest.mark.parametrize(
    ("name", "document", "engine", "doubt"),
    [
        ("gpt-oss-20b", H100, "vllm", None),
        ("gpt-oss-20b", CPU, "vllm", "mxfp4 with vllm on cpu: no kernels are known"),
        ("Qwen3-32B-FP8", H100 | {"device": {"arch": "sm_80"}}, "vllm", None),
        ("Qwen3-32B-FP8", CPU, "bundled", "fp8 with bundled on cpu: no kernels are known"),
    ],
)
def test_a_checkpoint_without_kernels_is_doubted(
    name: str, document: dict[str, Any], engine: str, doubt: str | None
) -> None:
    doubts = matched(catalogue.load(name), document, engine=engine).own.doubts
    assert any(doubt in each for each in doubts) if doubt else doubts == ()


def test_a_format_that_only_its_own_checkpoints_have_is_no_twin() -> None:
    found = matched(QWEN3_8B, H100, engine="vllm")
    assert "mxfp4" not in {*reasons(found), *(twin.quantization for twin in found.twins)}


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-32B-FP8"])
@pytest.mark.parametrize(
    ("arch", "end"),
    [
        ("gfx942", None), ("gfx950", None), ("gfx1201", None),
        ("gfx90a", "; this is gfx90a"), ("gfx1100", "; this is gfx1100"), (None, "; the descriptor names no arch"),
    ],
)  # fmt: skip
def test_fp8_is_doubted_only_on_an_architecture_that_lacks_it(name: str, arch: str | None, end: str | None) -> None:
    document = H100 | {"device_type": "amd", "device": {"arch": arch}}
    found = matched(catalogue.load(name), document, engine="vllm")
    doubts = next(each.doubts for each in (found.own, *found.twins) if each.quantization == "fp8")
    assert [each for each in doubts if "fp8" in each] == (
        [f"native fp8 needs gfx94x, gfx95x or gfx12xx{end}"] if end else []
    )


def test_a_checkpoint_that_the_table_of_a_device_lacks_is_doubted_with_what_the_table_has() -> None:
    document = H100 | {"device_type": "amd", "device": {"arch": "gfx942"}}
    doubts = matched(replace(QWEN3_8B, quantization="nvfp4"), document, engine="vllm").own.doubts
    reason, known = "no kernels are known, the engine may refuse it", "fp8, w8a8, awq, gptq, w4a16, mxfp4, "
    assert len(doubts) == 1
    assert doubts[0].startswith(f"nvfp4 with vllm on amd: {reason}; known there are {known}")


def test_on_the_ascend_document_too_the_bundled_runtime_says_why_nothing_is_quantized_at_load() -> None:
    found = reasons(matched(EMBEDDING, ASCEND))
    assert found["int4"] == found["int8"] == "the bundled runtime has no int8/int4 kernels yet"


def test_a_part_that_is_left_alone_in_some_layers_has_the_bits_that_were_read_and_the_others_their_methods() -> None:
    spec = replace(QWEN3_8B, quantization="w4a16", stored_bits={"attention": 10.0})
    weights = matched(spec, H100, engine="vllm").own.weights
    assert {part: weights.storage(part)[0] for part in get_args(Part)} == {
        "attention": 10.0, "feed_forward": 4.125, "experts": 4.125, "lm_head": None, "kept": None,
    }  # fmt: skip


@pytest.mark.parametrize("word", ["gguf", "acme"])
def test_a_format_without_bits_of_its_own_has_those_of_the_file(word: str) -> None:
    spec = replace(QWEN3_8B, quantization=word, stored_bits={"attention": 4.5, "feed_forward": 5.0, "lm_head": 6.5625})
    weights = matched(spec, H100, engine="vllm").own.weights
    assert (weights.bytes_per_weight, weights.storage("lm_head")) == (5 / 8, (6.5625, 0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gguf_file_has_its_own_bytes_whatever_is_computed_in(dtype: str) -> None:
    spec = replace(QWEN3_8B, quantization="gguf", stored_bits={"attention": 4.5}, weight_bytes=5_000_000_000)
    asked = case(spec, H100, engine="vllm", pins={"dtype": dtype})
    assert asked.need.weight_bytes(match(asked).own.weights) == 5_000_000_000


@pytest.mark.parametrize(
    ("engine", "reason"), [("bundled", "does not load GGUF files yet"), ("vllm", "vllm-gguf-plugin")]
)
def test_a_gguf_file_is_refused_or_doubted_by_the_engine(engine: str, reason: str) -> None:
    asked = case(replace(QWEN3_8B, quantization="gguf"), H100, engine=engine, engine_version=None)
    said = [*asked.warnings, *match(asked).own.doubts]
    assert sum(reason in each for each in said) == 1


TURING = H100 | {"device": {"id": "0", "vendor": "nvidia", "kind": "gpu", "arch": "sm_75"}}


@pytest.mark.parametrize("name", ["gemma-3-4b", "gemma-3-1b", "gemma-3-27b"])
def test_a_model_that_vllm_refuses_in_float16_is_float32_where_bfloat16_has_no_kernels(name: str) -> None:
    spec = catalogue.load(name)
    units = {"fp16": {"throughput_gflops": 65000}, "fp32": {"throughput_gflops": 8100}}
    found = matched(spec, TURING | {"compute_units": units}, engine="vllm")
    assert found.own.dtype == "float32"
    assert "vLLM refuses it in float16" in reasons(found)["float16"]
    assert "need sm_80" in reasons(found)["bfloat16"]
    with pytest.raises(BadUsage, match=f"--dtype float16 cannot run: {spec.model_type}: vLLM refuses it in float16"):
        matched(spec, H100, engine="vllm", pins={"dtype": "float16"})


def test_a_float16_checkpoint_of_such_a_model_is_not_run_in_its_own_format() -> None:
    spec = replace(QWEN3_8B, model_type="glm4", dtype="float16")
    assert matched(spec, H100, engine="vllm").own.dtype == "bfloat16"


def test_a_format_without_a_rate_that_stands_for_one_that_cannot_run_is_said() -> None:
    bf16 = {"compute_units": {"bf16": {"throughput_gflops": 65000}}}
    turing = matched(QWEN3_8B, TURING | bf16, engine="vllm").own
    assert turing.dtype == "float16"
    assert any("float16 is taken without a rate" in doubt and "need sm_80" in doubt for doubt in turing.doubts)
    avx2 = CPU | {
        "device": {"id": "cpu0", "vendor": "cpu", "kind": "cpu", "arch": "avx2"},
        "compute_units": {"fp16": {"throughput_gflops": 500}},
    }
    cpu = matched(QWEN3_8B, avx2, engine="vllm").own
    assert cpu.dtype == "bfloat16"
    assert any("no fp16 arithmetic" in doubt for doubt in cpu.doubts)
    assert matched(QWEN3_8B, H100, engine="vllm").own.doubts == ()


@pytest.mark.parametrize(("arch", "count"), [("sm_86", 1), ("sm_80", 1), ("sm_89", 0), ("sm_90", 0)])
def test_an_eight_bit_cache_is_doubted_below_the_architecture_that_reads_it(arch: str, count: int) -> None:
    document = H100 | {"device": {**H100["device"], "arch": arch}}
    doubts = matched(QWEN3_8B, document, engine="vllm", pins={"kv_cache_dtype": "fp8"}).own.doubts
    assert sum("--kv-cache-dtype fp8 may be refused" in doubt and "sm_89" in doubt for doubt in doubts) == count
    assert not any("kv-cache" in doubt for doubt in matched(QWEN3_8B, document, engine="vllm").own.doubts)

"""A start-up log against the prediction."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.negotiate.cases import GIB, H100, LLAMA_8B, QWEN3_8B, STAMP, descriptor
from tests.unit.negotiate.test_startlog import NEW, OLD, ONE_LINE, PROFILED
from vllm_probe.core.config import LogCheck, RuntimeConfig
from vllm_probe.core.errors import BadUsage, ProbeError
from vllm_probe.core.model import ModelSpec
from vllm_probe.negotiate.check import asked_as_logged, compare, require_same_platform
from vllm_probe.negotiate.negotiate import negotiate
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.residual import Residual, residual_name
from vllm_probe.negotiate.startlog import StartLog, parse_log

START = """\
INFO vLLM API server version 0.19.0
INFO non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95}
INFO Model loading took 15.27 GiB memory and 12.5 seconds
INFO Available KV cache memory: 57.5 GiB
INFO GPU KV cache size: 418,688 tokens
INFO Maximum concurrency for 8,192 tokens per request: 51.11x
INFO Graph capturing finished in 10 secs, took 0.96 GiB
"""
KV = "Available KV cache memory: 57.5 GiB"


def checked(text: str, spec: ModelSpec = QWEN3_8B, **asked: Any) -> tuple[RuntimeConfig, LogCheck]:
    log, device = parse_log(text), descriptor(H100)
    wanted, notes = asked_as_logged(log, spec, device, {"engine": "vllm", **asked})
    config = negotiate(spec, device, Request(**wanted), STAMP)
    return config, compare(config, spec, log, "vllm.log", notes)


def test_a_start_as_predicted_agrees_in_every_line() -> None:
    config, found = checked(START)
    assert (config.budget.verdict, found.outcome, found.agrees) == ("boots", "boots", True)
    assert [figure.quantity for figure in found.figures] == [
        "weights_bytes", "graph_bytes", "kv_cache_bytes", "kv_cache_tokens", "concurrency",
    ]  # fmt: skip
    assert [figure.line for figure in found.figures] == [3, 7, 4, 5, 6]
    assert all(figure.difference == figure.predicted - figure.logged for figure in found.figures)
    assert abs(found.residual_bytes) < 0.02 * GIB


def test_a_pooling_model_that_was_started_with_a_share_fills_it() -> None:
    text = START.replace("15.27 GiB", "14.11 GiB").replace("57.5 GiB", "58.66 GiB")  # no output head
    text = text.replace("418,688", "427,136").replace("51.11x", "52.14x")
    config, found = checked(text, replace(QWEN3_8B, task="embed", pooling="last"))
    assert found.agrees, found.figures
    assert {"kv_cache_bytes", "kv_cache_tokens", "concurrency"} <= {each.quantity for each in found.figures}
    assert config.budget.kv_cache_tokens == pytest.approx(427_136, rel=0.02)


def test_what_neither_says_is_the_default_of_that_version_and_said() -> None:
    config, found = checked(START.replace(", 'gpu_memory_utilization': 0.95", ""))
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.gpu_memory_utilization) == (1024, 8192, 0.9)
    assert "neither says gpu_memory_utilization: 0.9, vLLM's default, is taken" in found.differences
    assert not found.agrees, "the log's share was 0.95"


def test_a_log_of_another_version_or_option_or_model_is_said() -> None:
    pins = {"gpu_memory_utilization": 0.9, "max_model_len": 8192}
    _, found = checked(START.replace("Qwen/Qwen3-8B", "me/other"), engine_version="0.33", pins=pins)
    assert found.differences[:2] == (
        "the log says gpu_memory_utilization 0.95, --gpu-memory-utilization 0.9 was asked for",
        "the log is of vLLM 0.19.0, the law of --engine-version 0.33 was asked for",
    )
    assert found.differences[-2] == "the log is of me/other, Qwen3-8B was asked about"
    assert checked(START)[1].differences[-1].startswith("neither says")


def test_a_cache_out_of_its_band_is_not_as_predicted_and_leaves_a_residual() -> None:
    _, found = checked(START.replace(KV, "Available KV cache memory: 54.0 GiB"))
    off = [figure.quantity for figure in found.figures if not figure.is_within]
    assert (found.agrees, off) == (False, ["kv_cache_bytes"])
    assert found.residual_bytes / GIB == pytest.approx(3.5, abs=0.02)


def test_a_failure_that_was_predicted_agrees_with_what_was_available() -> None:
    failed = START.partition("INFO Available")[0].replace("8192", "40960").replace("0.95", "0.28") + (
        "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.45 GiB). Based on the available memory, "
        "the estimated maximum model length is 32400."
    )
    config, found = checked(failed)
    assert (config.budget.verdict, found.outcome, found.agrees) == ("kv_too_small", "kv_too_small", True)
    assert {"kv_cache_bytes", "estimated_max_model_len"} <= {figure.quantity for figure in found.figures}


def test_a_start_that_was_not_predicted_is_said() -> None:
    _, found = checked(START.replace("0.95", "0.2"))
    assert not found.agrees
    assert "the log says boots where oom is predicted" in found.differences


def test_a_log_whose_other_process_held_the_memory_is_not_held_against_the_law() -> None:
    busy = START.partition("INFO Available")[0] + (
        "ValueError: Free memory on device (10/79.19 GiB) on startup is less than desired GPU memory utilization (0.95"
    )
    assert checked(busy)[1].agrees


def test_an_empty_log_compares_nothing() -> None:
    config, found = checked("INFO vLLM API server version 0.19.0\n")
    assert (found.figures, found.agrees, found.residual_bytes) == ((), True, 0)
    assert compare(config, QWEN3_8B, StartLog(), "x", ()).outcome == "unknown"


def test_a_stored_residual_moves_the_next_prediction_and_is_said() -> None:
    residual = Residual(
        engine_version="0.19.0", device="NVIDIA H100", ranks=1, residual_bytes=GIB, model="Qwen3-8B",
        created_at="2026-01-02T03:04:05Z", log="vllm.log",
    )  # fmt: skip
    pins = {"gpu_memory_utilization": 0.95, "max_model_len": 8192, "quantization": "none"}
    request = Request(engine="vllm", engine_version="0.19.0", pins=pins)
    without, corrected = (
        negotiate(QWEN3_8B, descriptor(H100), replace(request, residual=each), STAMP) for each in (None, residual)
    )
    assert without.budget.kv_cache_bytes is not None
    assert corrected.budget.kv_cache_bytes == without.budget.kv_cache_bytes - GIB
    assert corrected.budget.non_torch_bytes == without.budget.non_torch_bytes + GIB
    assert residual.sentence in corrected.warnings
    less = replace(request, residual=replace(residual, residual_bytes=-5 * GIB))
    assert negotiate(QWEN3_8B, descriptor(H100), less, STAMP).budget.non_torch_bytes == 0


def test_a_residual_has_a_file_name_of_its_own_for_version_device_and_ranks() -> None:
    assert residual_name("0.19", "NVIDIA H100 SXM 80GB", 2) == "vllm-0.19-nvidia-h100-sxm-80gb-tp2.json"
    assert "/" not in residual_name("../0.19", "../../etc/passwd", 1)


def test_a_residual_of_other_ranks_is_not_used() -> None:
    other = Residual(
        engine_version="0.19.0", device="NVIDIA H100", ranks=2, residual_bytes=GIB, model="Qwen3-8B",
        created_at="2026-01-02T03:04:05Z", log="vllm.log",
    )  # fmt: skip
    found = negotiate(QWEN3_8B, descriptor(H100), Request(engine="vllm", residual=other), STAMP)
    assert other.sentence not in found.warnings
    assert found.budget == negotiate(QWEN3_8B, descriptor(H100), Request(engine="vllm"), STAMP).budget


NUMBERS = st.integers(-5, 10**13).map(str) | st.floats(0, 1e7).map("{:.3f}".format)
LINES = st.sampled_from((START + NEW + OLD + PROFILED).splitlines())


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A start-up log whose numbers somebody changed, and whose lines came in any order."""
    return "\n".join(
        re.sub(r"\d+(?:\.\d+)?", lambda found: draw(NUMBERS) if draw(st.booleans()) else found[0], draw(LINES))
        for _ in range(draw(st.integers(0, 8)))
    )


@given(mangled())
@settings(max_examples=60, deadline=None)
def test_a_log_that_somebody_wrote_is_compared_or_refused(text: str) -> None:
    try:
        config, found = checked(text)
    except ProbeError:
        return
    assert config.budget.weights_bytes > 0
    assert all(figure.band >= 0 for figure in found.figures)
    assert abs(found.residual_bytes) <= 8 * GIB


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("Qwen/Qwen3-8B", "me/other", "the log is of another model"),
        ("15.27 GiB", "8.27 GiB", "its weights are out of their band, so that it is another checkpoint"),
        (KV, "Available KV cache memory: 50.0 GiB",
         "its cache is too far off: another share of the memory, or another process"),
        (KV, f"{KV}\nnon_torch_memory takes 1.6GiB", "another process seems to have held memory of the device"),
    ],
)  # fmt: skip
def test_nothing_is_kept_of_a_log_whose_remainder_is_not_the_laws(old: str, new: str, why: str) -> None:
    _, found = checked(START.replace(old, new))
    assert found.residual_bytes == 0
    assert f"nothing of it is kept: {why}" in found.differences


def test_a_log_of_0_6_4_agrees_in_its_profile() -> None:
    log, device = parse_log(ONE_LINE), descriptor(H100 | {"device": {**H100["device"], "arch": "sm_86"}})
    pins = {"max_model_len": 20000}
    wanted, notes = asked_as_logged(log, LLAMA_8B, device, {"engine": "vllm", "concurrency": 1, "pins": pins})
    config = negotiate(LLAMA_8B, device, Request(**wanted), STAMP)
    found = compare(config, LLAMA_8B, log, "vllm.log", notes)
    assert "neither says max_num_batched_tokens: 20000, vLLM's default, is taken" in found.differences
    assert {figure.quantity: figure.is_within for figure in found.figures} == {
        "weights_bytes": True, "activation_bytes": True, "non_torch_bytes": True, "kv_cache_bytes": True,
    }  # fmt: skip
    assert abs(found.residual_bytes) < 0.05 * GIB


@pytest.mark.parametrize(
    ("line", "type_", "fits"),
    [
        ("Automatically detected platform cuda.", "nvidia", True),
        ("Automatically detected platform cuda.", "cuda", True),
        ("Automatically detected platform cuda.", "cpu", False),
        ("Automatically detected platform cuda.", "unheard-of", False),
        ("with config: model='m', device_config=cuda", "amd", True),
        ("HIP out of memory", "nvidia", False),
        ("Platform plugin unheard-of is activated", "cpu", True),
        ("nothing that tells", "cpu", True),
    ],
)
def test_a_log_of_another_platform_is_refused_with_the_way_to_name_its_device(
    line: str, type_: str, fits: bool
) -> None:
    device = replace(descriptor(H100), device_type=type_)
    log = parse_log(f"{line}\n{START}")
    if fits:
        require_same_platform(log, device, "vllm.log")
        return
    with pytest.raises(BadUsage, match=r"^vllm\.log is of vLLM's platform (cuda|hip), and ") as raised:
        require_same_platform(log, device, "vllm.log")
    assert "--device ID" in raised.value.hint
    assert "--capability NAME" in raised.value.hint


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("INFO vLLM API server version 0.19.0\n", "", "its version"),
        ("'model': 'Qwen/Qwen3-8B', ", "", "its model"),
        ("INFO non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95}",
         "INFO with config: model='Qwen/Qwen3-8B', max_seq_len=8192", "its share of the memory"),
        ("INFO Model loading took 15.27 GiB memory and 12.5 seconds\n", "", "what its weights took"),
        (KV, "", "what was left for the cache"),
    ],
)  # fmt: skip
def test_nothing_is_kept_of_a_log_that_does_not_state_what_a_residual_rests_on(
    old: str, new: str, missing: str
) -> None:
    _, found = checked(START.replace(old, new).replace("57.5", "56.5"))
    assert found.residual_bytes == 0
    assert f"nothing of it is kept: the log does not state {missing}" in found.differences


def test_a_residual_that_no_engine_can_have_is_said_and_not_kept() -> None:
    config, found = checked(START.replace(KV, "Available KV cache memory: 59.9 GiB"))
    assert found.residual_bytes == 0
    (said,) = [note for note in found.differences if note.startswith("nothing of it is kept")]
    assert re.search(r": -2\.\d\d GiB over the law would be less than nothing of the .+ beside torch$", said)
    assert config.budget.non_torch_bytes < 2 * GIB


def test_nothing_is_kept_of_a_log_whose_device_has_another_memory() -> None:
    log, device = parse_log(START + "Free memory on device (78/79.19 GiB)\n"), descriptor(H100)
    wanted, notes = asked_as_logged(log, QWEN3_8B, device, {"engine": "vllm"})
    config = negotiate(QWEN3_8B, device, Request(**wanted), STAMP)
    same, other = (compare(config, QWEN3_8B, log, "x", notes, total) for total in (80 * GIB, 141 * GIB))
    assert same.residual_bytes
    assert not other.residual_bytes
    assert "nothing of it is kept: its device has 79.19 GiB, this one 141.00 GiB" in other.differences


def test_a_length_over_the_models_limit_is_said_and_its_length_not_compared() -> None:
    _, found = checked(
        "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (7.42 GiB). Based on the available memory, the estimated maximum "
        "model length is 60784."
    )
    assert [figure.quantity for figure in found.figures] == ["kv_cache_bytes"]
    assert found.differences[-1].startswith("the log says kv_too_small where invalid is predicted: --max-model-len ")

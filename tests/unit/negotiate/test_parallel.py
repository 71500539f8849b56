"""How many devices share a model, and what the others of the host do."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.negotiate.cases import (
    ARC,
    CPU,
    GIB,
    GLM_5_3,
    H100,
    MINILM,
    QWEN3_0_6B,
    QWEN3_8B,
    config,
    decision,
    rejections,
)
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.values import Kind
from vllm_probe.models import catalogue

LLAMA_70B, QWEN3_32B = catalogue.load("Llama-3.1-70B"), catalogue.load("Qwen3-32B")
USABLE = Verdict(code="usable", reason="fine")


def beside(name: str, kind: Kind = "gpu", vendor: str = "nvidia", **keys: Any) -> Device:
    return Device(id=name, vendor=vendor, kind=kind, **{"arch": "sm_90", "usable": True, "verdict": USABLE, **keys})


def division(found: Any) -> tuple[int, int]:
    return found.tensor_parallel_size, found.pipeline_parallel_size


@pytest.mark.parametrize(
    ("spec", "devices", "expected"),
    [
        (QWEN3_8B, 8, (1, 1)),
        (LLAMA_70B, 2, (2, 1)),
        (LLAMA_70B, 8, (2, 1)),
        (GLM_5_3, 4, (1, 1)),
    ],
)
def test_a_model_takes_the_fewest_devices_that_hold_it(spec: Any, devices: int, expected: tuple[int, int]) -> None:
    found = config(spec, H100, engine="vllm", num_devices=devices)
    assert division(found) == expected
    assert (found.budget.verdict == "boots") is (spec is not GLM_5_3)
    assert not decision(found, "tensor_parallel_size").pinned


def test_heads_that_no_number_of_devices_divides_are_staged() -> None:
    odd = replace(LLAMA_70B, num_heads=63, num_kv_heads=7)
    found = config(odd, H100, engine="vllm", num_devices=2)
    assert division(found) == (1, 2)
    assert decision(found, "pipeline_parallel_size").rule == (
        "the fewest of 2 devices that hold the model: 2 stages of 1 ranks"
    )


def test_the_checkpoint_on_several_devices_goes_before_a_quantized_one_on_one() -> None:
    slow = H100 | {"compute_units": H100["compute_units"] | {"fp8_e4m3": {"throughput_gflops": 100_000}}}
    one, four = (config(QWEN3_32B, slow, engine="vllm", device_memory_bytes=44 * GIB, num_devices=n) for n in (1, 4))
    assert (one.quantization, division(one)) == ("fp8", (1, 1))
    assert (four.quantization, division(four)) == ("none", (2, 1))


def test_a_quantized_twin_that_is_faster_anyhow_takes_the_fewest_devices_that_hold_it() -> None:
    fast = H100 | {"compute_units": H100["compute_units"] | {"fp8_e4m3": {"throughput_gflops": 1_500_000}}}
    found = config(QWEN3_32B, fast, engine="vllm", device_memory_bytes=48 * GIB, num_devices=4)
    assert (found.quantization, division(found)) == ("fp8", (1, 1))


def test_latency_takes_more_ranks_as_long_as_sums_cost_less_than_the_reading_they_save() -> None:
    fast = config(LLAMA_70B, H100, engine="vllm", objective="latency", num_devices=8)
    assert division(fast) == (8, 1)
    assert "within 5 % of the fastest request" in decision(fast, "tensor_parallel_size").rule
    slow = config(QWEN3_0_6B, H100 | {"dma": {"peer_gb_s": 0.05}}, engine="vllm", objective="latency", num_devices=8)
    assert division(slow) == (1, 1)
    roomy = config(QWEN3_8B, H100, engine="vllm", num_devices=8)
    assert "the others serve more requests as replicas" in decision(roomy, "tensor_parallel_size").rule


def test_a_pinned_division_is_kept_and_the_bundled_runtime_has_one_device() -> None:
    pinned = config(QWEN3_8B, H100, engine="vllm", num_devices=8, pins={"tensor_parallel_size": 4})
    assert division(pinned) == (4, 1)
    assert decision(pinned, "tensor_parallel_size").pinned
    assert division(config(MINILM, H100, num_devices=8)) == (1, 1)


def test_more_ranks_than_a_host_has_devices_are_started_by_ray() -> None:
    pins = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}
    found = config(GLM_5_3, H100, engine="vllm", num_devices=8, pins=pins)
    backend = decision(found, "collective_backend")
    assert backend.passed_on == "--distributed-executor-backend ray"
    assert "16 ranks are more than the 8 devices here, so Ray starts them: run `ray start --head`" in backend.rule
    assert "cross the network" not in backend.rule
    wide = config(GLM_5_3, H100, engine="vllm", num_devices=8, pins={"tensor_parallel_size": 16})
    assert "better a stage on each host" in decision(wide, "collective_backend").rule
    unknown = decision(config(GLM_5_3, H100, engine="vllm", pins=pins), "collective_backend")
    assert unknown.passed_on == "not passed on"
    assert "fewer than 16 of them add --distributed-executor-backend ray" in unknown.rule
    local = decision(config(LLAMA_70B, H100, engine="vllm", num_devices=8), "collective_backend")
    assert local.passed_on == "not passed on"


def test_what_one_host_cannot_hold_is_offered_on_several_with_the_devices_of_each() -> None:
    found = config(catalogue.load("DeepSeek-V3"), H100, engine="vllm", num_devices=8)
    changes = {each.change: each for each in found.alternatives}
    several = changes["--tensor-parallel-size 8 --pipeline-parallel-size 2"]
    assert several.verdict == "boots"
    assert "needs 2 hosts with 8 such devices each, joined by Ray" in several.note


def test_other_devices_have_roles_or_a_reason_why_not() -> None:
    others = (
        beside("0000:06:00.0"),
        beside("0000:07:00.0"),
        beside("0000:00:02.0", "igpu", "intel", arch="xe", memory=DeviceMemory(kind="shared")),
        beside("0000:08:00.0", "gpu", "amd", arch="gfx942"),
        beside("0000:09:00.0", usable=False, verdict=Verdict(code="unusable", reason="the driver is not loaded")),
        beside("cpu0", "cpu", "cpu", arch="avx512"),
    )
    found = config(LLAMA_70B, H100, engine="vllm", num_devices=2, beside=others)
    assert found.roles == {"main": "0000:06:00.0", "rank_1": "0000:07:00.0", "host": "cpu0"}
    why = rejections(found, "roles")
    assert why["0000:00:02.0"].startswith("no layers: its memory is the host's, shared and slower; it may drive")
    assert why["0000:08:00.0"].startswith("no layers: no library of collectives reaches devices of two kinds")
    assert why["0000:09:00.0"] == "it does nothing: the driver is not loaded"
    assert "it prepares requests and holds swapped KV blocks" in why["cpu0"]
    alone = config(QWEN3_8B, H100, engine="vllm", num_devices=2, beside=others)
    assert "serve more requests as replicas" in rejections(alone, "roles")["0000:07:00.0"]


def test_the_bundled_runtime_falls_back_to_the_next_device_of_the_host() -> None:
    arc = ARC | {"schema_version": "2.0", "device": {"id": "0000:03:00.0", "vendor": "intel", "arch": "xe"}}
    found = config(MINILM, arc, beside=(beside("cpu0", "cpu", "cpu", arch="avx2"),))
    assert found.roles == {"main": "0000:03:00.0", "host": "cpu0", "fallback": "cpu0"}
    assert config(MINILM, CPU, beside=(beside("cpu0", "cpu", "cpu"),)).roles == {"main": "cpu0"}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"engine": "bundled"}, "the bundled runtime runs one device in one process"),
        ({"engine": "vllm"}, "one device: no host with such devices is known"),
        ({"engine": "vllm", "num_devices": 1, "device_id": "a", "beside": "a"}, "the host has one such device"),
        ({"engine": "vllm", "num_devices": 1, "device_id": "a", "beside": "ab"}, "--device names this one alone"),
        ({"engine": "vllm", "num_devices": 4}, "one of 4 devices holds it"),
    ],
)
def test_why_one_device_runs_it_all_is_said_as_it_is(request_: dict[str, Any], why: str) -> None:
    alike = tuple(beside(name) for name in request_.get("beside", ()))
    found = config(QWEN3_8B, H100, **request_ | {"beside": alike})
    assert division(found) == (1, 1)
    assert decision(found, "tensor_parallel_size").rule.startswith(why)
    assert decision(found, "pipeline_parallel_size").rule.startswith(why)


def test_where_one_division_is_pinned_the_other_says_so() -> None:
    found = config(QWEN3_8B, H100, engine="vllm", num_devices=8, pins={"tensor_parallel_size": 4})
    said = "the other is pinned, and nothing more is divided than was asked for"
    assert decision(found, "pipeline_parallel_size").rule == said

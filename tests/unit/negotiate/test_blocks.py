"""Blocks of the KV cache: the engine's own size by attention and architecture, and who is told."""

from typing import Any

import pytest

from tests.unit.negotiate.cases import CPU, H100, MINILM, QWEN3_8B, RTX, case, config, decision
from vllm_probe.core.errors import BadUsage
from vllm_probe.export.options import settings_of
from vllm_probe.export.vllm import reason_of, vllm_command
from vllm_probe.models import catalogue
from vllm_probe.negotiate.explain import explain

AMX = CPU | {"execution": {"matrix_instructions": ["amx_tile", "amx_bf16"]}}
WIDE = RTX | {"memory": {"alignment_bytes": 2 * 8 * 128 * 2 * 64, "total_bytes": 24 << 30}}
SPARSE, COMPRESSED = ("DeepSeek-V3.2", "GLM-5.3"), "DeepSeek-V4-Flash"


def on(arch: str, device_type: str = "nvidia") -> dict[str, Any]:
    return H100 | {"device_type": device_type, "device": {"arch": arch}}


@pytest.mark.parametrize(
    ("name", "document", "version", "size"),
    [
        *((name, on(arch), version, 64) for name in SPARSE for arch in ("sm_90", "sm_100", "sm_120")
          for version in ("0.16.0", "0.33.0")),
        (COMPRESSED, on("sm_90"), "0.33", 256), (COMPRESSED, on("gfx942", "amd"), "0.33", 256),
        (COMPRESSED, AMX, "0.33", 256), (COMPRESSED, on("910b", "ascend"), "0.33", 128),
        ("DeepSeek-R1", on("sm_100"), "0.33", 32), ("DeepSeek-R1", on("sm_103"), "0.16.0", 64),
        ("DeepSeek-R1", on("sm_100"), "0.12.0", 128), ("DeepSeek-R1", on("sm_90"), "0.16.0", 64),
        ("DeepSeek-R1", on("sm_90"), "0.33", 16), ("DeepSeek-R1", on("sm_120"), "0.33", 16),
        ("DeepSeek-V2-Lite", CPU, "0.33", 16), ("DeepSeek-V2-Lite", AMX, "0.33", 128),
        ("DeepSeek-V3.2", on("gfx942", "amd"), "0.33", 16), ("Qwen3-8B", on("sm_100"), "0.33", 16),
    ],
)  # fmt: skip
def test_the_kind_of_attention_and_the_architecture_decide_the_size_of_a_block(
    name: str, document: dict[str, Any], version: str, size: int
) -> None:
    found = config(catalogue.load(name), document, engine="vllm", engine_version=version)
    assert found.block_size == size


@pytest.mark.parametrize("name", ["DeepSeek-V3.2", "GLM-5.3", COMPRESSED, "DeepSeek-R1", "Qwen3-8B", "gpt-oss-20b"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_vllm_is_never_told_the_block_size_that_it_takes_by_itself(name: str, arch: str) -> None:
    found = config(catalogue.load(name), on(arch), engine="vllm", device_memory_bytes=2048 << 30)
    assert "--block-size" not in vllm_command(found)
    assert decision(found, "block_size").passed_on.startswith("not passed on: vLLM takes this size by itself")
    assert decision(found, "alignment_bytes").passed_on == "follows from block_size, which vLLM chooses"
    assert "not passed on to the engine: vLLM takes this size by itself" in explain(found)


def test_a_pinned_block_size_is_passed_on_beside_vllms_own() -> None:
    found = config(catalogue.load("GLM-5.3"), on("sm_90"), engine="vllm", pins={"block_size": 128})
    assert "--block-size 128" in vllm_command(found)
    assert decision(found, "alignment_bytes").passed_on == "in --block-size"
    said = {each.option: reason_of(each) for each in settings_of(found).options}
    assert said["block-size"].startswith("changed, vLLM's own is 64")
    kept = config(catalogue.load("GLM-5.3"), on("sm_90"), engine="vllm", pins={"block_size": 64})
    assert {each.option: each.kept for each in settings_of(kept).options}["block-size"]


def test_blocks_that_the_alignment_alone_widens_are_asked_for() -> None:
    found = config(QWEN3_8B, WIDE, engine="vllm")
    assert found.block_size == 64
    assert "--block-size 64" in vllm_command(found)
    assert decision(found, "alignment_bytes").passed_on == "in --block-size"


def test_a_model_without_a_cache_has_no_carrier_of_the_alignment() -> None:
    assert decision(config(MINILM, H100, engine="vllm"), "alignment_bytes").passed_on == "not passed on"


@pytest.mark.parametrize(
    ("name", "document", "size", "sizes"),
    [
        ("DeepSeek-V3.2", on("sm_90"), 16, "64, 128, 256"),
        ("GLM-5.3", on("sm_100"), 32, "64, 128, 256"),
        (COMPRESSED, on("sm_90"), 64, "256"),
        ("DeepSeek-V2-Lite", CPU, 32, "16"),
    ],
)
def test_a_size_that_the_attention_of_a_model_cannot_have_is_refused_with_those_that_work(
    name: str, document: dict[str, Any], size: int, sizes: str
) -> None:
    with pytest.raises(BadUsage, match=rf"--block-size {size}: .* for the .*attention of {name}") as caught:
        case(catalogue.load(name), document, engine="vllm", pins={"block_size": size})
    assert caught.value.hint == f"give one of {sizes}, or none"
    for works in map(int, sizes.split(", ")):
        assert case(catalogue.load(name), document, engine="vllm", pins={"block_size": works})


@pytest.mark.parametrize(("size", "is_doubted"), [(16, True), (32, False), (64, False)])
def test_dense_latents_start_with_other_sizes_too_on_slower_kernels(size: int, is_doubted: bool) -> None:
    found = case(catalogue.load("DeepSeek-R1"), on("sm_100"), engine="vllm", pins={"block_size": size})
    doubt = f"--block-size {size}: the kernels that vllm takes first for the latent attention of DeepSeek-R1 want a "
    assert (f"{doubt}multiple of 32, others are slower" in found.warnings) is is_doubted


def test_the_bundled_runtime_has_the_blocks_of_the_device_type() -> None:
    found = case(catalogue.load("DeepSeek-V3.2"), on("sm_90"), pins={"block_size": 16}).blocks
    assert (found.size, found.attention) == (16, "")

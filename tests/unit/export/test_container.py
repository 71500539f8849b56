"""What a container of each vendor has: image, devices, groups, shared memory, variables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.export.cases import by_vendor, container, made, target
from tests.unit.negotiate.cases import EMBEDDING, QWEN3_8B
from vllm_probe.core.device import Device, Verdict
from vllm_probe.core.errors import BadUsage, NoImage
from vllm_probe.export.container import device_mask, table, vllm_container
from vllm_probe.export.kubernetes import kubernetes_yaml

ROOT = Path(__file__).parents[3]
IMAGES = {
    "nvidia": "vllm/vllm-openai:v0.33.0",
    "amd": "vllm/vllm-openai-rocm:v0.33.0",
    "intel": "vllm/vllm-openai-xpu:v0.33.0",
    "ascend": "quay.io/ascend/vllm-ascend:v0.23.0",
    "cpu": "vllm/vllm-openai-cpu:v0.33.0",
}


def device(vendor: str, arch: str | None = None, **facts: Any) -> Device:
    return Device(
        id="0000:06:00.0",
        vendor=vendor,
        kind="gpu",
        arch=arch,
        usable=True,
        verdict=Verdict(code="usable", reason="it is"),
        **facts,
    )


@by_vendor
def test_each_vendor_has_its_own_image(vendor: str) -> None:
    assert container(vendor, EMBEDDING).image == IMAGES[vendor]
    assert table()["vllm"][vendor]["source"].startswith("https://")


def test_cuda_stands_for_nvidia_alone() -> None:
    for vendor in set(IMAGES) - {"nvidia"}:
        found = container(vendor, EMBEDDING)
        assert not found.image.startswith("vllm/vllm-openai:")
        assert found.access.runtime is None
        assert not any("NVIDIA" in name for name in found.access.env)


@pytest.mark.parametrize(
    ("vendor", "version", "image"),
    [
        ("amd", "0.14.0", "vllm/vllm-openai-rocm:v0.14.0"),
        ("amd", "0.13.0", "rocm/vllm:latest"),
        ("cpu", "0.15", "vllm/vllm-openai-cpu:v0.15.0"),
        ("cpu", "0.14.1", "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.14.1"),
        ("ascend", "0.13.0", "quay.io/ascend/vllm-ascend:v0.13.0"),
        ("ascend", "0.14.0", "quay.io/ascend/vllm-ascend:v0.13.0"),
    ],
)
def test_the_image_holds_the_version_of_the_config_or_that_is_said(vendor: str, version: str, image: str) -> None:
    found = container(vendor, EMBEDDING, engine_version=version)
    assert found.image == image
    differs = "latest" in image or (not image.endswith(f"v{version}") and version != "0.15")
    assert any("take one with vLLM" in each or "the image holds" in each for each in found.comments) == differs


def test_options_are_those_of_the_version_in_the_image() -> None:
    found = vllm_container(made("ascend", EMBEDDING, engine_version="0.10.2"), target("ascend"))
    assert found.image.endswith(":v0.9.1")
    assert "--task" in found.arguments
    assert "--runner" not in found.arguments


def test_a_version_without_an_image_is_refused_with_the_first_that_has_one() -> None:
    with pytest.raises(NoImage, match=r"0\.25\.0") as caught:
        container("intel", EMBEDDING, engine_version="0.25.0")
    assert "0.26.0" in caught.value.hint


def test_a_vendor_without_an_image_is_refused() -> None:
    with pytest.raises(NoImage) as caught:
        vllm_container(made("cpu", EMBEDDING), replace(target("cpu"), vendor="abacus"))
    assert "nvidia, amd, intel, ascend, cpu" in caught.value.hint


@pytest.mark.parametrize(
    ("arch", "suffix", "resource"),
    [("910_9391", "-a3", "Ascend910"), ("310p3", "-310p", "Ascend310P"), ("910b4", "", "Ascend910")],
)
def test_an_ascend_image_and_resource_are_those_of_the_chip(arch: str, suffix: str, resource: str) -> None:
    found = vllm_container(made("ascend", EMBEDDING), target("ascend", device=device("ascend", arch)))
    assert found.image == f"quay.io/ascend/vllm-ascend:v0.23.0{suffix}"
    assert found.resource == f"huawei.com/{resource}"


def test_a_numbered_node_is_that_of_the_device_or_one_for_each_rank() -> None:
    on = target("ascend", device=device("ascend", "910b4", indices={"npu": 3}))
    assert vllm_container(made("ascend", EMBEDDING), on).access.nodes[0] == "/dev/davinci3"
    split = made("ascend", EMBEDDING, pins={"tensor_parallel_size": 2})
    assert vllm_container(split, on).access.nodes == (
        *("/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    )


def test_one_of_several_devices_is_named_by_its_number_in_the_containers_runtime_and_in_its_own() -> None:
    card = device("nvidia", "sm_90", indices={"nvml": 2, "cuda": 1})
    config = made("nvidia", EMBEDDING)
    assert vllm_container(config, target("nvidia", device=card)).access.env["NVIDIA_VISIBLE_DEVICES"] == "2"
    assert device_mask(config, card) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert container("nvidia", EMBEDDING).access.env["NVIDIA_VISIBLE_DEVICES"] == "all"
    split = made("nvidia", QWEN3_8B, pins={"tensor_parallel_size": 2})
    assert vllm_container(split, target("nvidia", device=card)).access.env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert device_mask(split, card) == {}
    assert device_mask(made("cpu", EMBEDDING), device("cpu")) == {}


def test_ranks_on_several_hosts_have_no_container() -> None:
    config = made("nvidia", QWEN3_8B)
    ray = replace(config.decisions[0], passed_on="--distributed-executor-backend ray")
    with pytest.raises(BadUsage, match="several hosts"):
        vllm_container(replace(config, decisions=(*config.decisions, ray)), target("nvidia"))


def test_the_dockerfile_builds_from_what_is_there_with_the_index_of_the_cpu() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["vllm-probe", "serve"]' in lines
    assert f"ARG TORCH_INDEX={table()['bundled']['cpu']['index']}" in lines
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize(("driver", "name"), [("i915 1.2", "i915"), ("xe", "xe"), (None, "xe")])
def test_an_intel_resource_is_named_after_the_driver(driver: str | None, name: str) -> None:
    found = vllm_container(made("intel", EMBEDDING), target("intel", device=device("intel", "dg2", driver=driver)))
    assert found.resource == f"gpu.intel.com/{name}"
    assert bool(found.resource_doubt) == (driver is None)
    assert ("put gpu.intel.com/i915 for gpu.intel.com/xe where i915 does" in kubernetes_yaml(found)) == (driver is None)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "vllm-qwen3-8b"),
        ("/a b/Größe_1/", "vllm-gr-e-1"),
        ("/", "vllm"),
        ("x" * 80, f"vllm-{'x' * 40}"),
    ],
)
def test_the_name_is_a_dns_label(model: str, name: str) -> None:
    assert vllm_container(replace(made("cpu", EMBEDDING), model=model), target("cpu")).name == name


def test_more_ranks_than_a_host_has_devices_have_no_container_without_ray() -> None:
    pins = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}
    with pytest.raises(BadUsage, match=r"several hosts.*16 such devices are more than one has") as caught:
        container("nvidia", QWEN3_8B, pins=pins)
    assert "Ray" in caught.value.hint
    assert container("nvidia", QWEN3_8B, pins=pins, num_devices=16).devices == 16
    assert container("nvidia", QWEN3_8B, pins={"tensor_parallel_size": 8}).devices == 8

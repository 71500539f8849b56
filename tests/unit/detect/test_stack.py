import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.device import Device, Software, Verdict
from vllm_probe.detect.builds import build_tag, table, vendor_of
from vllm_probe.detect.stack import weigh

WORKS = Verdict(code="usable", reason="it works")


def device(vendor: str, arch: str | None, driver: str | None = "x", **more: Any) -> Device:
    return Device(id="0000:01:00.0", vendor=vendor, kind="gpu", arch=arch, driver=driver, usable=True, **more)


def weighed(
    vendor: str,
    arch: str | None,
    driver: str | None = "x",
    *,
    torch: str | None = None,
    env: dict[str, str] | None = None,
    beside: tuple[Device, ...] = (),
    **more: Any,
) -> Device:
    software = Software(torch=torch, kernel="6.8.0-60-generic")
    return weigh(device(vendor, arch, driver, verdict=WORKS, **more), software, (env or {}).get, beside)


@pytest.mark.parametrize(
    ("vendor", "arch", "driver", "index"),
    [
        ("nvidia", "sm_89", "nvidia 566.36", "cu128"),
        ("nvidia", "sm_89", "nvidia 580.95.05", "cu130"),
        ("nvidia", "sm_121", "nvidia 580.95.05", "cu130"),
        ("nvidia", "sm_120", "nvidia 570.86.10", "cu128"),
        ("nvidia", "sm_70", "nvidia 580.95.05", "cu126"),
        ("nvidia", "sm_61", "nvidia 535.54", "cu126"),
        ("nvidia", None, None, "cu130"),
        ("amd", "gfx1100", "amdgpu 6.12.12", "rocm7.2"),
        ("intel", "dg2", "i915", "xpu"),
    ],
)
def test_the_newest_build_of_torch_that_runs_on_a_device_is_named(
    vendor: str, arch: str | None, driver: str | None, index: str
) -> None:
    found = weighed(vendor, arch, driver)
    assert (
        found.details["stack"]["install"] == f"pip install torch --index-url https://download.pytorch.org/whl/{index}"
    )
    assert (found.usable, found.verdict) == (True, WORKS)


@pytest.mark.parametrize(
    ("vendor", "arch", "driver", "torch", "reason"),
    [
        ("nvidia", "sm_89", "nvidia 566.36", "2.13.0+cpu", "is a build for CPU devices and cannot run on it"),
        ("nvidia", "sm_89", "nvidia 566.36", "2.9.0+rocm7.2", "is a build for AMD devices and cannot run on it"),
        ("intel", "dg2", "i915", "2.9.0+cu128", "is a build for NVIDIA devices and cannot run on it"),
        ("nvidia", "sm_86", "nvidia 570.86.10", "2.11.0+cu130", "the build cu130 needs driver 580, this is 570.86.10"),
        ("nvidia", "sm_86", "nvidia 470.82.01", "2.4.0+cu121", "the build cu121 needs driver 525, this is 470.82.01"),
        ("nvidia", "sm_120", "nvidia 575.57", "2.7.1+cu126", "the build cu126 has no kernels for sm_120"),
        ("nvidia", "sm_70", "nvidia 580.95", "2.11.0+cu130", "the build cu130 has no kernels for sm_70"),
        ("nvidia", "sm_70", "nvidia 580.95", "2.11.0+cu128", "the build cu128 has no kernels for sm_70"),
        ("nvidia", "sm_70", "nvidia 580.95", "2.7.1+cu128", "the build cu128 has no kernels for sm_70"),
        ("nvidia", "sm_110", "nvidia 580.95", "2.9.1+cu128", "the build cu128 has no kernels for sm_110"),
        ("amd", "gfx803", "amdgpu", "2.9.0+rocm7.2", "the build rocm7.2 has no kernels for gfx803"),
        ("amd", "gfx803", "amdgpu", "2.9.0+rocm6.4", "the build rocm6.4 has no kernels for gfx803"),
        ("amd", "gfx1101", "amdgpu", "2.4.0+rocm6.1", "the build rocm6.1 has no kernels for gfx1101"),
        ("nvidia", "sm_37", "nvidia 470.82", "2.9.1+cu126", "the build cu126 has no kernels for sm_37"),
        ("amd", "gfx1201", "amdgpu", "2.4.0+rocm6.1", "the build rocm6.1 has no kernels for gfx1201"),
        ("amd", "gfx942", "amdgpu", "2.3.0+rocm5.7", "the build rocm5.7 has no kernels for gfx942"),
    ],
)
def test_a_torch_that_has_to_be_replaced_makes_the_device_unusable_and_says_by_what(
    vendor: str, arch: str, driver: str, torch: str, reason: str
) -> None:
    found = weighed(vendor, arch, driver, torch=torch)
    assert (found.usable, found.verdict.code) == (False, "unusable")
    assert reason in found.verdict.reason
    if found.details["stack"].get("install"):
        assert "run `pip install --force-reinstall torch --index-url https://download" in found.verdict.reason


@pytest.mark.parametrize(
    ("vendor", "arch", "driver", "torch"),
    [
        ("nvidia", "sm_89", "nvidia 566.36", "2.13.0"),
        ("nvidia", "sm_86", "nvidia 535.54", "2.9.0+cu128"),
        ("nvidia", "sm_70", "nvidia 535.54", "2.8.0+cu128"),
        ("nvidia", "sm_70", "nvidia 535.54", "2.10.0+cu128"),
        ("nvidia", "sm_110", "nvidia 580.95", "2.9.1+cu130"),
        ("nvidia", "sm_86", "nvidia 535.54", "2.4.0+cu121"),
        ("nvidia", "sm_87", "nvgpu, L4T R36", "2.5.0a0+872d972e41.nv24.08"),
        ("nvidia", "sm_90", "nvidia 575.57", "2.8.0a0+5228986c39.nv25.05"),
        ("amd", "gfx1100", "amdgpu", "2.9.0+rocm7.2"),
        ("amd", "gfx1100", "amdgpu", "2.2.0+rocm5.6"),
        ("amd", "gfx942", "amdgpu", "2.6.0+rocm6.4.1.git1ded221d"),
        ("amd", "gfx90a", "amdgpu", "2.0.1+rocm5.4.2"),
        ("amd", None, "amdgpu", "2.9.0+rocm6.4"),
        ("nvidia", "sm_120", "nvidia 575.57", "2.8.0+cu129"),
        ("intel", "bmg", "xe", "2.9.0+xpu"),
        ("intel", "dg2", "i915", "2.9.0+xpu"),
        ("ascend", "910b3", "devdrv_device_driver 23.0.3", "2.8.0+cpu"),
        ("acme", "a1", "acme 1.0", "2.8.0+cpu"),
    ],
)
def test_a_torch_that_may_run_on_the_device_is_not_doubted(vendor: str, arch: str, driver: str, torch: str) -> None:
    found = weighed(vendor, arch, driver, torch=torch)
    assert (found.usable, found.verdict) == (True, WORKS)


@pytest.mark.parametrize(
    ("arch", "torch"),
    [
        ("gfx1103", "2.13.0+rocm7.2"),
        ("gfx1151", "2.9.0+rocm6.4"),
        ("gfx1101", "2.7.0+rocm6.2.4"),
        ("gfx1036", "2.6.0+rocm6.4.1.git1ded221d"),
        ("gfx1036", "2.0.1+rocm5.4.2"),
        ("gfx942", "2.0.1+rocm5.4.2"),
    ],
)
def test_a_build_that_may_lack_kernels_leaves_the_verdict_unknown(arch: str, torch: str) -> None:
    found = weighed("amd", arch, "amdgpu", torch=torch)
    assert (found.usable, found.verdict.code) == (False, "unknown")
    assert f"whether torch {torch} has kernels for {arch} is unknown" in found.verdict.reason


def test_a_device_that_no_build_runs_on_cannot_be_used_and_needs_no_driver_that_it_cannot_have() -> None:
    found = weighed("amd", "gfx803", "amdgpu 6.12.12")
    assert (found.usable, found.verdict.code) == (False, "unusable")
    assert found.verdict.reason == "no build of torch that is known here has kernels for gfx803"
    kepler = weighed("nvidia", "sm_37", "nvidia 470.256.02", details={"cuda_version": "11.4"})
    assert (kepler.usable, kepler.details["stack"]) == (False, {})


OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


@pytest.mark.parametrize(
    ("arch", "like", "value"),
    [("gfx1031", "gfx1030", "10.3.0"), ("gfx1036", "gfx1030", "10.3.0"), ("gfx1103", "gfx1100", "11.0.0")],
)
def test_a_gpu_that_takes_the_kernels_of_a_like_one_is_told_by_which_variable(arch: str, like: str, value: str) -> None:
    found = weighed("amd", arch, "amdgpu", torch="2.4.0+rocm6.1")
    assert found.usable is False
    fix = "HSA" in found.verdict.reason
    assert fix == (like == "gfx1030")  # a newer build may have kernels for gfx1103
    found = weighed("amd", arch, "amdgpu", torch="2.4.0+rocm6.1", env={OVERRIDE: value})
    assert (found.usable, found.verdict.code) == (True, "limited")
    assert found.verdict.reason == f"{OVERRIDE}={value} has it take the kernels of {like}, which AMD does not support"
    assert found.arch == arch


def test_the_override_is_advised_where_the_installed_build_has_those_kernels() -> None:
    found = weighed("amd", "gfx1031", "amdgpu", torch="2.9.1+rocm6.4")
    assert found.verdict.reason.endswith(
        "; run `export HSA_OVERRIDE_GFX_VERSION=10.3.0`, with which it takes the kernels of gfx1030"
    )
    bare = weighed("amd", "gfx1031", "amdgpu")
    assert (bare.usable, bare.verdict.code) == (True, "limited")
    assert "`HSA_OVERRIDE_GFX_VERSION=10.3.0` has it take those of gfx1030" in bare.verdict.reason
    assert bare.details["stack"]["install"].endswith("whl/rocm7.2")
    assert "whl/rocm7.2`" in weighed("amd", "gfx1031", "amdgpu", torch="2.9.1+cpu").verdict.reason


def test_an_override_of_the_kfd_node_comes_first_and_one_of_another_family_counts_for_nothing() -> None:
    for env, usable in (
        ({f"{OVERRIDE}_1": "10.3.0"}, True),
        ({f"{OVERRIDE}_1": "11.0.0", OVERRIDE: "10.3.0"}, False),
        ({f"{OVERRIDE}_2": "10.3.0"}, False),
        ({OVERRIDE: "11.0.0"}, False),
    ):
        assert weighed("amd", "gfx1031", torch="2.9.1+rocm6.4", indices={"kfd": 1}, env=env).usable is usable
    untouched = weighed("amd", "gfx1101", torch="2.9.1+rocm7.2")
    assert untouched.verdict == WORKS


def test_an_override_that_another_gpu_must_not_take_is_advised_for_the_node_alone() -> None:
    torch = "2.9.1+rocm6.4"
    for beside, indices, name in (
        ("gfx1100", {"kfd": 2}, f"{OVERRIDE}_2"),
        (None, {"kfd": 2}, f"{OVERRIDE}_2"),
        ("gfx1030", {"kfd": 2}, OVERRIDE),
        ("gfx1031", {}, OVERRIDE),
        ("gfx1100", {}, None),
    ):
        devices = (device("amd", beside), device("amd", "gfx1036"), device("nvidia", "sm_90"))
        reason = weighed("amd", "gfx1036", torch=torch, indices=indices, beside=devices).verdict.reason
        advised = re.search(r"export (\w+)=10\.3\.0`", reason)
        assert (advised and advised[1]) == name


def test_an_override_counts_for_every_gpu() -> None:
    crossed = weighed("amd", "gfx1100", torch="2.9.1+rocm6.4", env={OVERRIDE: "10.3.0"})
    assert (crossed.usable, crossed.verdict.code, crossed.arch) == (False, "unusable", "gfx1100")
    assert crossed.verdict.reason == (
        f"{OVERRIDE}=10.3.0 has it take the kernels of gfx1030, which do not run on gfx1100; run `unset {OVERRIDE}`"
    )
    near = weighed("amd", "gfx1151", torch="2.9.1+rocm7.2", env={OVERRIDE: "11.0.0"})
    assert (near.verdict.code, near.details["stack"]["takes"]) == ("unknown", "gfx1100")
    for value in ("11.0.0", "", "x", "11.0", "11.0.99"):
        assert weighed("amd", "gfx1100", torch="2.9.1+rocm6.4", env={OVERRIDE: value}).verdict == WORKS
    assert weighed("nvidia", "sm_90", "nvidia 580.95", env={OVERRIDE: "10.3.0"}).verdict == WORKS


@pytest.mark.parametrize(
    ("torch", "cuda", "code", "reason"),
    [
        ("2.9.1+cpu", "12.6", "unusable", "is a build for CPU devices and cannot run on it; run `pip install --force"),
        ("2.9.1+cu130", "12.6", "unusable", "the build cu130 needs CUDA 13, the driver is for CUDA 12.6; run `pip"),
        ("2.9.1+cu126", "12.6", "unusable", "has no kernels for sm_87, it is not for Jetson modules; run `pip install"),
        ("2.9.1+cu126", "12.2", "unusable", "it is not for Jetson modules; install NVIDIA's own torch for its JetPack"),
        ("2.9.1+cu126", None, "unusable", "it is not for Jetson modules; install NVIDIA's own torch for its JetPack"),
        ("2.9.1+cu130", "13.2", "unknown", "whether torch 2.9.1+cu130 has kernels for sm_87 is unknown"),
        ("2.8.0", "12.6", "usable", "it works"),
        (None, "12.6", "usable", "it works"),
    ],
)
def test_a_jetson_module_needs_the_build_for_its_jetpack(
    torch: str | None, cuda: str | None, code: str, reason: str
) -> None:
    found = weighed("nvidia", "sm_87", "nvgpu, L4T R36", torch=torch, details={"cuda_version": cuda})
    assert (found.verdict.code, found.usable) == (code, code == "usable")
    assert reason in found.verdict.reason
    assert "download.pytorch.org" not in f"{found.verdict.reason} {found.details['stack']}"
    named = (
        found.details["stack"].get("install") == "pip install torch --index-url https://pypi.jetson-ai-lab.io/jp6/cu126"
    )
    assert named == (cuda == "12.6")
    assert named != ("advice" in found.details["stack"])
    assert "driver" not in found.details["stack"]["least"]


@pytest.mark.parametrize(
    ("driver", "cuda", "tag"),
    [
        ("nvidia", "12.4", "cu128"),
        ("nvidia", "13.0", "cu130"),
        ("nvidia 550.54.15", "13.0", "cu130"),
        ("nvidia", None, "cu130"),
    ],
)
def test_what_libcuda_is_for_counts_before_the_drivers_own_number(driver: str, cuda: str | None, tag: str) -> None:
    found = weighed("nvidia", "sm_90", driver, details={"cuda_version": cuda})
    assert found.details["stack"]["install"].endswith(f"/{tag}")


def test_a_torch_for_a_newer_cuda_than_the_driver_is_told_without_the_drivers_number() -> None:
    found = weighed("nvidia", "sm_90", "nvidia", torch="2.9.1+cu130", details={"cuda_version": "12.4"})
    assert "the build cu130 needs CUDA 13, the driver is for CUDA 12.4; run `pip" in found.verdict.reason


def test_a_driver_that_is_too_old_for_every_build_limits_the_device_and_is_what_to_update() -> None:
    found = weighed("nvidia", "sm_86", "nvidia 470.82.01")
    assert (found.usable, found.verdict.code) == (True, "limited")
    assert found.verdict.reason == (
        "every build of torch that is known here needs a newer driver: the build cu126 needs driver 525, this is "
        "470.82.01; update the driver to 525 or newer"
    )
    assert found.details["stack"]["short"] == ["the driver 470.82.01 is older than 525"]


def test_the_cpu_and_what_the_table_does_not_know_are_left_alone() -> None:
    cpu = replace(device("cpu", "avx2"), kind="cpu")
    strange = device("acme", "a1", verdict=WORKS)
    for each in (cpu, strange):
        assert weigh(each, Software(torch="2.13.0+cpu")) == each


def test_a_kernel_that_is_too_old_to_bind_a_driver_is_named() -> None:
    bare = device("intel", "bmg", None, verdict=Verdict(code="unusable", reason="no driver is bound to it"))
    found = weigh(bare, Software(kernel="6.8.0-60-generic"))
    assert found.verdict.reason == (
        "no driver is bound to it; Linux 6.8.0-60-generic is older than 6.12, the first that supports it"
    )
    assert weigh(bare, Software(kernel="6.12.1")).verdict == bare.verdict
    assert weigh(bare, Software(kernel=None)).verdict == bare.verdict


def test_a_verdict_that_does_not_ask_for_torch_stays() -> None:
    for code in ("unusable", "hidden", "unknown"):
        given_verdict = Verdict(code=code, reason="because")
        found = weigh(device("nvidia", "sm_89", "nvidia 566.36", verdict=given_verdict), Software(torch="2.13.0+cpu"))
        assert found.verdict == given_verdict


def test_a_runtime_that_is_older_than_vllm_needs_is_told_and_stands_against_nothing() -> None:
    found = weighed("ascend", "910b3", details={"cann_version": "8.0.RC3"})
    assert found.details["stack"]["short"] == ["CANN 8.0.RC3 is older than 8.1.RC1"]
    assert found.verdict == WORKS
    assert "short" not in weighed("ascend", "910b3", details={"cann_version": "8.2.RC1"}).details["stack"]
    assert "short" not in weighed("ascend", "910b3", details={"cann_version": "8.1.RC1"}).details["stack"]


def test_every_entry_of_the_table_has_a_source_and_a_known_vendor() -> None:
    for vendor, record in table()["vendors"].items():
        assert record["builds"] == [] or set(record["sources"]) <= set(table()["sources"])
        assert vendor_of(record["tag"]) == vendor if "tag" in record else True
    assert {family["vendor"] for family in table()["families"]} <= set(table()["vendors"])
    assert all(re.search(r"https://|\.c\b", source) for source in table()["sources"].values())


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_version_is_weighed(torch: str, driver: str, kernel: str) -> None:
    found = weigh(device("nvidia", "sm_89", f"nvidia {driver}", verdict=WORKS), Software(torch=torch, kernel=kernel))
    assert found.verdict.code in {"usable", "unusable", "limited"}
    build_tag(torch)

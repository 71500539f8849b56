import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.device import Device, Software, Verdict
from vllm_probe.detect.stack import build_tag, table, vendor_of, weigh

WORKS = Verdict(code="usable", reason="it works")


def device(vendor: str, arch: str | None, driver: str | None = "x", **more: Any) -> Device:
    return Device(id="0000:01:00.0", vendor=vendor, kind="gpu", arch=arch, driver=driver, usable=True, **more)


def weighed(
    vendor: str, arch: str | None, driver: str | None = "x", *, torch: str | None = None, **more: Any
) -> Device:
    return weigh(device(vendor, arch, driver, verdict=WORKS, **more), Software(torch=torch, kernel="6.8.0-60-generic"))


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
        ("amd", "gfx1036", "amdgpu", "2.9.0+rocm7.2", "the build rocm7.2 has no kernels for gfx1036"),
        ("amd", "gfx1036", "amdgpu", "2.9.0+rocm6.4", "the build rocm6.4 has no kernels for gfx1036"),
        ("amd", "gfx1036", "amdgpu", "2.7.0+rocm6.2.4", "the build rocm6.2.4 has no kernels for gfx1036"),
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


def test_a_device_that_no_build_has_kernels_for_is_limited() -> None:
    found = weighed("amd", "gfx1036", "amdgpu 6.12.12")
    assert (found.usable, found.verdict.code) == (True, "limited")
    assert found.verdict.reason == "no build of torch runs on it: the build rocm7.2 has no kernels for gfx1036"
    assert weighed("nvidia", "sm_35", "nvidia 470.82").verdict.code == "limited"


def test_a_driver_that_is_too_old_for_every_build_limits() -> None:
    found = weighed("nvidia", "sm_86", "nvidia 470.82.01")
    assert found.verdict.code == "limited"
    assert found.verdict.reason.endswith("the build cu126 needs driver 525, this is 470.82.01")
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

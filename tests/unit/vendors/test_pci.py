"""Which functions of the bus are accelerators, and which only look like one."""

import pytest

from tests.unit.detect.scenes import host_of
from vllm_probe.vendors.pci import PciFunction, accelerators

ROOT = "/sys/bus/pci/devices"


def function(address: str, vendor: int, device: int, class_: int, **more: str) -> dict[str, str]:
    files = {"vendor": f"0x{vendor:04x}\n", "device": f"0x{device:04x}\n", "class": f"0x{class_:06x}\n", **more}
    return {f"{ROOT}/{address}/{name}": text for name, text in files.items()}


def found(*functions: dict[str, str]) -> tuple[PciFunction, ...]:
    return accelerators(host_of(files={path: text for each in functions for path, text in each.items()}))


@pytest.mark.parametrize(
    ("vendor", "device", "class_", "label", "kind"),
    [
        (0x10DE, 0x20B2, 0x030200, "NVIDIA GPU", "gpu"),
        (0x1002, 0x74A1, 0x120000, "AMD GPU", "gpu"),
        (0x1022, 0x17F0, 0x118000, "AMD NPU", "npu"),
        (0x8086, 0x56C0, 0x038000, "Intel GPU", "gpu"),
        (0x8086, 0x7D1D, 0x120000, "Intel NPU", "npu"),
        (0x19E5, 0xD802, 0x120000, "Ascend NPU", "npu"),
        (0x1D94, 0x6370, 0x0B4000, "Hygon DCU", "gpu"),
        (0x1DED, 0x0001, 0x030200, "T-Head PPU", "gpu"),
        (0x1D0F, 0x7364, 0x088000, "AWS Neuron", "npu"),
        (0x1AE0, 0x0027, 0xFF0000, "Google TPU", "npu"),
        (0x19E5, 0x1711, 0x030000, "display adapter", None),
        (0x1A03, 0x2000, 0x030000, "display adapter", None),
        (0x102B, 0x0536, 0x030000, "display adapter", None),
        (0x1AF4, 0x1050, 0x038000, "display adapter", None),
        (0x8086, 0x09C4, 0x120000, "processing accelerator", None),
        (0x10EE, 0x5000, 0x120000, "processing accelerator", None),
    ],
)
def test_a_function_is_what_its_vendor_class_and_id_make_it(
    vendor: int, device: int, class_: int, label: str, kind: str | None
) -> None:
    (one,) = found(function("0000:03:00.0", vendor, device, class_))
    assert (one.label, one.kind) == (label, kind)


@pytest.mark.parametrize(
    ("vendor", "device", "class_"),
    [
        (0x10DE, 0x1AF1, 0x068000),  # NVSwitch
        (0x10DE, 0x1AEF, 0x040300),  # audio of a graphics card
        (0x1022, 0x15E4, 0x118000),  # sensor hub
        (0x8086, 0x4940, 0x0B4000),  # QuickAssist
        (0x8086, 0x7D03, 0x118000),  # thermal function
        (0x1D0F, 0x8061, 0x010802),  # NVMe
        (0x1AE0, 0x0042, 0x020000),  # gVNIC
        (0x1D94, 0x1456, 0x108000),  # security processor
    ],
)
def test_other_functions_of_the_same_vendors_are_not_listed(vendor: int, device: int, class_: int) -> None:
    assert found(function("0000:03:00.0", vendor, device, class_)) == ()


def test_a_driver_names_an_npu_that_is_newer_than_the_list() -> None:
    driver = {"driver": "!link ../../../bus/pci/drivers/amdxdna"}
    (one,) = found(function("0000:c6:00.1", 0x1022, 0x1FFF, 0x118000, **driver))
    assert (one.label, one.kind, one.driver) == ("AMD NPU", "npu", "amdxdna")


def test_intel_graphics_are_integrated_where_they_always_are() -> None:
    here, there = found(
        function("0000:00:02.0", 0x8086, 0x3E92, 0x030000), function("0000:03:00.0", 0x8086, 0x56A0, 0x030000)
    )
    assert (here.kind, there.kind) == ("igpu", "gpu")


def test_virtual_functions_second_heads_and_the_stand_in_of_hyper_v_are_no_devices() -> None:
    kept = found(
        function("0000:4d:00.0", 0x8086, 0x56C0, 0x038000),
        function("0000:4d:00.1", 0x8086, 0x56C0, 0x038000, physfn="!link ../0000:4d:00.0"),
        function("0000:21:00.0", 0x1002, 0x9588, 0x030000),
        function("0000:21:00.1", 0x1002, 0x9589, 0x038000),
        function("1e5b:00:00.0", 0x1414, 0x008E, 0x030200, driver="!link ../../../bus/vmbus/drivers/dxgkrnl"),
    )
    assert [one.address for one in kept] == ["0000:21:00.0", "0000:4d:00.0"]


def test_a_virtual_function_with_a_render_node_of_its_own_is_a_device_beside_its_physical_one() -> None:
    kept = found(
        function("0000:4d:00.0", 0x8086, 0x56C0, 0x038000),
        function("0000:4d:00.1", 0x8086, 0x56C0, 0x038000, physfn="!link ../0000:4d:00.0")
        | {"/sys/bus/pci/devices/0000:4d:00.1/drm/renderD129/dev": "226:129"},
    )
    assert [one.address for one in kept] == ["0000:4d:00.0", "0000:4d:00.1"]


def test_a_virtual_function_that_a_virtual_machine_was_given_is_its_device() -> None:
    (one,) = found(function("0000:00:05.0", 0x1002, 0x74B5, 0x120000))
    assert one.kind == "gpu"


@pytest.mark.parametrize(
    ("files", "asleep"),
    [
        ({"power_state": "D3cold\n"}, True),
        ({"power_state": "D3hot\n", "power/runtime_status": "suspended\n"}, True),
        ({"power_state": "D3cold\n", "power/runtime_status": "active\n"}, True),
        ({"power_state": "D0\n", "power/runtime_status": "active\n"}, False),
        ({"power_state": "D3hot\n"}, False),
        ({"power/runtime_status": "suspended\n"}, True),
        ({"power/runtime_status": "active\n"}, False),
        ({}, False),
    ],
)
def test_a_function_is_asleep_by_its_power_state_and_by_its_runtime_status(
    files: dict[str, str], *, asleep: bool
) -> None:
    (one,) = found(function("0000:01:00.0", 0x10DE, 0x2204, 0x030000, **files))
    assert one.asleep is asleep

"""Numbers of NVIDIA GPUs, and the variables and containers that hide some of them."""

from typing import Any

import pytest

from tests.unit.vendors.nvidia.cards import CUDA, NODES, NVML, TWO, cards, found, libs


def test_a_card_without_a_driver_does_not_take_a_number_from_the_others() -> None:
    files = cards("0000:01:00.0", driver="vfio-pci") | cards("0000:41:00.0") | NODES
    taken, other = found(
        files, libs=libs(nvml=NVML | {"nvmlDeviceGetCount": 1, "nvmlDeviceGetPciInfo": {"bus": 0x41}})
    ).devices
    assert (taken.usable, taken.indices) == (False, {})
    assert (other.usable, other.indices) == (True, {"nvml": 0, "cuda": 0})


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [(True, 0), (True, 1)]),
        ("1", [(False, None), (True, 0)]),
        ("1,0", [(True, 1), (True, 0)]),
        ("0", [(True, 0), (False, None)]),
        ("", [(False, None), (False, None)]),
        ("7", [(False, None), (False, None)]),
    ],
)
def test_what_a_variable_hides_stays_usable_and_is_told(
    mask: str | None, expected: list[tuple[bool, int | None]]
) -> None:
    shown = mask is None or mask in {"1", "1,0", "0"}
    cuda = CUDA if shown else {"cuInit": 100}
    devices = found(TWO, libs=libs(cuda=cuda), env={} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}).devices
    assert [(device.visible, device.indices.get("cuda")) for device in devices] == expected
    assert all(device.usable for device in devices)
    hidden = [device for device in devices if not device.visible]
    assert all(device.verdict.code == "hidden" for device in hidden)
    assert all(f"CUDA_VISIBLE_DEVICES={mask}" in device.verdict.reason for device in hidden)


def test_a_variable_does_not_hide_that_a_driver_is_broken() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "1"}
    broken, _ = found(TWO, libs=libs(cuda={"cuInit": 803}), env=hidden).devices
    assert (broken.usable, broken.verdict.code) == (False, "unusable")
    failing, _ = found(TWO, libs=libs(nvml={"nvmlInit": 999}), env=hidden).devices
    assert (failing.usable, failing.verdict.code) == (False, "hidden")
    assert "was not checked" in failing.verdict.reason


def test_the_cuda_driver_tells_its_own_numbers() -> None:
    addresses = {f"cuDeviceGetPCIBusId(32, {i})": address for i, address in enumerate(("0000:41:00.0", "0000:01:00.0"))}
    calls = {key: {"status": 0, "outs": [address.encode().hex() + "00" * 20]} for key, address in addresses.items()}
    devices = found(TWO, libs=libs(cuda=CUDA | calls | {"cuDeviceGetCount": 2})).devices
    assert [device.indices["cuda"] for device in devices] == [1, 0]
    assert devices[0].sources["/indices/cuda"] == "libcuda"


def test_a_device_that_the_cuda_driver_leaves_out_is_unusable() -> None:
    cuda = CUDA | {"cuDeviceGetCount": 1, "cuDeviceGetPCIBusId": "0000:41:00.0"}
    first, second = found(TWO, libs=libs(cuda=cuda)).devices
    assert (first.usable, second.usable) == (False, True)
    assert "the CUDA driver does not list it" in first.verdict.reason


EIGHT = tuple(f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x90, 0x10))
GIVEN = EIGHT[3]
POD = cards(*EIGHT, device="0x2330") | {
    "/.dockerenv": "",
    "/dev/nvidia3": "!chr 195:3 0666 0:0",
    "/dev/nvidiactl": "!chr 195:255 0666 0:0",
    "/dev/nvidia-uvm": "!chr 236:0 0666 0:0",
}
TOLD = f"/proc/driver/nvidia/gpus/{GIVEN}/information"
INFORMATION = {TOLD: "Model: \t NVIDIA H100\nDevice Minor: \t 3\n"}
ONE_LISTED = CUDA | {"cuDeviceGetCount": 1}


@pytest.mark.parametrize(
    ("files", "cuda"),
    [
        (INFORMATION, ONE_LISTED),
        (INFORMATION, ONE_LISTED | {"cuDeviceGetPCIBusId": GIVEN}),
        ({}, ONE_LISTED | {"cuDeviceGetPCIBusId": GIVEN}),
    ],
)
def test_a_container_with_one_gpu_of_eight_was_not_given_the_others(
    files: dict[str, str], cuda: dict[str, Any]
) -> None:
    devices = {device.id: device for device in found(POD | files, libs=libs(cuda, None)).devices}
    given = devices.pop(GIVEN)
    assert (given.usable, given.indices) == (True, {"cuda": 0})
    assert {device.verdict.code for device in devices.values()} == {"unusable"}
    for device in devices.values():
        assert device.verdict.reason.startswith(
            ("this container was not given it;", "this container was not given its node;")
        )
        assert "NVIDIA_VISIBLE_DEVICES=all" in device.verdict.reason
        assert device.indices == {}


def test_of_more_gpus_than_the_driver_counts_those_are_taken_that_nvidia_smi_tells_of() -> None:
    text = "\n".join(
        (
            "<nvidia_smi_log><driver_version>570.1</driver_version>",
            f'<gpu id="0000{GIVEN}"><product_name>NVIDIA H100</product_name>',
            "<fb_memory_usage><total>81559 MiB</total></fb_memory_usage></gpu></nvidia_smi_log>",
        )
    )
    devices = found(POD, libs=libs(ONE_LISTED, None), commands={"nvidia-smi -q -x": text}).devices
    assert [device.id for device in devices if device.usable] == [GIVEN]
    assert {device.id: device.indices for device in devices if device.indices} == {GIVEN: {"cuda": 0}}


def test_of_more_gpus_than_the_driver_counts_none_is_called_usable_where_nothing_tells_which() -> None:
    devices = found(POD, libs=libs(ONE_LISTED, None)).devices
    assert {(device.verdict.code, device.usable) for device in devices} == {("unknown", False)}
    assert "does not tell which" in devices[0].verdict.reason
    assert all(device.indices == {} for device in devices)


def test_cards_that_differ_have_no_number_until_the_driver_tells_it() -> None:
    files = cards("0000:01:00.0") | cards("0000:41:00.0", device="0x2684") | NODES
    answer = found(files, libs=libs(nvml=None))
    assert all("cuda" not in device.indices for device in answer.devices)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in answer.unknown["/1/indices/cuda"]
    ordered = found(files, libs=libs(nvml=None), env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [device.indices["cuda"] for device in ordered.devices] == [0, 1]

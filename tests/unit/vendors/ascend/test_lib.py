"""DCMI on recorded machines: what a recording by hand means."""

import pytest

from tests.unit.vendors.ascend.hosts import BUS, CARD, DCMI, MIB, TABLE, host_of, libs
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.vendors.ascend.lib import health, read


def test_cards_that_are_only_counted_are_numbered_from_0() -> None:
    report = read(host_of(CARD, libs=libs(DCMI | {"dcmi_get_card_list": 2})))
    assert [(each["card"], each["chip"]) for each in report["devices"]] == [(0, 0), (1, 0)]
    assert report["driver"] == "25.0.1"
    assert report["devices"][0]["name"] == "910B4"
    assert report["devices"][0]["memory"] == {"total": 32768 * MIB, "used": 2768 * MIB}


def test_a_driver_that_cannot_list_its_cards_cannot_be_asked() -> None:
    with pytest.raises(LibraryUnavailable, match="cannot list its cards"):
        read(host_of(CARD, libs=libs({"dcmi_init": 0})))


@pytest.mark.parametrize(
    ("function", "value", "absent"),
    [
        ("dcmi_get_device_temperature", -8255, "temperature_c"),
        ("dcmi_get_device_temperature", 0x7FFFFFFF, "temperature_c"),
        ("dcmi_get_device_power_info", -1, "power_w"),
        ("dcmi_get_device_power_info", 0, "power_w"),
        ("dcmi_get_device_temperature", 0, "temperature_c"),
        ("dcmi_get_device_utilization_rate", 0xFFFFFFFF, "utilization"),
        ("dcmi_get_device_frequency", 0, "aicore_clock_mhz"),
        ("dcmi_get_device_frequency", 0xFFFFFFFF, "aicore_clock_max_mhz"),
        ("dcmi_get_device_logic_id", -1, "logic"),
        ("dcmi_get_device_phyid_from_logicid", 0xFFFFFFFF, "phy"),
        ("dcmi_get_device_health", 9, "health"),
    ],
)
def test_a_number_that_cannot_be_is_unknown(function: str, value: int, absent: str) -> None:
    (device,) = read(host_of(CARD, libs=libs(DCMI | {function: value})))["devices"]
    assert absent not in device


@pytest.mark.parametrize("status", [-8005, -8020])
def test_the_status_of_a_driver_that_fails_is_the_report(status: int) -> None:
    assert read(host_of(CARD, libs=libs({"dcmi_init": status}))) == {"status": status}


def test_a_recording_that_has_the_card_alone_makes_no_lost_device_of_it() -> None:
    (device,) = read(host_of(CARD, libs=libs({"dcmi_init": 0, "dcmi_get_card_list": 1})))["devices"]
    assert "status" not in device
    assert device["failed"]["memory_info"] == -99998


def test_one_question_that_fails_loses_no_device() -> None:
    (device,) = read(host_of(CARD, libs=libs(DCMI | {"dcmi_get_device_pcie_info": -8012})))["devices"]
    assert "status" not in device
    assert device["failed"]["pci"] == -8012


def test_a_library_in_a_folder_of_its_own_is_found() -> None:
    path = "/usr/local/dcmi/libdcmi.so"
    host = host_of(CARD | {path: ""}, libs={path: libs(DCMI)["libdcmi.so"]})
    assert read(host)["status"] == 0


def test_health_is_by_the_ids_of_the_inventory_and_has_what_changes() -> None:
    found = health(host_of(CARD, libs=libs(DCMI)))["devices"]
    assert list(found) == ["0000:c1:00.0"]
    device = found["0000:c1:00.0"]
    assert (device["free_bytes"], device["used_bytes"]) == (30000 * MIB, 2768 * MIB)
    assert (device["health"], device["utilization"], device["power_w"]) == ("ok", 3, 88.7)
    assert "name" not in device


def test_npu_smi_tells_the_health_where_there_is_no_dcmi() -> None:
    found = health(host_of(CARD, commands={"npu-smi info": TABLE}))["devices"]["0000:c1:00.0"]
    assert (found["free_bytes"], found["used_bytes"]) == (30000 * MIB, 2768 * MIB)
    assert (found["health"], found["temperature_c"], found["utilization"]) == ("ok", 41, 3)
    failed = {"npu-smi info": "!rc=1\ndcmi module initialize failed. ret is -8020\n"}
    assert health(host_of(CARD, commands=failed)) == {"lost": "the device is occupied", "devices": {}}
    with pytest.raises(LibraryUnavailable, match=r"libdcmi\.so"):
        health(host_of(CARD, commands={"npu-smi info": "!timeout"}))


def test_npu_smi_tells_the_memory_where_dcmi_does_not() -> None:
    lacking = libs(DCMI | {"dcmi_get_device_hbm_info": -8255})
    found = health(host_of(CARD, libs=lacking, commands={"npu-smi info": TABLE}))["devices"]["0000:c1:00.0"]
    assert (found["free_bytes"], found["health"], found["power_w"]) == (30000 * MIB, "ok", 88.7)
    assert "free_bytes" not in health(host_of(CARD, libs=lacking))["devices"]["0000:c1:00.0"]


def test_memory_of_which_the_use_is_not_told_is_not_free() -> None:
    listed = "NPU ID : 0\nChip Count : 1\n"
    usages = "NPU ID : 0\nHBM Capacity(MB) : 32768\nHBM Usage Rate(%) : 0\nHealth : OK\nChip ID : 0\n"
    commands = {"npu-smi info": "none", "npu-smi info -l": listed, "npu-smi info -t usages -i 0": usages}
    (found,) = health(host_of(CARD, commands=commands))["devices"].values()
    assert "free_bytes" not in found


def test_a_driver_that_fails_has_lost_all() -> None:
    assert health(host_of(CARD, libs=libs({"dcmi_init": -8020}))) == {"lost": "the device is occupied", "devices": {}}


def test_health_is_not_asked_where_that_would_wake_a_device() -> None:
    with pytest.raises(LibraryUnavailable, match=r"that wakes 0000:c1:00\.0"):
        health(host_of(CARD | {f"{BUS}/power/runtime_status": "suspended"}, libs=libs(DCMI)))


def test_a_device_over_which_dcmi_hangs_is_lost() -> None:
    found = health(host_of(CARD, libs=libs(DCMI | {"dcmi_get_device_health": "timeout"})))["devices"]
    assert "dcmi_get_device_health" in found["0000:c1:00.0"]["lost"]

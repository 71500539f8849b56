"""Ascend NPUs on recorded machines: values, numbers, verdicts, and that one layer never hides another."""

from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, STAMP
from tests.unit.vendors.ascend.hosts import (
    ACL,
    BUS,
    CARD,
    CONTAINER,
    DCMI,
    MIB,
    SHARED,
    TABLE,
    TWO,
    devices,
    function,
    host_of,
    libs,
    probed,
    recorded,
    the_card,
)
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.ascend.probe import probe
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

CANN = {"/usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info": "version=8.2.RC1\n"}
WORKING = libs(DCMI, ACL)
FAILED = "!rc=1\ndcmi module initialize failed. ret is {}\n"


def test_a_card_has_the_values_of_dcmi_with_their_sources() -> None:
    device = the_card(CARD | CANN, libs=WORKING)
    assert (device.id, device.name, device.arch) == ("0000:c1:00.0", "Huawei Ascend 910B4", "910b4")
    assert device.driver == "devdrv_device_driver 25.0.1"
    memory = device.memory
    assert (memory.reported_bytes, memory.used_bytes, memory.usable_bytes) == (32768 * MIB, 2768 * MIB, 30000 * MIB)
    assert (memory.kind, device.indices) == ("dedicated", {"npu": 0, "davinci": 0})
    assert {"soc": "Ascend910B4", "ai_cores": 20, "power_w": 88.7, "cann_version": "8.2.RC1"}.items() <= dict(
        device.details
    ).items()
    assert device.sources["/memory/reported_bytes"] == "DCMI"
    assert (device.verdict.code, device.usable, device.adapter) == ("usable", True, "ascend")
    assert device.verdict.reason == "its health is OK and CANN 8.2.RC1 can be initialised"


def test_npu_smi_gives_the_same_where_there_is_no_dcmi_and_hugepages_are_no_memory() -> None:
    device = the_card(CARD, libs=libs(acl=ACL), commands={"npu-smi info": TABLE})
    assert (device.arch, device.memory.reported_bytes, device.usable) == ("910b4", 32768 * MIB, True)
    assert device.sources["/memory/reported_bytes"] == "npu-smi"


def test_npu_smi_is_not_asked_where_dcmi_has_told_all() -> None:
    device = the_card(CARD, libs=WORKING, commands={"npu-smi info": TABLE.replace("32768", "99999")})
    assert "conflicts" not in device.details


def test_two_sources_that_disagree_are_both_shown() -> None:
    calls = DCMI | {"dcmi_get_device_chip_info": -8255}
    device = the_card(CARD, libs=libs(calls, ACL), commands={"npu-smi info": TABLE.replace("32768", "65536")})
    assert device.memory.reported_bytes == 32768 * MIB
    conflict = device.details["conflicts"]["/memory/reported_bytes"]
    assert conflict == [{"value": 65536 * MIB, "source": "npu-smi"}]


def test_acl_tells_the_memory_that_nothing_else_tells() -> None:
    calls = ACL | {"aclrtSetDevice": 0, "aclrtGetMemInfo": [700, 800]}
    device = the_card(CARD, libs=libs(acl=calls))
    assert (device.memory.reported_bytes, device.memory.usable_bytes, device.memory.used_bytes) == (800, 700, 100)
    assert device.sources["/memory/reported_bytes"] == "ACL"


def test_acl_makes_no_context_where_the_memory_is_known() -> None:
    host = host_of(CARD, libs=libs(DCMI, ACL | {"aclrtSetDevice": "timeout"}))
    begin = host.now()
    assert probe(host).devices[0].usable
    assert host.now() == begin


def test_a_name_that_several_chips_have_names_a_device_that_nothing_else_names() -> None:
    files = {path: text for path, text in CARD.items() if not path.startswith(BUS)}
    device = the_card(files, libs=libs(DCMI | {"dcmi_get_device_chip_info": {"chip_name": "Ascend910"}}, ACL))
    assert (device.id, device.name, device.arch) == ("ascend:0", "Huawei Ascend 910", None)


def test_what_nobody_tells_is_null_with_the_reason() -> None:
    answer = probed(CARD, libs=libs(DCMI | {"dcmi_get_device_hbm_info": -8013}, ACL))
    assert answer.devices[0].memory.reported_bytes is None
    assert answer.unknown["/0/memory/reported_bytes"] == "DCMI: this driver's DCMI has no such function"
    answer = probed(CARD)
    assert "libdcmi.so: cannot open" in answer.unknown["/0/memory/reported_bytes"]
    assert "there is no npu-smi" in answer.unknown["/0/details/health"]


@pytest.mark.parametrize(
    ("health", "code", "usable"),
    [
        (0, "usable", True),
        (1, "limited", True),
        (2, "limited", True),
        (3, "unusable", False),
        (2**32 - 1, "unusable", False),
    ],
)
def test_health_decides(health: int, code: str, usable: object) -> None:
    device = the_card(CARD, libs=libs(DCMI | {"dcmi_get_device_health": health}, ACL))
    assert (device.verdict.code, device.usable) == (code, usable)
    assert code == "usable" or "npu-smi info -t health -i 0 -c 0" in device.verdict.reason


@pytest.mark.parametrize(
    ("status", "where", "reason"),
    [
        (-8005, {}, "reboot where driver or firmware were upgraded"),
        (-8005, CONTAINER, "mostly another container holds the device; stop that container or start this one with"),
        (-8002, {}, 'sudo usermod -aG HwHiAiUser "$USER"'),
        (-8020, {}, "the device is occupied; stop the container or process that holds it"),
        (-8012, {}, "the device is not ready yet; wait until it has started"),
        (-8017, {}, "the firmware of the device is being upgraded"),
        (-8999, {}, "DCMI gives -8999"),
    ],
)
@pytest.mark.parametrize("said_by", ["DCMI", "npu-smi"])
def test_a_driver_that_fails_makes_it_unusable_with_the_fix(
    status: int, where: dict[str, str], reason: str, said_by: str
) -> None:
    facts: dict[str, Any] = {"commands": {"npu-smi info": FAILED.format(status)}}
    if said_by == "DCMI":
        facts = {"libs": libs({"dcmi_init": status})}
    device = the_card(CARD | where, **facts)
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert reason in device.verdict.reason


@pytest.mark.parametrize("status", [-8013, -8255])
def test_a_question_that_the_driver_does_not_answer_makes_nothing_unusable(status: int) -> None:
    device = the_card(CARD, libs=libs(DCMI | {"dcmi_get_device_pcie_info": status}, ACL))
    assert (device.id, device.usable) == ("0000:c1:00.0", True)


def test_without_cann_it_is_not_known_whether_it_can_be_used() -> None:
    device = the_card(CARD, libs=libs(DCMI))
    assert (device.usable, device.verdict.code) == (False, "unknown")
    assert "CANN is not installed here" in device.verdict.reason
    assert "quay.io/ascend/vllm-ascend" in device.verdict.reason
    device = the_card(CARD | CANN, libs=libs(DCMI))
    assert "CANN 8.2.RC1 is installed and its libascendcl.so is not found" in device.verdict.reason


def test_cann_that_only_its_folder_leads_to_is_a_limit_with_the_command() -> None:
    path = "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so"
    device = the_card(CARD | {path: ""}, libs=libs(DCMI) | {path: libs(acl=ACL)["libascendcl.so"]})
    assert (device.usable, device.verdict.code) == (True, "limited")
    assert "run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` before torch" in device.verdict.reason


@pytest.mark.parametrize(
    ("where", "fix"),
    [({}, "install the driver, or run `sudo ldconfig`"), (CONTAINER, "-v /usr/local/Ascend/driver/lib64:/usr/local")],
)
def test_a_driver_library_that_is_missing_is_named(where: dict[str, str], fix: str) -> None:
    text = "error: libascend_hal.so: cannot open shared object file: No such file or directory"
    device = the_card(CARD | where, libs={"libascendcl.so": {"load": text}})
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert "libascend_hal.so" in device.verdict.reason
    assert fix in device.verdict.reason


@pytest.mark.parametrize("mask", ["", "-1", "1", "x"])
def test_a_mask_that_leaves_it_out_hides_it_and_it_stays_usable(mask: str) -> None:
    acl = ACL | {"aclrtGetDeviceCount()": {"status": 107001, "outs": ["00000000"]}}
    device = the_card(CARD, libs=libs(DCMI, acl), env={"ASCEND_RT_VISIBLE_DEVICES": mask})
    assert (device.usable, device.visible, device.verdict.code) == (True, False, "hidden")
    assert f"ASCEND_RT_VISIBLE_DEVICES={mask} hides it; run `unset ASCEND_RT_VISIBLE_DEVICES`" in device.verdict.reason
    assert "npu" not in device.indices


def test_a_mask_does_not_hide_that_the_driver_fails() -> None:
    device = the_card(CARD, libs=libs({"dcmi_init": -8005}, {"aclInit": 0}), env={"ASCEND_RT_VISIBLE_DEVICES": ""})
    assert (device.usable, device.verdict.code) == (False, "unusable")


def test_the_mask_numbers_anew() -> None:
    found = devices_of_a_server(env={"ASCEND_RT_VISIBLE_DEVICES": "1"})
    assert [device.indices for device in found.values()] == [{"davinci": 0}, {"davinci": 1, "npu": 0}]
    assert [device.visible for device in found.values()] == [False, True]
    assert found["0000:c2:00.0"].sources["/indices/npu"].endswith("ASCEND_RT_VISIBLE_DEVICES")


@pytest.mark.parametrize("mask", [None, "0"])
def test_where_no_layer_tells_an_order_no_device_has_a_number_and_a_mask_hides_none(mask: str | None) -> None:
    env = {} if mask is None else {"ASCEND_RT_VISIBLE_DEVICES": mask}
    shown = libs(acl=ACL | {"aclrtGetDeviceCount": 2 if mask is None else 1})
    found = probed(CARD | function("0000:c2:00.0"), libs=shown, env=env)
    assert [(device.usable, device.visible, device.indices) for device in found.devices] == [(True, True, {})] * 2
    assert found.unknown["/1/indices/npu"].startswith("neither DCMI nor `npu-smi info -m` tells its logical id")
    said = [
        device.verdict.reason.startswith("CANN shows 1 of 2 devices, and which is not known")
        for device in found.devices
    ]
    assert said == [mask is not None] * 2


def test_a_mask_that_leaves_none_hides_all_in_any_order() -> None:
    found = devices(CARD | function("0000:c2:00.0"), libs=libs(acl=ACL), env={"ASCEND_RT_VISIBLE_DEVICES": "-1"})
    assert [device.verdict.code for device in found.values()] == ["hidden", "hidden"]


def test_cann_that_shows_every_device_outweighs_a_failing_dcmi_in_any_order() -> None:
    failing = libs({"dcmi_init": -8005}, ACL | {"aclrtGetDeviceCount": 2})
    found = devices(CARD | function("0000:c2:00.0"), libs=failing)
    assert [device.verdict.code for device in found.values()] == ["limited", "limited"]


def devices_of_a_server(files: dict[str, str] | None = None, **facts: Any) -> dict[str, Any]:
    """Two cards that npu-smi lists with a map."""
    second = TABLE.replace("| 0     910B4", "| 1     910B4").replace("C1:", "C2:")
    rows = "NPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n0 0 0 0 Ascend\n1 0 1 1 Ascend\n"
    commands = {"npu-smi info": TABLE + second, "npu-smi info -m": rows}
    here = CARD | function("0000:c2:00.0") | {"/dev/davinci1": CARD["/dev/davinci0"]} | (files or {})
    return devices(here, **{"commands": commands, "libs": libs(acl=ACL | {"aclrtGetDeviceCount": 2}), **facts})


def test_a_container_that_was_not_given_a_node_is_told_which() -> None:
    found = devices_of_a_server(CONTAINER | {"/dev/davinci1": "!absent"}, libs=libs(acl=ACL))
    assert found["0000:c1:00.0"].usable
    assert not found["0000:c2:00.0"].usable
    assert "start it with `--device /dev/davinci1` too" in found["0000:c2:00.0"].verdict.reason


def test_a_virtual_npu_whose_node_has_a_number_of_its_own_is_usable() -> None:
    files = {path: text for path, text in CARD.items() if path != "/dev/davinci0"}
    device = the_card(files | CONTAINER | {"/dev/davinci100": CARD["/dev/davinci0"]}, libs=WORKING)
    assert device.usable


def test_a_node_that_this_process_may_not_open_costs_its_own_device_only() -> None:
    found = devices_of_a_server({"/dev/davinci1": "!chr 236:1 0660 0:7"})
    assert found["0000:c1:00.0"].usable
    assert "/dev/davinci1 has mode 0660 and group 7" in found["0000:c2:00.0"].verdict.reason


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({}, "the driver does not list it; see `sudo dmesg"),
        (CONTAINER, "this container was not given the device; start it with `--device /dev/davinciN` too"),
    ],
)
def test_a_device_on_the_bus_that_the_driver_does_not_list_is_not_usable(where: dict[str, str], reason: str) -> None:
    found = devices(CARD | function("0000:c2:00.0") | where, libs=WORKING)
    assert found["0000:c1:00.0"].usable
    assert reason in found["0000:c2:00.0"].verdict.reason
    assert found["0000:c2:00.0"].visible


def test_firmware_that_does_not_fit_is_a_limit() -> None:
    commands = {
        "npu-smi info": TABLE.replace("2768 / 32768", "NA / NA"),
        "npu-smi info -t board -i 0": "NPU ID : 0\nCompatibility : NOT OK\nFirmware Version : 7.1\n",
    }
    device = the_card(CARD, libs=libs(acl=ACL), commands=commands)
    assert device.verdict.code == "limited"
    assert "driver and firmware do not fit (NOT OK)" in device.verdict.reason


def test_the_bus_decides_that_a_device_is_there_and_a_table_alone_lists_none() -> None:
    assert probed({}, commands={"npu-smi info": TABLE}, libs=WORKING).devices == ()


def test_nothing_is_asked_of_a_device_without_a_driver() -> None:
    device = the_card({path: text for path, text in CARD.items() if not path.endswith("/driver")}, libs=WORKING)
    assert "no driver is bound to it" in device.verdict.reason
    assert device.memory.reported_bytes is None


def test_nothing_is_asked_where_that_would_wake_a_device() -> None:
    device = the_card(CARD | {f"{BUS}/power_state": "D3cold"}, libs=WORKING)
    assert (device.verdict.code, device.memory.reported_bytes) == ("unknown", None)
    assert "it is asleep" in device.verdict.reason


def test_a_card_that_sleeps_for_a_virtual_machine_holds_up_nothing() -> None:
    other = BUS.replace("c1", "c2")
    files = {path.replace("c1", "c2"): text for path, text in CARD.items() if path.startswith(BUS)}
    files |= {f"{other}/driver": "!link ../../../bus/pci/drivers/vfio-pci", f"{other}/power_state": "D3cold"}
    found = devices(CARD | files, libs=WORKING)
    assert found["0000:c1:00.0"].usable
    assert found["0000:c2:00.0"].verdict.code == "unusable"


@pytest.mark.parametrize("broken", ["timeout", "!timeout", "garbage"])
def test_a_layer_that_fails_leaves_the_facts_of_the_others(broken: str) -> None:
    facts: dict[str, Any] = {"libs": WORKING, "commands": {"npu-smi info": "!timeout"}}
    if broken == "timeout":
        facts = {"libs": libs(DCMI | {"dcmi_init": "timeout"}, ACL), "commands": {"npu-smi info": TABLE}}
    if broken == "garbage":
        facts = {"libs": libs({"dcmi_init": "x", "dcmi_get_card_list": {}}, ACL), "commands": {"npu-smi info": TABLE}}
    device = the_card(CARD, **facts)
    assert (device.usable, device.memory.reported_bytes) == (True, 32768 * MIB)


def test_a_driver_that_hangs_is_said() -> None:
    device = the_card(CARD, libs=libs({"dcmi_init": "timeout"}), commands={"npu-smi info": "!timeout"})
    assert device.verdict.code == "unknown"
    assert "the driver hangs or is still starting" in device.verdict.reason


def test_how_the_tool_fails_is_in_the_verdict_where_nothing_else_tells() -> None:
    denied = {"npu-smi info": "!rc=1\nbash: npu-smi: Permission denied\n"}
    for files in (CARD, CARD | CANN):
        device = the_card(files, commands=denied)
        assert device.verdict.code == "unknown"
        assert (
            'npu-smi says "bash: npu-smi: Permission denied"; run `sudo usermod -aG HwHiAiUser' in device.verdict.reason
        )
    device = the_card(CARD, libs={"libdcmi.so": {"load": "error: libdcmi.so: invalid ELF header"}})
    assert "libdcmi.so: invalid ELF header; see `sudo dmesg" in device.verdict.reason
    assert the_card(CARD, libs=libs(acl=ACL), commands=denied).usable


def test_the_chips_of_a_card_share_its_function_and_have_nodes_of_their_own() -> None:
    first, second = recorded("ascend-300i-duo").devices
    assert [first.id, second.id] == ["0000:03:00.0/chip-0", "0000:03:00.0/chip-1"]
    assert [first.indices["davinci"], second.indices["davinci"]] == [0, 1]
    assert (first.memory.reported_bytes, second.memory.reported_bytes) == (46430945280, 45815431168)
    assert second.details["processes"] == [{"pid": 4242, "bytes": 120 * MIB, "kind": "compute"}]


def test_the_function_of_such_a_card_is_not_said_to_be_missing() -> None:
    host = ReplayHost(codec.from_json(Scene, HOSTS["ascend-300i-duo"]))
    manager = PortableDeviceManager(host, discover_plugins(None).plugins)
    assert take_inventory(host, manager, STAMP, lambda _: None).findings == ()
    assert diagnose(host, manager, STAMP).not_checked == ()


def test_the_memory_of_a_board_without_a_bus_is_the_machines_and_no_more_than_that_is_usable() -> None:
    (device,) = recorded("ascend-310b4").devices
    assert device.memory.kind == "unified"
    assert device.memory.reported_bytes == 15609 * MIB
    assert device.memory.usable_bytes == 9000000 * 1024


def test_numbers_in_a_container_count_what_it_was_given() -> None:
    first, second, *others = recorded("ascend-a3-container").devices
    assert (first.indices, second.indices) == ({"davinci": 2, "npu": 0}, {"davinci": 3})
    assert [device.indices for device in others] == [{}, {}]


OPEN = {"/.dockerenv": ""} | dict.fromkeys((*SHARED, "/dev/davinci4", "/dev/davinci7"), "!chr 236:0 0666 0:0")


def test_a_container_that_shows_nodes_alone_has_the_chips_of_npu_smi_in_their_order() -> None:
    first, second = probed(
        OPEN, libs=libs(acl=ACL | {"aclrtGetDeviceCount": 2}), commands={"npu-smi info": TWO}
    ).devices
    assert [(each.id, each.usable, each.indices["npu"]) for each in (first, second)] == [
        ("ascend:4", True, 0),
        ("ascend:7", True, 1),
    ]
    assert (first.memory.used_bytes, second.memory.used_bytes) == (2768 << 20, 1000 << 20)


def test_an_open_node_is_unknown_where_fewer_chips_are_told_of() -> None:
    both = probed(OPEN, libs=libs(acl=ACL), commands={"npu-smi info": TABLE}).devices
    assert {(each.usable, each.verdict.code, "npu" in each.indices) for each in both} == {(False, "unknown", False)}
    assert both[0].verdict.reason.startswith("CANN shows 1 of 2 devices, and which is not known")
    alone = probed(OPEN, libs={}, commands={"npu-smi info": TABLE}).devices
    assert {each.verdict.code for each in alone} == {"unknown"}
    assert all("was not given" not in each.verdict.reason for each in alone)

"""DCMI and ACL through the real loader, ctypes and child process, from libraries built here."""

from pathlib import Path
from typing import Any

import pytest

from tests.native.build import build
from tests.unit.vendors.ascend.hosts import SHARED, function
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import Library
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.ascend import asking, lib
from vllm_probe.vendors.ascend.probe import probe

HERE = Path(__file__).parent
FOLDER = "vllm_probe.vendors.ascend"
MIB = 1 << 20
FILES = function("0001:c1:00.0", "0xd803") | function("0001:41:00.0", "0xd500")
FILES |= dict.fromkeys((*SHARED, *(f"/dev/davinci{number}" for number in (4, 5, 6))), "!chr 236:0 0666 0:0")
FIRST, FIRST_DUO, SECOND_DUO = "0001:c1:00.0", "0001:41:00.0/chip-0", "0001:41:00.0/chip-1"


class Machine(ReplayHost):
    """The files of a recording, the libraries of this machine."""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        return LocalHost().isolated(function, timeout_s)


def machine() -> Machine:
    return Machine(codec.from_json(Scene, {"facts": {"files": FILES}}))


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in (("new", ()), ("old", ("-DOLD",))):
        folder = tmp_path_factory.mktemp(name)
        build(HERE / "dcmi.c", folder / "libdcmi.so", *options)
        build(HERE / "acl.c", folder / "libascendcl.so", *options)
        folders[name] = folder
    return folders


@pytest.fixture(params=["new"])
def loaded(request: pytest.FixtureRequest, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[request.param]))


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("DCMI_S", "ACL_S", "MEMORY_S"):
        monkeypatch.setattr(asking, limit, 60.0)


def asked(name: str) -> Any:
    return LocalHost().isolated(f"{FOLDER}.{name}", 60)


@pytest.mark.usefixtures("loaded")
def test_every_value_comes_out_of_the_structures_of_a_new_driver() -> None:
    report = asked("lib:read")
    first, second, third = report["devices"]
    assert (report["status"], report["driver"]) == (0, "24.1.rc2")
    assert first == {
        "card": 0,
        "chip": 0,
        "chips": 1,
        "name": "Ascend910",
        "npu_name": "9392",
        "ai_cores": 24,
        "id": "0001:c1:00.0",
        "pci_id": "19e5:d803",
        "memory": {"total": 65536 * MIB, "used": 3000 * MIB},
        "memory_type": "hbm",
        "memory_clock_mhz": 1600,
        "health": "ok",
        "logic": 2,
        "phy": 6,
        "utilization": 17,
        "temperature_c": -3,
        "power_w": 123.4,
        "aicore_clock_mhz": 800,
        "aicore_clock_max_mhz": 1650,
        "processes": [
            {"pid": 4711, "bytes": 1 << 33, "kind": "compute"},
            {"pid": 4712, "bytes": None, "kind": "compute"},
        ],
    }
    assert [(each["card"], each["chip"], each["phy"], each["health"]) for each in (second, third)] == [
        (3, 0, 4, "ok"),
        (3, 1, 5, "warning"),
    ]


@pytest.mark.usefixtures("loaded")
def test_a_chip_without_hbm_has_ddr_and_a_power_of_0_is_unknown() -> None:
    third = asked("lib:read")["devices"][2]
    assert third["memory"] == {"total": 44279 * MIB, "used": 4279 * MIB}
    assert third["memory_type"] == "ddr"
    assert "power_w" not in third
    assert third["processes"] == []


@pytest.mark.parametrize("loaded", ["old"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_an_old_driver_is_asked_by_its_own_names_and_what_it_lacks_is_unknown() -> None:
    first, second, _ = asked("lib:read")["devices"]
    assert (first["id"], first["name"], first["ai_cores"]) == ("0000:c1:00.0", "Ascend910", 24)
    assert "npu_name" not in first
    assert "memory" not in first
    assert second["memory"]["total"] == 44280 * MIB


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("function", "field", "values"),
    [
        ("dcmi_get_device_chip_info", "chip_info", {"name", "npu_name", "ai_cores"}),
        ("dcmi_get_device_pcie_info_v2", "pci", {"id", "pci_id"}),
        ("dcmi_get_device_health", "health", {"health"}),
        ("dcmi_get_device_temperature", "temperature_c", {"temperature_c"}),
        ("dcmi_get_device_utilization_rate", "utilization", {"utilization"}),
        ("dcmi_get_device_resource_info", "processes", {"processes"}),
        ("dcmi_get_device_phyid_from_logicid", "phy", {"phy"}),
    ],
)
def test_an_error_costs_one_field_and_is_told(
    function: str, field: str, values: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asked("lib:read")["devices"][0]
    monkeypatch.setenv(f"FAKE_{function}", "-8255")
    rest = asked("lib:read")["devices"][0]
    assert rest.pop("failed") == {field: -8255}
    assert rest == {key: each for key, each in whole.items() if key not in values}


@pytest.mark.usefixtures("loaded")
def test_a_lost_chip_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_chip", "-8012")
    assert asked("lib:read")["devices"][0] == {"card": 0, "chip": 0, "chips": 1, "status": -8012}
    found = {device.id: device for device in probe(machine()).devices}
    assert found[FIRST_DUO].usable
    assert not found[FIRST].usable
    assert "the device is not ready yet; wait until it has started" in found[FIRST].verdict.reason


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("fault", "how"), [("crash", "was killed by signal 6"), ("hang", "did not return within")])
def test_a_chip_over_which_dcmi_fails_leaves_the_others_their_facts(
    fault: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "hang":
        monkeypatch.setattr(asking, "DCMI_S", 10.0)
    monkeypatch.setenv("FAKE_chip", fault)
    monkeypatch.setenv("FAKE_count", "0")
    found = {device.id: device for device in probe(machine()).devices}
    assert found[FIRST_DUO].memory.reported_bytes == 44280 * MIB
    assert found[SECOND_DUO].details["health"] == "warning"
    assert (found[FIRST].usable, found[FIRST].verdict.code) == (False, "unusable")
    assert f"DCMI fails over it: asking for the address of card 0 chip 0 {how}" in found[FIRST].verdict.reason


@pytest.mark.usefixtures("loaded")
def test_one_over_which_dcmi_fails_at_its_state_keeps_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_dcmi_get_device_hbm_info", "crash")
    first, second, _ = asked("lib:read")["devices"]
    assert (first["id"], first["phy"]) == ("0001:c1:00.0", 6)
    assert first["silent"].startswith("asking for the state of card 0 chip 0 was killed by signal 6")
    assert "silent" in second


@pytest.mark.usefixtures("loaded")
def test_a_device_that_acl_cannot_be_set_to_costs_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_second", "crash")
    first, second, third = asked("acl:memory")["devices"]
    assert (first["total"], second, third["total"]) == (8000, {}, 8000)


@pytest.mark.usefixtures("loaded")
def test_the_health_of_a_driver_that_fails_is_that_all_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_dcmi_init", "-8020")
    assert asked("lib:health") == {"lost": "the device is occupied", "devices": {}}


def test_the_health_of_a_device_is_read_with_few_questions_by_its_id(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Here(Machine):
        def library(self, name: str) -> Library:
            return LocalHost().library(str(libraries["new"] / name))

    here = Here(codec.from_json(Scene, {"facts": {"files": FILES}}))
    found = lib.health(here)["devices"]
    assert sorted(found) == [FIRST_DUO, SECOND_DUO, FIRST]
    assert (found[FIRST]["free_bytes"], found[FIRST]["used_bytes"]) == (62536 * MIB, 3000 * MIB)
    assert [each["pid"] for each in found[FIRST]["processes"]] == [4711, 4712]
    assert "name" not in found[FIRST]
    monkeypatch.setenv("FAKE_chip", "-8012")
    found = lib.health(here)["devices"]
    assert found[FIRST] == {"lost": "the device is not ready yet"}
    assert found[SECOND_DUO]["health"] == "warning"


@pytest.mark.usefixtures("loaded")
def test_acl_shows_its_devices_and_their_cores() -> None:
    assert asked("acl:read") == {
        "status": 0,
        "devices": [{"cube_cores": 20, "vector_cores": 40, "l2_bytes": 1 << 20}] * 3,
        "version": "1.14.0",
    }


@pytest.mark.parametrize("loaded", ["old"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_an_acl_without_a_function_leaves_out_its_values() -> None:
    assert asked("acl:read")["devices"] == [{}, {}, {}]


@pytest.mark.usefixtures("loaded")
def test_acl_that_crashes_when_the_process_ends_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_end", "1")
    assert len(asked("acl:read")["devices"]) == 3


@pytest.mark.usefixtures("loaded")
def test_the_memory_of_acl_is_that_of_the_kind_that_the_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [{"free": 7000 + number, "total": 8000} for number in range(3)]
    assert asked("acl:memory") == {"devices": sizes}
    monkeypatch.setenv("FAKE_aclrtSetDevice", "507033")
    assert asked("acl:memory") == {"devices": [{}, {}, {}]}


@pytest.mark.usefixtures("loaded")
def test_a_machine_is_judged_by_both_libraries() -> None:
    found = {device.id: device for device in probe(machine()).devices}
    assert list(found) == [FIRST_DUO, SECOND_DUO, FIRST]
    assert [found[id_].indices for id_ in found] == [
        {"npu": 0, "davinci": 4},
        {"npu": 1, "davinci": 5},
        {"npu": 2, "davinci": 6},
    ]
    assert [device.verdict.code for device in found.values()] == ["usable", "limited", "usable"]
    assert (found[FIRST].arch, found[FIRST].details["soc"]) == ("910_93", "Ascend910_9392")
    assert found[FIRST].details["nodes"][-1]["path"] == "/dev/davinci6"
    assert found[FIRST].details["vector_cores"] == 40
    assert "npu-smi info -t health -i 3 -c 1" in found[SECOND_DUO].verdict.reason


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_dcmi_that_hangs_or_crashes_leaves_the_word_of_acl(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "hang":
        monkeypatch.setattr(asking, "DCMI_S", 2.0)
    monkeypatch.setenv("FAKE_dcmi_init", how)
    monkeypatch.setenv("FAKE_count", "2")
    answer = probe(machine())
    assert [device.usable for device in answer.devices] == [True, True]
    assert [device.memory.reported_bytes for device in answer.devices] == [8000, 8000]
    expected = "DCMI did not answer within 2 s" if how == "hang" else "DCMI was killed by signal 6"
    assert expected in answer.unknown["/0/details/health"]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_dcmi_that_fails_over_every_chip_leaves_the_word_of_acl(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "hang":
        monkeypatch.setattr(asking, "DCMI_S", 10.0)
    monkeypatch.setenv("FAKE_dcmi_get_device_health", how)
    answer = probe(machine())
    assert [device.verdict.code for device in answer.devices] == ["limited"] * 3
    assert [device.memory.reported_bytes for device in answer.devices] == [8000] * 3
    assert "CANN works although DCMI fails over it" in answer.devices[0].verdict.reason
    assert answer.unknown["/0/details/health"].startswith("DCMI: asking for the state of card 3 chip 0")


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("function", "said", "code", "reason"),
    [
        ("aclInit", "hang", "unknown", "ACL did not answer within 2 s; the driver hangs"),
        ("aclInit", "crash", "unusable", "CANN fails: ACL was killed by signal 6"),
        ("aclInit", "500001", "unusable", "aclInit gives 500001: CANN and the driver do not fit together"),
        ("aclrtGetDeviceCount", "507899", "unusable", "aclrtGetDeviceCount gives 507899: the driver fails inside"),
        ("count", "0", "unusable", "CANN shows 0 devices only"),
    ],
)
def test_an_acl_that_fails_leaves_the_facts_of_dcmi(
    function: str, said: str, code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "hang":
        monkeypatch.setattr(asking, "ACL_S", 2.0)
    monkeypatch.setenv(f"FAKE_{function}", said)
    for device in probe(machine()).devices:
        assert (device.usable, device.verdict.code) == (False, code)
        assert reason in device.verdict.reason
        assert device.memory.reported_bytes
        assert "npu" not in device.indices


@pytest.mark.usefixtures("loaded")
def test_devices_beyond_those_that_cann_shows_are_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_count", "1")
    assert [device.usable for device in probe(machine()).devices] == [True, False, False]


@pytest.mark.usefixtures("loaded")
def test_cann_that_works_makes_of_a_failing_dcmi_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_dcmi_init", "-8002")
    monkeypatch.setenv("FAKE_count", "2")
    for device in probe(machine()).devices:
        assert (device.usable, device.verdict.code) == (True, "limited")
        assert "CANN works although DCMI fails" in device.verdict.reason
        assert device.memory.reported_bytes == 8000


def test_without_a_library_it_is_said_and_nothing_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (tmp_path / "libascendcl.so").write_text("no ELF file")
    answer = probe(machine())
    for device in answer.devices:
        assert (device.usable, device.verdict.code) == (False, "unusable")
        assert "libascendcl.so" in device.verdict.reason
    assert "libdcmi.so: cannot open shared object file" in answer.unknown["/0/memory/used_bytes"]

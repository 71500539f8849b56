"""Level Zero through the real loader, ctypes and child process: a library built here, and Debian's without a driver."""

import ctypes.util
import os
from pathlib import Path
from typing import Any

import pytest

from tests.native.build import build
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel import asking
from vllm_probe.vendors.intel.probe import probe

HERE = Path(__file__).parent
READ = "vllm_probe.vendors.intel.lib:read"
BUS = "/sys/bus/pci/devices"


class Machine(ReplayHost):
    """The files of a recording, the libraries of this machine."""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        return LocalHost().isolated(function, timeout_s)


def devices(**files: str) -> tuple[Device, ...]:
    """An Arc B580 and integrated graphics, as the bus shows them and Level Zero judges them."""
    listed: dict[str, str] = {}
    for address, number, node in (("0000:00:02.0", "0x4682", 128), ("0000:03:00.0", "0xe20b", 129)):
        folder = f"{BUS}/{address}"
        listed |= {f"{folder}/class": "0x030000", f"{folder}/vendor": "0x8086", f"{folder}/device": number}
        listed |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/xe"}
        listed |= {f"{folder}/drm/renderD{node}/dev": "", f"/dev/dri/renderD{node}": f"!chr 226:{node} 0666 0:0"}
    return probe(Machine(codec.from_json(Scene, {"facts": {"files": listed | files}}))).devices


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("new", "old")}
    build(HERE / "ze.c", folders["new"] / "libze_loader.so.1")
    build(HERE / "ze.c", folders["old"] / "libze_loader.so.1", "-DOLD")
    return folders


@pytest.fixture(params=["new"])
def loaded(request: pytest.FixtureRequest, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[request.param]))


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 60.0)


def report() -> Any:
    return LocalHost().isolated(READ, 60)


@pytest.mark.usefixtures("loaded")
def test_every_value_comes_out_of_the_structures_and_npus_are_not_counted() -> None:
    card, integrated = report()["devices"]
    assert card == {
        "ordinal": 0,
        "id": "0000:03:00.0",
        "name": "Intel(R) Test GPU",
        "device_id": 0xE20B,
        "integrated": False,
        "compute_units": 160,
        "clock_max_mhz": 2850,
        "largest_allocation_bytes": 1 << 33,
        "driver_version": 17003219,
        "memory": {"total": 12809404416},
        "memory_bandwidth_gb_s": 456.0,
    }
    assert (integrated["ordinal"], integrated["id"], integrated["integrated"]) == (1, "0000:00:02.0", True)
    assert integrated["name"] == "\ufffd\ufffdIntegrated"


@pytest.mark.usefixtures("loaded")
def test_a_gpu_that_level_zero_lists_is_usable_and_told_apart_from_an_integrated_one() -> None:
    integrated, card = devices()
    assert [(each.usable, each.verdict.code, each.kind) for each in (integrated, card)] == [
        (True, "usable", "igpu"),
        (True, "usable", "gpu"),
    ]
    assert (integrated.memory.kind, card.memory.kind) == ("shared", "dedicated")
    assert [each.indices["level_zero"] for each in (integrated, card)] == [1, 0]
    assert card.memory.reported_bytes == 12809404416
    assert card.details["memory_bandwidth_gb_s"] == 456
    assert card.sources["/details/memory_bandwidth_gb_s"] == "Level Zero"


@pytest.mark.parametrize("loaded", ["old"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_a_loader_without_a_function_loses_that_value_alone() -> None:
    card, _ = report()["devices"]
    assert "id" not in card
    assert card["memory"] == {"total": 12809404416}
    assert [device.usable for device in devices()] == [True, True]


@pytest.mark.usefixtures("loaded")
def test_fields_that_fail_leave_the_device_and_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ZE", "fields")
    assert report() == {"status": 0, "devices": [{"ordinal": 0}, {"ordinal": 1}, {"ordinal": 2}]}


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("mode", ["nothing", "many"])
def test_no_devices_and_a_count_that_is_none_are_no_devices(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("FAKE_ZE", mode)
    assert report() == {"status": 0, "devices": []}


@pytest.mark.usefixtures("loaded")
def test_what_a_driver_prints_does_not_disturb_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ZE", "noise")
    assert len(report()["devices"]) == 2


@pytest.mark.usefixtures("loaded")
def test_a_status_of_initialisation_is_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ZE", "lost")
    assert report() == {"status": 0x70000001}
    for device in devices():
        assert (device.usable, device.verdict.code) == (False, "unusable")
        assert device.verdict.reason.startswith("zeInit gives 0x70000001: the GPU is lost")


@pytest.mark.usefixtures("loaded")
def test_a_driver_that_crashes_costs_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ZE", "init-crash")
    with pytest.raises(LibraryUnavailable, match="killed by signal 11"):
        report()
    integrated, card = devices()
    assert (card.name, card.verdict.code) == ("Intel Arc B580", "unusable")
    assert card.verdict.reason.startswith("Level Zero was killed by signal 11")
    assert integrated.memory.kind == "shared"


@pytest.mark.usefixtures("loaded")
def test_a_driver_that_hangs_costs_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ZE", "init-hang")
    monkeypatch.setattr(asking, "_TIMEOUT_S", 1.0)
    with pytest.raises(LibraryTimeout):
        LocalHost().isolated(READ, 1.0)
    _, card = devices()
    assert (card.name, card.usable, card.verdict.code) == ("Intel Arc B580", False, "unknown")
    assert "did not answer within 1 s" in card.verdict.reason


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("card-crashes", "asking for device 1 was killed by signal 11"),
        ("card-hangs", "asking for device 1 did not return within"),
        ("address-crashes", "asking for the address of device 1 was killed by signal 11"),
    ],
)
def test_a_card_over_which_level_zero_fails_leaves_the_others_their_facts(
    mode: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "card-hangs":
        monkeypatch.setattr(asking, "_TIMEOUT_S", 10.0)
    monkeypatch.setenv("FAKE_ZE", mode)
    integrated, card = devices()
    assert (integrated.usable, integrated.details["compute_units"]) == (True, 160)
    assert (card.usable, card.verdict.code, card.name) == (False, "unusable", "Intel Arc B580")
    assert f"Level Zero lists it and fails over it: {reason}" in card.verdict.reason


@pytest.mark.skipif(
    ctypes.util.find_library("ze_loader") is None and not os.environ.get("REQUIRE_ALL"),
    reason="no Level Zero loader: apt-get install -y libze1",
)
def test_the_loader_of_debian_finds_no_driver_and_the_verdict_says_so() -> None:
    assert report() == {"status": 0x78000001}
    _, card = devices()
    assert (card.usable, card.verdict.code) == (False, "unusable")
    assert "finds no driver for Intel GPUs" in card.verdict.reason
    assert "libze-intel-gpu1" in card.verdict.reason

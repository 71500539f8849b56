import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_probe.core.device import Device, DeviceMemory
from vllm_probe.core.errors import InvalidJson, SchemaViolation, UnknownName, UnreadableFile, UnsupportedVersion
from vllm_probe.core.plugin import API_VERSION, VendorPlugin
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.descriptors import (
    SearchResult,
    datasheet_of,
    file_name,
    find_descriptors,
    load_capability,
    named_capability,
    search_path,
    state_folder,
)
from vllm_probe.vendors.registry import PortableDeviceManager

MINIMAL: dict[str, Any] = {"device_type": "cuda", "compute_units": {}, "memory": {}, "dma": {}}
HERE = "sha256:0123456789abcdef"
CARD = Device(
    id="0000:03:00.0",
    vendor="nvidia",
    kind="gpu",
    name="Test Card 9",
    arch="sm_89",
    driver="nvidia 580.1",
    memory=DeviceMemory(kind="dedicated"),
)
CPU = Device(id="cpu0", vendor="cpu", kind="cpu", name="EPYC", arch="avx2", memory=DeviceMemory(kind="shared"))


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortableDeviceManager:
    """Two vendors, one with descriptors in its wheel, on a machine with torch 2.13 and nothing measured."""
    for folder in ("here", "state", "data", "wheel/acme_capabilities/bench"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("VLLM_PROBE_CAPABILITY_PATH", raising=False)
    (tmp_path / "wheel/acme_capabilities/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "wheel"))
    files = {"/usr/lib/python3/dist-packages/torch/version.py": "__version__ = '2.13.0+cpu'\n"}
    plugins = (
        VendorPlugin(
            api_version=API_VERSION,
            name="nvidia",
            device_types=("nvidia", "cuda"),
            probe="a:b",
            capabilities="acme_capabilities:bench",
        ),
        VendorPlugin(api_version=API_VERSION, name="cpu", device_types=("cpu",), probe="a:b"),
    )
    return PortableDeviceManager(ReplayHost(Scene(facts=Facts(files=files))), plugins)


def write(path: Path, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(MINIMAL | more), encoding="utf-8")
    return path


def measured(**identity: Any) -> dict[str, Any]:
    device = {"id": CARD.id, "arch": CARD.arch, "name": CARD.name, "driver": CARD.driver, "torch": "2.13.0+cpu"}
    return {"schema_version": "2.0", "host_fingerprint": HERE, "device": device | identity}


def search(manager: PortableDeviceManager, device: Device = CARD, **more: Any) -> dict[str, SearchResult]:
    found = find_descriptors(device, manager, HERE, **more)
    return {result.path.name: result for result in found if result.capability or result.path.suffix == ".json"}


def used(manager: PortableDeviceManager, device: Device = CARD, **more: Any) -> list[Path]:
    return [result.path for result in find_descriptors(device, manager, HERE, **more) if result.used]


def test_places_are_searched_in_order(
    manager: PortableDeviceManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PROBE_CAPABILITY_PATH", os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")]))
    assert [(place.name, place.shipped) for place in search_path(manager, HERE)] == [
        ("current folder", False),
        ("VLLM_PROBE_CAPABILITY_PATH", False),
        ("VLLM_PROBE_CAPABILITY_PATH", False),
        ("machine-wide", False),
        ("measured here", False),
        ("your own", False),
        ("plug-in nvidia", True),
        ("bundled", True),
    ]
    in_order = [
        write(Path("capability.json")),
        write(Path("a.capability.json")),
        write(tmp_path / "one/card.capability.json"),
        write(tmp_path / "two/card.capability.json"),
        write(tmp_path / f"state/vllm-probe/{HERE.replace(':', '_')}/card.capability.json"),
        write(tmp_path / "data/vllm-probe/capabilities/card.capability.json"),
        write(tmp_path / "wheel/acme_capabilities/bench/card.capability.json"),
    ]
    for path in in_order:
        assert used(manager) == [path]
        path.unlink()
    assert used(manager) == []


def test_a_place_without_descriptors_is_said(manager: PortableDeviceManager, tmp_path: Path) -> None:
    found = {result.place.name: result for result in find_descriptors(CARD, manager, HERE)}
    assert found["measured here"].reason == "no descriptor there"
    assert found["measured here"].path == tmp_path / "state/vllm-probe" / HERE.replace(":", "_")


def test_one_descriptor_is_used_and_the_later_ones_say_why_not(manager: PortableDeviceManager) -> None:
    write(Path("a.capability.json"))
    write(Path("b.capability.json"))
    found = search(manager)
    assert (found["a.capability.json"].used, found["a.capability.json"].reason) == (True, "describes the device")
    assert (found["b.capability.json"].used, found["b.capability.json"].reason) == (False, "an earlier one is used")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"device_type": "ascend"}, "is for device type ascend, not nvidia"),
        (measured(arch="sm_90"), "is for sm_90, not sm_89"),
        (measured(id="0000:41:00.0"), "is for the device 0000:41:00.0"),
        (measured(driver="nvidia 570.2"), "is stale: driver was nvidia 570.2 and is nvidia 580.1"),
        (measured(torch="2.9.0"), "is stale: torch was 2.9.0 and is 2.13.0+cpu"),
        (
            measured() | {"host_fingerprint": "sha256:other"},
            "was measured on another machine (sha256:other); name it with --capability to use it",
        ),
        ({"memory": {"bandwidth_gb_s": -1}}, "capability.json: /memory/bandwidth_gb_s: -1.0 is below 0"),
        ({"schema_version": "3.0"}, "capability.json is a capability document of version 3.0"),
    ],
)
def test_a_document_of_something_else_is_passed_over_with_the_reason(
    manager: PortableDeviceManager, document: dict[str, Any], reason: str
) -> None:
    write(Path("capability.json"), **document)
    found = search(manager)["capability.json"]
    assert (found.used, found.reason) == (False, reason)


def test_a_document_of_this_machine_is_used(manager: PortableDeviceManager) -> None:
    path = write(Path("capability.json"), **measured())
    assert used(manager) == [path]


def test_what_a_release_ships_for_a_card_serves_every_card_of_that_name(
    manager: PortableDeviceManager, tmp_path: Path
) -> None:
    shipped = tmp_path / "wheel/acme_capabilities/bench"
    other = measured(id="0000:aa:00.0", driver="old", torch="2.5") | {"host_fingerprint": "sha256:other"}
    path = write(shipped / "rtx.capability.json", **other)
    assert used(manager) == [path]
    other["device"]["name"] = "Test Card 8"
    write(path, **other)
    assert search(manager)["rtx.capability.json"].reason == "is for Test Card 8, not Test Card 9"


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({"name": "Card 9 by its driver"}, "describes the device"),
        ({"memory": DeviceMemory(kind="dedicated", reported_bytes=15 << 30)}, "describes the device"),
        (
            {"memory": DeviceMemory(kind="dedicated", reported_bytes=8 << 30)},
            "is for 16.00 GiB of memory, not 8.00 GiB",
        ),
        ({"name": None}, "is for Test Card 9, not a device whose name is unknown"),
    ],
)
def test_a_shipped_document_serves_its_own_card_alone(
    manager: PortableDeviceManager, tmp_path: Path, card: dict[str, Any], reason: str
) -> None:
    identity = {"name": CARD.name, "also": ["Card 9 by its driver"]}
    path = tmp_path / "wheel/acme_capabilities/bench/card.capability.json"
    write(path, device=identity, memory={"total_bytes": 16 << 30})
    assert search(manager, replace(CARD, **card))["card.capability.json"].reason == reason


def test_a_data_sheet_is_a_shipped_document_that_nobody_measured(
    manager: PortableDeviceManager, tmp_path: Path
) -> None:
    shipped = tmp_path / "wheel/acme_capabilities/bench"
    write(tmp_path / "here/capability.json", device={"name": CARD.name})
    write(shipped / "a.capability.json", **measured())
    (shipped / "b.capability.json").write_text("{")
    assert datasheet_of(CARD, manager, HERE) is None
    path = write(shipped / "c.capability.json", device={"name": CARD.name})
    assert datasheet_of(CARD, manager, HERE) == ("c", load_capability(path))
    assert datasheet_of(replace(CARD, name="Other"), manager, HERE) is None


def test_no_other_machines_figures_serve_a_device_in_host_memory(
    manager: PortableDeviceManager, tmp_path: Path
) -> None:
    identity = {"name": CPU.name, "arch": CPU.arch}
    document = {"device_type": "cpu", "host_fingerprint": "sha256:other", "device": identity}
    write(tmp_path / "wheel/acme_capabilities/bench/epyc.capability.json", **document)
    assert "another machine" in search(manager, CPU)["epyc.capability.json"].reason


def test_on_a_replay_only_shipped_descriptors_count(manager: PortableDeviceManager, tmp_path: Path) -> None:
    write(Path("capability.json"))
    path = write(tmp_path / "wheel/acme_capabilities/bench/rtx.capability.json")
    assert used(manager, replayed=True) == [path]
    results = find_descriptors(CARD, manager, HERE, replayed=True)
    assert results[0].reason == "not looked at on a replay"


def test_version_1_and_any_minor_of_version_2_are_read(tmp_path: Path) -> None:
    assert load_capability(write(tmp_path / "a.json")).schema_version == "1.0"
    assert load_capability(write(tmp_path / "b.json", schema_version="2.7", later={})).schema_version == "2.7"


def test_a_document_that_cannot_be_used_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile):
        load_capability(tmp_path / "nowhere.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"device_type":', encoding="utf-8")
    with pytest.raises(InvalidJson):
        load_capability(broken)
    with pytest.raises(UnsupportedVersion, match=r"version 3\.0"):
        load_capability(write(tmp_path / "new.json", schema_version="3.0", memory="of another shape"))
    broken.write_text('{"device_type": "cpu", "compute_units": {}, "dma": {}}', encoding="utf-8")
    with pytest.raises(SchemaViolation, match="'memory' is missing") as caught:
        load_capability(broken)
    assert caught.value.pointer == ""
    assert caught.value.hint == f"run `vllm-probe capability validate {broken}`"
    for text in ("[]", "5", '{"schema_version": 2}'):
        broken.write_text(text, encoding="utf-8")
        with pytest.raises(SchemaViolation):
            load_capability(broken)


def test_a_descriptor_is_named_by_file_or_by_stem(manager: PortableDeviceManager, tmp_path: Path) -> None:
    path = write(tmp_path / "data/vllm-probe/capabilities/rtx-4090.capability.json")
    assert named_capability("rtx-4090", manager, HERE)[0] == path
    assert named_capability(str(path), manager, HERE)[0] == path
    write(Path("capability.json"), device_type="ascend")
    assert named_capability("capability.json", manager, HERE)[1].device_type == "ascend"
    write(Path("rtx-4090.capability.json"))
    assert named_capability("rtx-4090", manager, HERE)[0] == Path("rtx-4090.capability.json"), "the first on the path"


def test_an_unknown_name_is_an_error_with_near_misses(manager: PortableDeviceManager, tmp_path: Path) -> None:
    write(tmp_path / "data/vllm-probe/capabilities/rtx-4090.capability.json")
    with pytest.raises(UnknownName, match="'rtx-4909'") as caught:
        named_capability("rtx-4909", manager, HERE)
    assert "rtx-4090" in caught.value.hint
    with pytest.raises(UnreadableFile):
        named_capability("nowhere.json", manager, HERE)


def test_results_are_kept_by_machine_and_device(manager: PortableDeviceManager, tmp_path: Path) -> None:
    folder = state_folder(manager.host, HERE)
    assert folder == tmp_path / "state/vllm-probe/sha256_0123456789abcdef"
    assert file_name("0000:06:00.0/mig-3.0") == "0000_06_00.0_mig-3.0.capability.json"


def test_without_a_home_nothing_is_kept(manager: PortableDeviceManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder(manager.host, HERE) is None

"""What every vendor's probe lists on recorded machines, without a library and without opening a node."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, ROOT, SHARED, STAMP, host_of
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Scene
from vllm_probe.core.schema import violations
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.layer0 import bus_devices
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

PLUGINS = discover_plugins(None).plugins
BY_NAME = {plugin.name: plugin for plugin in PLUGINS}
VENDORS = {plugin.name for plugin in PLUGINS} - {"cpu"}
LISTED = {name: scene for name, scene in HOSTS.items() if "devices" in scene["expected"]}
TABLES = {path.parent.name: json.loads(path.read_text()) for path in ROOT.glob("vllm_probe/vendors/*/layer0.json")}
BUS = "/sys/bus/pci/devices/0000:01:00.0"
NVIDIA = {f"{BUS}/class": "0x030000", f"{BUS}/vendor": "0x10de", f"{BUS}/device": "0x2204"}
BOUND = NVIDIA | {f"{BUS}/driver": "!link ../../../bus/pci/drivers/nvidia"}
NODES = {f"/dev/{name}": "!chr 195:0 0666 0:0" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")}
USER = {"/proc/self/status": "Uid:\t9\t9\t9\t9\nGid:\t9\t9\t9\t9\nGroups:\t9\n"}


def manager_of(host: Any) -> PortableDeviceManager:
    return PortableDeviceManager(host, PLUGINS)


def replay(scene: dict[str, Any]) -> ReplayHost:
    return ReplayHost(codec.from_json(Scene, scene))


def probed(scene: dict[str, Any]) -> ProbeResult:
    return manager_of(replay(scene)).probe_devices()


def accelerators_of(scene: dict[str, Any]) -> list[Device]:
    return [device for device in probed(scene).devices if device.kind != "cpu"]


def the_gpu(files: dict[str, str], **facts: Any) -> Device:
    (device,) = manager_of(host_of(files=files, **facts)).probe_devices().devices
    return device


def on_bus(files: dict[str, str], **facts: Any) -> Device:
    """The one NVIDIA device of layer 0, before a library is asked."""
    ((device, _),) = bus_devices(host_of(files=files, **facts), BY_NAME["nvidia"])
    return device


@pytest.mark.parametrize("name", LISTED)
def test_a_recorded_machine_lists_exactly_its_devices_with_their_nodes(name: str) -> None:
    found = [
        {
            "id": device.id,
            "vendor": device.vendor,
            "kind": device.kind,
            "name": device.name,
            "arch": device.arch,
            "driver": device.driver,
            "verdict": device.verdict.code,
            "memory": device.memory.kind,
            "nodes": {node["path"]: node["state"] for node in device.details["nodes"]},
        }
        for device in accelerators_of(LISTED[name])
    ]
    assert found == LISTED[name]["expected"]["devices"]


def test_every_vendor_has_a_machine() -> None:
    assert {device["vendor"] for scene in LISTED.values() for device in scene["expected"]["devices"]} == VENDORS


@pytest.mark.skipif(not SHARED, reason="the shared scenes are not beside this checkout")
@pytest.mark.parametrize("scene", SHARED, ids=[scene["id"] for scene in SHARED])
def test_the_devices_of_a_reported_machine_come_out_right(scene: dict[str, Any]) -> None:
    found = {device.id: device for device in probed(scene).devices}
    assert set(found) - {"cpu0"} == {device["id"] for device in scene["expected"]["devices"]} - {"cpu0"}
    for expected in scene["expected"]["devices"]:
        device = found[expected["id"]]
        assert (device.vendor, device.kind) == (expected["vendor"], expected["kind"])
        assert "arch" not in expected or device.arch == expected["arch"]
        by_what_is_installed = any(row.startswith(("VER", "LIB")) for row in scene["expected"]["diagnosis_ids"])
        assert expected["usable"] or by_what_is_installed or not device.usable


@pytest.mark.parametrize("name", [name for name, scene in HOSTS.items() if not scene["facts"].get("libs")])
def test_nothing_is_called_usable_that_no_library_was_asked_for(name: str) -> None:
    for device in accelerators_of(HOSTS[name]):
        assert not device.usable
        assert device.verdict.code in {"unknown", "unusable", "hidden"}
        assert device.verdict.code == "unusable" or "was not checked" in device.verdict.reason


@pytest.mark.parametrize("name", HOSTS)
def test_the_inventory_is_valid_and_explains_every_null_of_every_device(name: str) -> None:
    host = replay(HOSTS[name])
    document = codec.to_json(take_inventory(host, manager_of(host), STAMP, lambda _: None))
    assert violations("inventory", document) == ()
    for i, device in enumerate(document["devices"]):
        nulls = [f"/devices/{i}/{key}" for key, value in device.items() if value is None]
        nulls += [f"/devices/{i}/memory/{key}" for key, value in device["memory"].items() if value is None]
        assert set(nulls) <= set(document["unknown"])
        assert set(device["sources"]).isdisjoint(pointer.removeprefix(f"/devices/{i}") for pointer in nulls)


class Untouched(ReplayHost):
    """A machine on which nothing may be opened, loaded or driven."""

    def open_errno(self, path: str) -> int:
        raise AssertionError(f"opened {path}")

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        raise AssertionError(f"drove {path}")

    def library(self, name: str) -> Any:
        raise AssertionError(f"loaded {name}")


@pytest.mark.parametrize("name", HOSTS)
def test_the_bus_is_read_without_opening_a_node_or_loading_a_library(name: str) -> None:
    host = Untouched(codec.from_json(Scene, HOSTS[name]))
    for vendor in TABLES:
        bus_devices(host, BY_NAME[vendor])


@pytest.mark.parametrize("name", LISTED)
def test_what_is_recorded_on_a_machine_lists_the_same_devices(name: str) -> None:
    recorder = RecordingHost(replay(LISTED[name]))
    diagnose(recorder, manager_of(recorder), STAMP)
    again = manager_of(ReplayHost(recorder.scene())).probe_devices()
    assert again.findings == ()
    assert again.devices == probed(LISTED[name]).devices


@pytest.mark.parametrize(
    ("files", "code", "reason"),
    [
        (NVIDIA, "unusable", "no driver is bound to it; run `sudo modprobe nvidia` on the host"),
        (NVIDIA | {f"{BUS}/driver": "!link x/vfio-pci"}, "unusable", "bound to vfio-pci, for a virtual machine"),
        (NVIDIA | {f"{BUS}/driver": "!link x/nouveau"}, "unusable", "bound to nouveau, which draws and does not"),
        (BOUND | NODES, "unknown", "the driver nvidia is bound; whether its library, torch and vLLM can use it was"),
        (BOUND, "unknown", "the driver nvidia is bound, /dev/nvidiactl is not there"),
        (BOUND | NODES | {f"{BUS}/power_state": "D3cold"}, "unknown", "asleep and nothing was asked that"),
        (BOUND | {"/.dockerenv": ""}, "unusable", "was not given /dev/nvidiactl; start it with `--runtime=nvidia -e"),
        (
            BOUND | NODES | USER | {"/dev/nvidiactl": "!chr 195:255 0660 0:7"},
            "unusable",
            '/dev/nvidiactl has mode 0660 and group 7, in which this process is not; run `sudo usermod -aG 7 "$USER"`',
        ),
        (
            BOUND | NODES | USER | {"/dev/nvidiactl": "!chr 195:255 0660 0:7", "/.dockerenv": ""},
            "unusable",
            "start the container with `--group-add 7`",
        ),
    ],
)
def test_the_verdict_says_what_is_known_and_what_to_run(files: dict[str, str], code: str, reason: str) -> None:
    verdict = on_bus(files).verdict
    assert verdict.code == code
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("number", "command"),
    [
        ("0xe20b", "sudo modprobe xe"),  # Arc B580
        ("0xb080", "sudo modprobe xe"),  # Panther Lake
        ("0x56a0", "sudo modprobe i915"),  # Arc A770
        ("0x0bd5", "sudo modprobe i915; sudo modprobe xe"),  # Max 1550
        ("0xffff", "sudo modprobe i915; sudo modprobe xe"),
    ],
)
def test_a_gpu_without_a_driver_gets_the_command_for_the_one_that_runs_its_chip(number: str, command: str) -> None:
    files = NVIDIA | {f"{BUS}/vendor": "0x8086", f"{BUS}/device": number}
    ((device, _),) = bus_devices(host_of(files=files), BY_NAME["intel"])
    assert device.verdict.reason == f"no driver is bound to it; run `{command}` on the host"


def test_a_missing_node_that_a_container_must_be_given_is_named_alone() -> None:
    (device,) = accelerators_of(LISTED["ascend-container"])
    assert device.verdict.reason.endswith("; start it with `--device /dev/davinci_manager`")


def test_a_container_without_any_npu_is_told_that_its_number_is_the_hosts() -> None:
    files = LISTED["ascend-container"]["facts"]["files"]
    shared = dict.fromkeys(("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"), files["/dev/davinci0"])
    lacking = {path: text for path, text in files.items() if path != "/dev/davinci0"}
    ((device, _),) = bus_devices(host_of(files=lacking | shared), BY_NAME["ascend"])
    assert "; start it with `--device /dev/davinciN --device /dev/davinci_manager " in device.verdict.reason
    assert device.verdict.reason.endswith("`, N its number on the host")


@pytest.mark.parametrize(("value", "visible"), [("", False), ("-1", False), ("0", True), ("1,0", True)])
def test_a_mask_that_names_no_device_hides_all(value: str, visible: object) -> None:
    device = on_bus(BOUND | NODES, env={"CUDA_VISIBLE_DEVICES": value})
    assert device.visible is visible
    assert device.verdict.code == ("unknown" if visible else "hidden")


def test_a_mask_does_not_hide_that_a_device_is_unusable() -> None:
    assert on_bus(NVIDIA, env={"CUDA_VISIBLE_DEVICES": ""}).verdict.code == "unusable"


def test_a_device_that_no_table_knows_keeps_its_id() -> None:
    device = the_gpu(BOUND | {f"{BUS}/device": "0xfffe"})
    assert (device.name, device.arch, device.details["pci_id"]) == (None, None, "10de:fffe")


def test_the_link_is_told_at_most_and_now_and_not_now_where_that_would_wake_the_device() -> None:
    files = LISTED["nvidia-server"]["facts"]["files"]
    first, second, *_ = manager_of(host_of(files=files)).probe_devices().devices
    assert first.links == (
        {
            "kind": "pcie",
            "max_speed": "16.0 GT/s PCIe",
            "max_width": 16,
            "current_speed": "2.5 GT/s PCIe",
            "current_width": 16,
            "numa_node": 1,
        },
    )
    assert second.links == ()
    asleep, *_ = (
        manager_of(host_of(files=files | {"/sys/bus/pci/devices/0001:00:00.0/power_state": "D3cold\n"}))
        .probe_devices()
        .devices
    )
    assert "current_speed" not in asleep.links[0]


def test_sysfs_gives_the_numbers_of_a_device_in_drm_and_accel() -> None:
    discrete, integrated, _ = accelerators_of(LISTED["amd-desktop"])
    assert discrete.indices == {"drm_card": 1, "drm_render": 129}
    assert integrated.indices == {"drm_card": 0, "drm_render": 128}
    assert [device.indices for device in accelerators_of(LISTED["intel-laptop"])][1] == {"accel": 0}


def test_the_memory_of_a_mac_is_that_of_the_machine() -> None:
    (device,) = accelerators_of(LISTED["apple-macos"])
    assert device.memory.reported_bytes == 64 << 30


@pytest.mark.parametrize(
    ("library", "vendor"),
    [
        ("/usr/lib/wsl/lib/libcuda.so.1", "nvidia"),
        ("/opt/rocm/lib/librocdxg.so.1", "amd"),
        ("/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1", "intel"),
    ],
)
def test_a_library_tells_whose_gpu_is_behind_windows(library: str, vendor: str) -> None:
    device = the_gpu({"/dev/dxg": "!chr 10:125 0666 0:0", library: "!size 9"})
    assert (device.id, device.vendor, device.name) == ("dxg:0", vendor, None)


def test_a_denied_dxg_is_unusable() -> None:
    files = {"/dev/dxg": "!chr 10:125 0600 0:0", "/usr/lib/wsl/lib/libcuda.so.1": "!size 9"}
    assert the_gpu(files | USER).verdict.code == "unusable"


@pytest.mark.parametrize("vendor", TABLES)
def test_an_id_table_has_a_source_and_each_id_once(vendor: str) -> None:
    table = TABLES[vendor]
    assert table["source"]
    assert table["brand"]
    plugin = next(plugin for plugin in PLUGINS if plugin.name == vendor)
    assert {int(pci, 16) for pci in table["chips"]} <= set(plugin.pci_vendors)
    for chips in table["chips"].values():
        ids = [number for chip in chips for number in chip["ids"]]
        assert len(ids) == len(set(ids))
        assert all(re.fullmatch(r"[0-9a-f]{4}", number) for number in ids)
        assert all(name.isprintable() and name == name.strip() for chip in chips for name in chip["ids"].values())
        assert {chip.get("kind", "gpu") for chip in chips} <= {"gpu", "igpu", "npu"}
        assert {chip.get("memory", "shared") for chip in chips} <= {"dedicated", "shared", "unified"}
        assert {chip["driver"] for chip in chips if "driver" in chip} <= set(table.get("drivers", {}).get("gpu", ()))


@pytest.mark.parametrize(
    ("pci_id", "arch"),
    [
        ("10de:13c2", "sm_52"),  # GTX 970
        ("10de:1eb8", "sm_75"),  # T4
        ("10de:2330", "sm_90"),  # H100
        ("10de:2901", "sm_100"),  # B200
        ("10de:3182", "sm_103"),  # B300
        ("1002:740f", "gfx90a"),  # MI210
        ("1002:75a3", "gfx950"),  # MI355X
        ("1002:7480", "gfx1102"),  # RX 7600
        ("8086:56a0", "dg2"),  # Arc A770
        ("8086:643e", "npu40xx"),  # Lunar Lake
    ],
)
def test_the_architecture_of_a_known_card_is_right(pci_id: str, arch: str) -> None:
    vendor, number = pci_id.split(":")
    chips = [chip for table in TABLES.values() for chip in table["chips"].get(vendor, ())]
    assert [chip["arch"] for chip in chips if number in chip["ids"]] == [arch]


def test_no_two_plug_ins_claim_a_word_or_a_pci_vendor() -> None:
    words = [word for plugin in PLUGINS for word in {plugin.name, *plugin.device_types}]
    assert len(words) == len(set(words))
    buses = [vendor for plugin in PLUGINS for vendor in plugin.pci_vendors]
    assert len(buses) == len(set(buses))


def test_the_reference_page_has_a_row_for_every_vendor() -> None:
    page = Path(ROOT / "docs/reference/vendors.md").read_text(encoding="utf-8")
    for plugin in PLUGINS:
        row, *_ = (line for line in page.splitlines() if line.startswith(f"| {plugin.name} |"))
        assert all(f"`{word}`" in row for word in plugin.device_types)


@pytest.mark.parametrize("vendor", TABLES)
def test_every_kind_that_a_table_lists_has_the_command_that_asks_its_driver_or_none(vendor: str) -> None:
    tools = TABLES[vendor]["tools"]
    assert set(tools) <= {"gpu", "npu"}
    assert all(re.fullmatch(r"[a-z-]+( -?[a-z]+)?", tool) for tool in tools.values())


@pytest.mark.parametrize("name", [name for name in HOSTS if name.startswith("mali")])
def test_a_phones_gpu_promises_no_processor_that_is_not_listed(name: str) -> None:
    for device in accelerators_of(HOSTS[name]):
        assert "CPU" not in device.verdict.reason

from collections.abc import Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.detect.scenes import HOSTS, SHARED, STAMP, diagnosis_of, host_of, inventory_of, manager_of
from vllm_probe.core import codec
from vllm_probe.core.device import Inventory
from vllm_probe.core.scene import Scene
from vllm_probe.core.schema import violations
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager


@pytest.mark.parametrize("name", ["cpu-healthy", "ctr-14-no-dri"])
def test_the_document_of_a_recorded_host_stays_as_it_is(name: str, snapshot: SnapshotAssertion) -> None:
    assert codec.dumps(inventory_of(HOSTS[name])) == snapshot


def _nulls(value: Any, pointer: str) -> Iterator[str]:
    if value is None:
        yield pointer
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _nulls(item, codec.join(pointer, key))


@pytest.mark.parametrize("name", HOSTS)
def test_the_document_is_valid_and_explains_every_null(name: str) -> None:
    document = codec.to_json(inventory_of(HOSTS[name]))
    assert violations("inventory", document) == ()
    findings = document.pop("findings")  # where no device is the whole machine
    assert isinstance(findings, list)
    assert set(_nulls(document, "")) <= set(document["unknown"])


def test_a_hidden_gpu_is_named_with_the_mount_to_check() -> None:
    inventory = inventory_of(HOSTS["ctr-14-no-dri"])
    (finding,) = inventory.findings
    assert finding.cause.startswith(
        "Intel GPU not detected, falling back to CPU. Please check --device=/dev/dri mount. The container was started"
    )
    assert (finding.id, finding.device) == ("CTR-14", "0000:03:00.0")
    assert any("predicted slowdown" in fact for fact in finding.evidence)
    assert inventory.picked.id == "cpu0"


def test_outside_a_container_no_mount_is_suggested() -> None:
    (finding,) = inventory_of(HOSTS["ctr-13-kfd-group"]).findings
    assert finding.cause.startswith("AMD GPU not detected, falling back to CPU. The node /dev/kfd belongs to group 109")


def test_what_can_be_typed_here_comes_first_as_it_does_with_the_doctor() -> None:
    for name, where in (("ctr-13-kfd-group", "host"), ("ctr-11-selinux-amd", "podman")):
        (finding,) = inventory_of(HOSTS[name]).findings
        (told,) = diagnosis_of(HOSTS[name]).findings
        assert [fix.where for fix in finding.fix] == [fix.where for fix in told.fix]
        assert finding.fix[0].where == where


def test_an_accelerator_without_a_plug_in_is_mentioned() -> None:
    (finding,) = inventory_of(HOSTS["ctr-healthy-host"]).findings
    assert (finding.id, finding.severity, finding.device) == ("PLG-09", "degrades", "0000:01:00.0")
    assert "NVIDIA GPU not detected, falling back to CPU: no installed plug-in covers its vendor." in finding.cause


def test_a_display_adapter_is_mentioned_as_no_accelerator() -> None:
    root = "/sys/bus/pci/devices/0000:c3:00.0"
    files = {f"{root}/vendor": "0x1a03\n", f"{root}/device": "0x2000\n", f"{root}/class": "0x030000\n"}
    host = host_of(files=files | {"/proc/cpuinfo": "processor\t: 0\nflags\t: avx2\n"})
    (finding,) = take_inventory(host, manager_of(host), STAMP, lambda _: None).findings
    assert (finding.severity, finding.device) == ("info", "0000:c3:00.0")
    assert "1a03:2000" in finding.evidence[0]


def inventory_with_every_plug_in(host: ReplayHost) -> Inventory:
    manager = PortableDeviceManager(host, discover_plugins(None).plugins)
    return take_inventory(host, manager, STAMP, lambda _: None)


def test_a_gpu_that_is_listed_and_not_used_is_named_with_the_reason_and_what_takes_its_place() -> None:
    inventory = inventory_with_every_plug_in(ReplayHost(codec.from_json(Scene, HOSTS["nvidia-taken"])))
    first, *others = inventory.findings
    assert (first.id, first.device) == ("PLG-09", "0000:01:00.0")
    assert first.cause == (
        "NVIDIA GeForce RTX 3090 at 0000:01:00.0 is not used, falling back to CPU:"
        " it is bound to vfio-pci, for a virtual machine."
    )
    assert any("predicted slowdown" in fact for fact in first.evidence)
    assert [finding.device for finding in others] == ["0000:21:00.0", "0000:41:00.0", "0000:61:00.0"]


@pytest.mark.parametrize("numbered", [False, True])
def test_what_a_container_was_not_given_is_one_finding_that_blocks_nothing(numbered: bool) -> None:
    cards = [f"0000:{bus}:00.0" for bus in ("10", "20", "30", "40")]
    known = {card: number for number, card in enumerate(cards) if numbered or number == 1}
    files = {"/.dockerenv": ""} | dict.fromkeys(
        ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"), "!chr 195:0 0666 0:0"
    )
    files |= {f"/proc/driver/nvidia/gpus/{card}/information": f"Device Minor: \t {n}\n" for card, n in known.items()}
    for card in cards:
        facts = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "driver": "!link x/nvidia"}
        files |= {f"/sys/bus/pci/devices/{card}/{name}": text for name, text in facts.items()}
    calls = {"cuInit": 0, "cuDeviceGetCount": 1, "cuDeviceGetPCIBusId": cards[1]}
    host = host_of(files=files, libs={"libcuda.so.1": {"load": "ok", "calls": calls}, "libnvidia-ml.so.1": None})
    inventory = inventory_with_every_plug_in(host)
    assert [device.id for device in inventory.devices if device.usable] == [cards[1]]
    (finding,) = inventory.findings
    assert (finding.id, finding.severity, finding.device) == ("PLG-09", "latent", cards[0])
    assert all(card in finding.cause for card in (cards[0], *cards[2:]))
    assert "this container was not given its node" in finding.cause


def test_a_gpu_that_computes_in_parts_is_no_loss() -> None:
    inventory = inventory_with_every_plug_in(ReplayHost(codec.from_json(Scene, HOSTS["nvidia-mig"])))
    assert [device.usable for device in inventory.devices if device.kind == "gpu"] == [False, True, True]
    assert inventory.findings == ()
    assert inventory.picked.id == "0000:4b:00.0/mig-2.0"


def test_integrated_graphics_and_an_npu_that_no_build_runs_are_listed_and_no_loss() -> None:
    inventory = inventory_with_every_plug_in(ReplayHost(codec.from_json(Scene, HOSTS["intel-laptop"])))
    assert {device.kind for device in inventory.devices} == {"cpu", "gpu", "igpu", "npu"}
    assert {finding.device for finding in inventory.findings} == {"0000:03:00.0"}  # no build runs the NPU
    assert inventory.picked.id == "cpu0"


def test_an_accelerator_that_none_of_our_plug_ins_covers_is_named() -> None:
    root = "/sys/bus/pci/devices/0000:a8:00.0"
    files = {f"{root}/vendor": "0x1ded\n", f"{root}/device": "0x6001\n", f"{root}/class": "0x120000\n"}
    inventory = inventory_with_every_plug_in(host_of(files=files))
    (finding,) = inventory.findings
    assert finding.cause == (
        "T-Head PPU not detected, falling back to nothing: no installed plug-in covers its vendor."
    )
    assert inventory.devices == ()


@pytest.mark.parametrize("node", ["/dev/dxg", "/dev/accel/accel0"])
def test_a_node_whose_device_nothing_tells_is_named(node: str) -> None:
    inventory = inventory_with_every_plug_in(host_of(files={node: "!chr 10:125 0666 0:0"}))
    (finding,) = inventory.findings
    assert (finding.id, finding.severity) == ("PLG-09", "info")
    assert node in finding.cause
    assert inventory.devices == ()


def test_a_machine_without_accelerators_has_no_findings() -> None:
    inventory = inventory_of(HOSTS["cpu-healthy"])
    assert inventory.findings == ()
    assert inventory.picked.id == "cpu0"
    assert inventory.software.vllm == "0.17.0+cpu"
    assert inventory.software.container == "docker"


def test_a_machine_that_shows_nothing_picks_nothing() -> None:
    host = host_of()
    inventory = take_inventory(host, manager_of(host), STAMP, lambda _: None)
    assert inventory.devices == ()
    assert inventory.picked.id is None


def test_the_descriptor_that_serves_a_device_is_named() -> None:
    host = host_of(files={"/proc/cpuinfo": "processor\t: 0\nflags\t: avx2\n"})
    inventory = take_inventory(host, manager_of(host), STAMP, lambda device: f"{device.id}.json")
    assert inventory.devices[0].descriptor == "cpu0.json"
    assert "/devices/0/descriptor" not in inventory.unknown


@pytest.mark.skipif(not SHARED, reason="the shared scenes are not beside this checkout")
@pytest.mark.parametrize("scene", SHARED, ids=[scene["id"] for scene in SHARED])
def test_no_accelerator_on_the_bus_is_lost_without_a_word(scene: dict[str, object]) -> None:
    inventory = inventory_of(scene)
    said = {finding.device for finding in inventory.findings} | {device.id for device in inventory.devices}
    files = scene["facts"]["files"]  # type: ignore[index]
    on_bus = {
        path.split("/")[5] for path, text in files.items() if path.endswith("/class") and text[:4] in ("0x03", "0x12")
    }
    assert on_bus <= said


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ascend-910b", "npu-smi info"),
        ("tenstorrent-n150", "tt-smi -s"),
        ("intel-asleep", "vllm-probe doctor"),
        ("nvidia-taken", "vllm-probe doctor"),
    ],
)
def test_a_device_that_nothing_here_asks_leads_to_its_own_tool_and_any_other_to_the_doctor(
    name: str, command: str
) -> None:
    findings = inventory_with_every_plug_in(ReplayHost(codec.from_json(Scene, HOSTS[name]))).findings
    assert [fix.command for finding in findings for fix in finding.fix][:1] == [command]

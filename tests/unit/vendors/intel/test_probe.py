"""Intel GPUs of recorded machines, from every layer; each layer that fails leaves the others' facts."""

import json
import threading
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, STAMP
from tests.unit.vendors.intel import outputs
from vllm_probe.core import codec
from vllm_probe.core.device import Device, Inventory
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult, Library
from vllm_probe.core.values import JsonValue
from vllm_probe.detect.engine_pick import vllm_choice
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.probe import probe
from vllm_probe.vendors.intel.tiles import with_tiles
from vllm_probe.vendors.intel.verdict import Reports
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

MIB = 1 << 20
IGPU, CARD = "0000:00:02.0", "0000:03:00.0"
B580_BYTES = 12216 * MIB


def scene(name: str, **facts: Any) -> dict[str, Any]:
    """The machine `name` with some facts added, or taken away where they are null."""
    found: dict[str, Any] = deepcopy(HOSTS[name])
    for kind, changes in facts.items():
        held = found["facts"].setdefault(kind, {})
        held |= changes
        for key in [key for key, value in changes.items() if value is None and kind != "libs"]:
            del held[key]
    return found


def host_of(name: str, **facts: Any) -> ReplayHost:
    return ReplayHost(codec.from_json(Scene, scene(name, **facts)))


def devices(name: str, **facts: Any) -> dict[str, Device]:
    return {device.id: device for device in probe(host_of(name, **facts)).devices}


def inventory(host: ReplayHost) -> Inventory:
    return take_inventory(host, PortableDeviceManager(host, discover_plugins(None).plugins), STAMP, lambda _: None)


def level_zero(**calls: JsonValue) -> dict[str, JsonValue]:
    return {"libze_loader.so.1": {"load": "ok", "path": None, "calls": calls}}


def test_an_arc_under_i915_tells_everything_to_a_process_that_may_know() -> None:
    card = devices("intel-arc-a770")[CARD]
    assert (card.usable, card.verdict.code, card.kind) == (True, "usable", "gpu")
    assert card.indices == {"drm_card": 1, "drm_render": 128, "level_zero": 0, "xpu": 0}
    assert card.sources["/indices/xpu"] == "order of Level Zero"
    assert card.memory.reported_bytes == 16225 * MIB
    assert card.memory.used_bytes == 1024 * MIB
    assert card.memory.usable_bytes == (16225 - 1024) * MIB
    assert card.sources["/memory/reported_bytes"] == "DRM memory regions"
    assert card.details["conflicts"] == {"/memory/reported_bytes": [{"value": 16225243136, "source": "Level Zero"}]}
    assert (card.details["event_reasons"], card.details["throttled"]) == (["pl1"], [])
    assert (card.details["power_limit_w"], card.details["temperature_c"]) == (190.0, 47)


def test_without_cap_perfmon_what_is_in_use_is_unknown_and_not_0() -> None:
    result = probe(host_of("intel-b580-xe"))
    at = next(i for i, device in enumerate(result.devices) if device.id == CARD)
    memory = result.devices[at].memory
    assert (memory.reported_bytes, memory.used_bytes, memory.usable_bytes) == (B580_BYTES, None, B580_BYTES)
    assert "CAP_PERFMON" in result.unknown[f"/{at}/memory/used_bytes"]
    assert result.devices[at].sources["/memory/usable_bytes"] == "reported, what is in use is not known"


def test_an_integrated_gpu_shares_the_machines_memory_and_nobody_counts_it() -> None:
    found = inventory(host_of("intel-b580-xe", libs=level_zero(zeInit=0, zeDriverGet=1, zeDeviceGet=1)))
    integrated = next(device for device in found.devices if device.id == IGPU)
    assert (integrated.kind, integrated.memory.kind) == ("igpu", "shared")
    assert integrated.memory.usable_bytes == (24 << 20) * 1024
    assert integrated.memory.used_bytes is None
    assert found.picked.id != IGPU
    assert vllm_choice(found.devices, "0.11.0", "intel").id != IGPU


def test_memory_regions_tell_a_card_at_the_address_of_integrated_graphics() -> None:
    moved = json.loads(json.dumps(HOSTS["intel-arc-a770"]).replace(CARD, IGPU).replace('"bus": 3', '"bus": 0'))
    moved["facts"]["libs"]["libze_loader.so.1"]["calls"]["zeDevicePciGetPropertiesExt"]["device"] = 2
    for number in ("0x56a0", "0xffff"):
        moved["facts"]["files"][f"/sys/bus/pci/devices/{IGPU}/device"] = number
        (card,) = probe(ReplayHost(codec.from_json(Scene, moved))).devices
        assert (card.id, card.kind, card.memory.kind) == (IGPU, "gpu", "dedicated")


def test_a_loader_without_a_driver_is_told_with_the_way_out() -> None:
    card = devices("intel-loader-alone")[CARD]
    assert (card.usable, card.verdict.code) == (False, "unusable")
    assert "libze_intel_gpu.so.1 is missing" in card.verdict.reason
    assert "libze-intel-gpu1" in card.verdict.reason
    assert card.memory.reported_bytes == 6064 * MIB


def test_firmware_that_did_not_boot_does_not_touch_the_card_beside_it() -> None:
    found = devices("intel-survivability")
    assert "survivability mode" in found[CARD].verdict.reason
    assert not found[CARD].usable
    other = found["0000:83:00.0"]
    assert (other.usable, other.visible, other.verdict.code) == (True, False, "hidden")
    assert other.memory.used_bytes == 31 * MIB


class Sleeping(ReplayHost):
    """A machine on which only the integrated graphics may be opened or asked."""

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        assert path == "/dev/dri/renderD128"
        return super().ioctl(path, request, data, pointers)

    def open_errno(self, path: str) -> int:
        assert path != "/dev/dri/renderD129"
        return super().open_errno(path)

    def read_bytes(self, path: str, limit: int = 1 << 22) -> bytes | None:
        assert CARD not in path or not any(word in path for word in ("hwmon", "freq"))
        return super().read_bytes(path, limit)

    def library(self, name: str) -> Library:
        raise AssertionError(name)

    def run(self, argv: Sequence[str], *_: Any, **__: Any) -> Any:
        assert argv[0] == "intel_gpu_top"  # reads the counters of the card that it is given
        assert argv[-1] == "drm:/dev/dri/card0"
        return super().run(argv, 1)


def test_nothing_is_asked_that_wakes_a_card_in_d3cold() -> None:
    recorded = scene("intel-asleep")
    card = f"/sys/bus/pci/devices/{CARD}"
    recorded["facts"]["files"] |= {f"{card}/hwmon/hwmon1/name": "i915", f"{card}/drm/card1/gt_act_freq_mhz": "100"}
    found = {device.id: device for device in probe(Sleeping(codec.from_json(Scene, recorded))).devices}
    assert [device.verdict.code for device in found.values()] == ["unknown", "unknown"]
    assert "it is asleep" in found[CARD].verdict.reason
    assert f"that wakes {CARD}" in found[IGPU].verdict.reason
    assert found[IGPU].memory.kind == "shared"


class Slow(ReplayHost):
    """Seven cards whose counters answer when all are asked, a Level Zero that takes 7 s, and an xpu-smi that hangs."""

    counters = threading.Barrier(8, timeout=20)
    given: float | None = None

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        self.counters.wait()
        self.sleep(7)
        raise LibraryTimeout(f"{function} did not return within {timeout_s} s", hint="")

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        if argv[0] == "intel_gpu_top":
            self.counters.wait()
        elif self.given is None:
            self.given = timeout_s
        return CommandResult(status="timeout")


def test_cards_are_asked_at_the_same_time_and_tools_within_what_is_left() -> None:
    files: dict[str, str] = {}
    for number in range(7):
        folder = f"/sys/bus/pci/devices/0000:{number:02x}:00.0"
        files |= {f"{folder}/class": "0x030000", f"{folder}/vendor": "0x8086", f"{folder}/device": "0x56c0"}
        files |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/i915", f"{folder}/drm/card{number}/dev": ""}
    host = Slow(codec.from_json(Scene, {"facts": {"files": files}}))
    found = probe(host).devices
    assert len(found) == 7
    assert host.given == 2
    assert {device.details["xpu_smi_error"] for device in found} == {"xpu-smi did not answer in 2 s"}


def test_a_card_in_d3cold_is_asked_where_it_may_be_woken() -> None:
    host = host_of("intel-asleep", libs=level_zero(zeInit=0x78000001))
    host.wakes = True
    found = {device.id: device for device in probe(host).devices}
    assert [device.verdict.code for device in found.values()] == ["unusable", "unusable"]


class Broken(ReplayHost):
    """A machine whose Level Zero ends as `error` says."""

    error: Exception = LibraryUnavailable("", hint="")

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (LibraryTimeout("late", hint=""), "unknown", "Level Zero did not answer within 5 s"),
        (
            LibraryUnavailable("vllm_probe.vendors.intel.lib:read was killed by signal 11", hint=""),
            "unusable",
            "Level Zero was killed by signal 11",
        ),
        (LibraryUnavailable("libze_loader.so.1: no", hint=""), "unusable", "Level Zero is not there"),
    ],
)
def test_a_level_zero_that_fails_leaves_what_the_driver_tells(error: Exception, code: str, reason: str) -> None:
    host = Broken(codec.from_json(Scene, HOSTS["intel-arc-a770"]))
    host.error = error
    (card,) = probe(host).devices
    assert (card.usable, card.verdict.code) == (False, code)
    assert card.verdict.reason.startswith(reason)
    assert card.memory.used_bytes == 1024 * MIB
    assert card.name == "Intel Arc A770"


def test_a_driver_that_refuses_leaves_what_level_zero_tells() -> None:
    recorded = scene("intel-arc-a770")
    recorded["facts"]["ioctls"] = {}
    (card,) = probe(ReplayHost(codec.from_json(Scene, recorded))).devices
    assert card.usable
    assert (card.memory.reported_bytes, card.memory.used_bytes) == (16225243136, None)
    assert card.sources["/memory/reported_bytes"] == "Level Zero"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("!chr 226:129 0660 0:44 EACCES", "may not open its render node"),
        ("!chr 226:129 0660 0:992 EPERM", "device cgroup"),
        ("!absent", "is not there"),
        ("!chr 226:129 0660 0:992", "does not answer"),
    ],
)
def test_why_the_driver_tells_no_memory_is_said(node: str, why: str) -> None:
    recorded = scene("intel-b580-xe", files={"/dev/dri/renderD129": node})
    recorded["facts"]["ioctls"] = {}
    result = probe(ReplayHost(codec.from_json(Scene, recorded)))
    at = next(i for i, device in enumerate(result.devices) if device.id == CARD)
    assert why in result.unknown[f"/{at}/memory/reported_bytes"]
    assert result.devices[at].memory.reported_bytes is None


def test_xpu_smi_tells_what_the_driver_does_not() -> None:
    listed = json.loads(outputs.LIST_2)
    listed["device_list"][0] |= {
        "device_name": "Intel(R) Arc(TM) B580 Graphics",
        "pci_bdf_address": CARD,
        "memory_physical_size_byte": B580_BYTES,
        "memory_free_size_byte": B580_BYTES,
    }
    commands = {"xpu-smi discovery -j": json.dumps(listed), "xpu-smi stats -d 0 -j": outputs.STATS_2}
    card = devices("intel-b580-xe", commands=commands)[CARD]
    assert card.memory.used_bytes == round(45.5 * MIB)
    assert card.sources["/memory/used_bytes"] == "xpu-smi"
    assert card.memory.usable_bytes == B580_BYTES - round(45.5 * MIB)
    assert card.details["state"] == "normal"
    assert "conflicts" not in card.details


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("!rc=-11\n", "killed by signal 11"),
        ("!timeout\n", "did not answer"),
        (f"!rc=1\n{outputs.ERROR}", "Level Zero Initialization Error"),
    ],
)
def test_a_tool_that_fails_says_nothing_of_the_device(output: str, why: str) -> None:
    result = probe(host_of("intel-b580-xe", commands={"xpu-smi discovery -j": output}))
    at = next(i for i, device in enumerate(result.devices) if device.id == CARD)
    assert result.devices[at].verdict.code == "usable"
    assert result.devices[at].memory.reported_bytes == B580_BYTES
    assert "CAP_PERFMON" in result.unknown[f"/{at}/memory/used_bytes"]
    assert why in str(result.devices[at].details["xpu_smi_error"])


def test_a_mask_hides_what_level_zero_does_not_list() -> None:
    recorded = level_zero(zeInit=0, zeDriverGet=1, zeDeviceGet=1, zeDevicePciGetPropertiesExt={"bus": 0, "device": 2})
    found = devices("intel-b580-xe", libs=recorded, env={"ZE_AFFINITY_MASK": "1"})
    assert (found[CARD].visible, found[CARD].verdict.code, found[CARD].usable) == (False, "hidden", True)
    assert (found[IGPU].visible, found[IGPU].verdict.code) == (True, "usable")


def with_two_tiles(**facts: Any) -> ReplayHost:
    """A card that Level Zero lists as two devices of 15.1 GiB each, of which 1 GiB of the whole is in use."""
    calls = HOSTS["intel-arc-a770"]["facts"]["libs"]["libze_loader.so.1"]["calls"] | {"zeDeviceGet": 2}
    return host_of("intel-arc-a770", libs=level_zero(**calls), **facts)


def test_a_gpu_that_level_zero_lists_tile_by_tile_computes_tile_by_tile() -> None:
    result = probe(with_two_tiles())
    card, *tiles = [device for device in result.devices if device.id.startswith(CARD)]
    assert (card.details["level_zero_devices"], card.details["compute_units"]) == (2, 1024)
    assert (card.usable, card.memory.usable_bytes) == (False, None)
    assert card.verdict.reason == (
        "Level Zero lists it as 2 devices, so only its parts compute: 0000:03:00.0/tile-0 to tile-1"
    )
    assert card.indices == {"drm_card": 1, "drm_render": 128}
    for number, tile in enumerate(tiles):
        assert (tile.id, tile.usable, tile.verdict.code) == (f"{CARD}/tile-{number}", True, "usable")
        assert tile.indices == {"drm_card": 1, "drm_render": 128, "level_zero": number, "xpu": number}
        assert (tile.memory.kind, tile.memory.reported_bytes) == ("partition", 16225243136)
        assert tile.memory.usable_bytes == (16225 - 1024) * MIB
        assert (tile.details["compute_units"], tile.details["parent"]) == (512, CARD)
        assert result.unknown[f"/{result.devices.index(tile)}/memory/used_bytes"].endswith("of the whole card only")


def test_a_card_with_tiles_is_not_called_lost_and_a_tile_is_picked() -> None:
    found = inventory(with_two_tiles())
    assert (found.findings, found.picked.id) == ((), f"{CARD}/tile-0")


def test_a_tile_has_its_share_of_the_cards_bandwidth_where_level_zero_does_not_tell_it() -> None:
    card = Device(
        id=CARD,
        vendor="intel",
        kind="gpu",
        details={"memory_bandwidth_gb_s": 3276.8},
        sources={"/details/memory_bandwidth_gb_s": "derived"},
    )
    own: list[dict[str, Any]] = [{"ordinal": 0, "memory_bandwidth_gb_s": 1600.0}, {"ordinal": 1}]
    reports = Reports(level_zero={"status": 0, "devices": own})
    _, told, derived = (device for device, _ in with_tiles((card, {}), own, reports, card.verdict))
    assert (told.details["memory_bandwidth_gb_s"], derived.details["memory_bandwidth_gb_s"]) == (1600.0, 1638.4)
    assert derived.sources["/details/memory_bandwidth_gb_s"] == "derived"


def test_a_tile_over_which_level_zero_fails_leaves_the_other() -> None:
    card = Device(id=CARD, vendor="intel", kind="gpu")
    own: list[dict[str, Any]] = [{"ordinal": 0, "silent": "it hangs"}, {"ordinal": 1, "memory": {"total": MIB}}]
    readings = with_tiles((card, {}), own, Reports(level_zero={"status": 0, "devices": own}), card.verdict)
    assert [device.usable for device, _ in readings] == [False, False, True]
    assert readings[1][1]["/memory/reported_bytes"] == "Level Zero does not tell it of this part"


def test_a_gpu_behind_windows_is_listed_with_what_level_zero_tells() -> None:
    calls = HOSTS["intel-arc-a770"]["facts"]["libs"]["libze_loader.so.1"]["calls"]
    bare = {path: None for path in HOSTS["intel-arc-a770"]["facts"]["files"] if "pci" in path or "/dev/dri" in path}
    there = {"/dev/dxg": "!chr 10:126 0666 0:0"}
    found = devices("intel-arc-a770", files=bare | there, libs=level_zero(**calls))
    (card,) = found.values()
    assert (card.id, card.name, card.usable) == ("dxg:0", "Intel(R) Arc(TM) A770 Graphics", True)
    assert card.memory.reported_bytes == 16225243136
    silent = devices("intel-arc-a770", files=bare | there, libs={"libze_loader.so.1": None})
    assert [(device.id, device.usable) for device in silent.values()] == [("dxg:0", False)]


def test_a_gpu_beside_nvidias_behind_windows_counts_where_level_zero_lists_it() -> None:
    (igpu,) = devices("nvidia-laptop-wsl").values()
    assert (igpu.id, igpu.kind, igpu.memory.kind, igpu.usable) == ("dxg:intel-0", "igpu", "shared", True)
    assert devices("nvidia-laptop-wsl", libs={"libze_loader.so.1": None}) == {}
    assert devices("nvidia-laptop-wsl", libs=level_zero(zeInit=0, zeDriverGet=1, zeDeviceGet=0)) == {}


def test_a_container_without_dri_says_what_is_lost_and_how_to_get_it_back() -> None:
    found = inventory(ReplayHost(codec.from_json(Scene, HOSTS["ctr-14-no-dri"])))
    card = next(device for device in found.devices if device.vendor == "intel")
    assert (card.id, card.usable, card.verdict.code) == (CARD, False, "unusable")
    expected = "Intel GPU not detected, falling back to CPU. Please check --device=/dev/dri mount."
    assert [finding.cause[: len(expected)] for finding in found.findings if finding.device == CARD] == [expected]


@pytest.mark.parametrize("name", [name for name in HOSTS if name.startswith("intel-")])
def test_a_recording_of_the_probe_replays_to_the_same_devices(name: str) -> None:
    recorder = RecordingHost(ReplayHost(codec.from_json(Scene, HOSTS[name])))
    first = probe(recorder)
    again = ReplayHost(codec.from_json(Scene, json.loads(codec.dumps(recorder.scene()))))
    assert probe(again) == first


def test_a_machine_without_a_driven_gpu_is_not_asked_for_level_zero() -> None:
    bus = f"/sys/bus/pci/devices/{CARD}/driver"
    recorded = scene("intel-arc-a770", files={bus: "!link ../../../bus/pci/drivers/vfio-pci"})
    host = Broken(codec.from_json(Scene, recorded))
    host.error = AssertionError("asked")
    (card,) = probe(host).devices
    assert "vfio-pci" in card.verdict.reason


def test_the_counters_of_i915_tell_a_clock_that_sysfs_does_not() -> None:
    acts = f"/sys/bus/pci/devices/{CARD}/drm/card1/gt_act_freq_mhz"
    command = "intel_gpu_top -J -s 200 -d drm:/dev/dri/card1"
    commands = {command: '!timeout\n[\n{"frequency": {"requested": 2400, "actual": 2350.5, "unit": "MHz"}},\n'}
    card = devices("intel-arc-a770", files={acts: None}, commands=commands)[CARD]
    assert (card.details["clock_mhz"], card.sources["/details/clock_mhz"]) == (2350, "intel_gpu_top")
    assert "clock_mhz" not in devices("intel-arc-a770", commands=commands)[CARD].details


@pytest.mark.parametrize(
    ("machine", "calls", "codes"),
    [
        ("intel-arc-a770", {"zeInit": 0}, ["usable"]),
        ("intel-arc-a770", {"zeInit": 0, "zeDriverGet": 1, "zeDeviceGet": 1}, ["usable"]),
        ("intel-arc-a770", {"zeInit": 0, "zeDriverGet": 0}, ["unusable"]),
        ("intel-arc-a770", {"zeInit": "0x70000001"}, ["unusable"]),
        ("intel-b580-xe", {"zeInit": 0, "zeDriverGet": 1, "zeDeviceGet": 2}, ["usable", "usable"]),
        ("intel-b580-xe", {"zeInit": 0}, ["unknown", "unknown"]),
    ],
)
def test_a_recording_by_hand_says_as_much_as_it_can(
    machine: str, calls: dict[str, JsonValue], codes: list[str]
) -> None:
    found = devices(machine, libs=level_zero(**calls))
    assert [device.verdict.code for device in found.values()] == codes


def test_an_integrated_gpu_may_have_no_more_than_level_zero_allows() -> None:
    calls = HOSTS["intel-b580-xe"]["facts"]["libs"]["libze_loader.so.1"]["calls"] | {
        "zeDevicePciGetPropertiesExt": {"bus": 0, "device": 2},
        "zeDeviceGetMemoryProperties": [1, {"totalSize": 8 << 30}],
    }
    memory = devices("intel-b580-xe", libs=level_zero(**calls))[IGPU].memory
    assert (memory.reported_bytes, memory.usable_bytes) == (32 << 30, 8 << 30)

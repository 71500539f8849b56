"""Intel GPUs of recorded machines, with the facts of every layer."""

import json

import pytest

from tests.unit.detect.scenes import HOSTS
from tests.unit.vendors.intel import outputs
from tests.unit.vendors.intel.machines import B580_BYTES, CARD, IGPU, MIB, devices, host_of, inventory, level_zero
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import JsonValue
from vllm_probe.detect.engine_pick import vllm_choice
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.probe import probe


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


def test_a_mask_hides_what_level_zero_does_not_list() -> None:
    recorded = level_zero(zeInit=0, zeDriverGet=1, zeDeviceGet=1, zeDevicePciGetPropertiesExt={"bus": 0, "device": 2})
    found = devices("intel-b580-xe", libs=recorded, env={"ZE_AFFINITY_MASK": "1"})
    assert (found[CARD].visible, found[CARD].verdict.code, found[CARD].usable) == (False, "hidden", True)
    assert (found[IGPU].visible, found[IGPU].verdict.code) == (True, "usable")


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

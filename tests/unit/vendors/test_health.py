import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS
from vllm_probe.core import codec
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.plugin import VendorPlugin
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.system import Host, HostStats
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.health import DriverHealthMonitor, Health, Holder
from vllm_probe.vendors.registry import PortableDeviceManager

GIB = 1 << 30
ID = "0000:03:00.0"
CPU = Device(
    id="cpu0",
    vendor="cpu",
    kind="cpu",
    memory=DeviceMemory(usable_bytes=1, kind="shared"),
    usable=True,
    details={"logical_cpus": 4},
)
CARD = Device(id=ID, vendor="acme", kind="gpu", usable=True, memory=DeviceMemory(usable_bytes=5, kind="dedicated"))
ACME = VendorPlugin(api_version=1, name="acme", device_types=("acme",), probe="", health=f"{__name__}:report")


def report(host: Host) -> Any:
    """What the recorded host has in the file of that name."""
    return json.loads(host.read_text("/report") or "")


def monitor_of(host: Host, plugin: VendorPlugin = ACME) -> DriverHealthMonitor:
    return DriverHealthMonitor(PortableDeviceManager(host, (plugin,)))


def told(state: Any, device: Device = CARD, need: int | None = None, files: dict[str, str] | None = None) -> Health:
    """The health of `device` where its driver tells `state` of it."""
    files = {"/report": json.dumps({"devices": {ID: state}})} | (files or {})
    return monitor_of(ReplayHost(Scene(facts=Facts(files=files)))).snapshot(device, need)


class FreeingHost(ReplayHost):
    """A machine with 1 GiB free until `freed_at` seconds have passed, then 8 GiB."""

    def __init__(self, freed_at: float, files: dict[str, str] | None = None) -> None:
        super().__init__(Scene(facts=Facts(files=files or {})))
        self.begin = self.now()
        self.freed_at = self.begin + freed_at
        self.asked: list[float] = []

    def stats(self) -> HostStats:
        self.asked.append(self.now() - self.begin)
        return HostStats(
            affinity=(0, 1, 2, 3),
            memory_total_bytes=16 * GIB,
            memory_available_bytes=8 * GIB if self.now() >= self.freed_at else GIB,
            load_1m=6.0,
            process_rss_bytes=None,
        )


def test_a_device_in_host_memory_is_ready_while_the_memory_is_free() -> None:
    monitor = monitor_of(FreeingHost(0))
    health = monitor.snapshot(CPU, 8 * GIB)
    assert (health.ready, health.free_bytes) == (True, 8 * GIB)
    health = monitor.snapshot(CPU, 9 * GIB)
    assert not health.ready
    assert health.reasons[0] == "9.00 GiB needed, 8.00 GiB free"


def test_the_limit_of_a_control_group_counts() -> None:
    files = {"/sys/fs/cgroup/memory.max": str(2 * GIB), "/sys/fs/cgroup/memory.current": str(GIB)}
    assert monitor_of(FreeingHost(0, files)).snapshot(CPU).free_bytes == GIB


def test_a_high_load_is_said_and_does_not_prevent() -> None:
    health = monitor_of(FreeingHost(0)).snapshot(CPU)
    assert (health.ready, health.load) == (True, 1.5)
    assert (health.reasons, health.slowed) == ((), ("1.5 runnable processes per processor",))


def test_an_unusable_device_is_not_ready_whatever_is_free() -> None:
    broken = replace(CPU, usable=False, verdict=Verdict(code="unusable", reason="no driver"))
    health = monitor_of(FreeingHost(0)).snapshot(broken)
    assert not health.ready
    assert "no driver" in health.reasons


def test_where_a_plug_in_does_not_watch_its_devices_memory_is_what_detection_saw() -> None:
    health = monitor_of(FreeingHost(0), replace(ACME, health=None)).snapshot(CARD, 6)
    assert (health.ready, health.free_bytes, health.load) == (False, 5, None)
    assert health.unknown["throttled"] == "its plug-in does not watch it"


def test_waiting_ends_when_the_memory_is_freed_with_growing_pauses() -> None:
    host = FreeingHost(10)
    assert monitor_of(host).wait_until_ready(CPU, 4 * GIB, 60).ready
    assert host.asked == [0, 0.5, 1.5, 3.5, 7.5, 15.5]


def test_waiting_ends_at_the_timeout_with_the_last_state() -> None:
    host = FreeingHost(100)
    health = monitor_of(host).wait_until_ready(CPU, 4 * GIB, 30)
    assert not health.ready
    assert host.asked == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5, 30]


def test_an_unusable_device_is_not_waited_for() -> None:
    host = FreeingHost(100)
    monitor_of(host).wait_until_ready(replace(CPU, usable=False), None, 30)
    assert host.asked == [0]


def test_memory_of_its_own_is_what_the_driver_tells_now() -> None:
    assert told({"free_bytes": 8 * GIB, "used_bytes": GIB}, need=8 * GIB).ready
    health = told({"free_bytes": 8 * GIB - 1, "used_bytes": GIB}, need=8 * GIB)
    assert (health.ready, health.free_bytes, health.used_bytes) == (False, 8 * GIB - 1, GIB)


def test_what_the_driver_does_not_tell_stays_unknown_and_stands_against_nothing() -> None:
    health = told({}, need=GIB)
    assert health.ready
    assert (health.free_bytes, health.used_bytes, health.holders, health.throttled) == (None,) * 4
    assert set(health.unknown) == {"free_bytes", "used_bytes", "holders", "throttled"}
    assert set(health.unknown.values()) == {"its driver does not tell it"}


def test_shared_memory_is_at_most_what_the_host_has_free() -> None:
    files = {"/proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {4 * GIB >> 10} kB\n"}
    unified = replace(CARD, memory=DeviceMemory(kind="unified"))
    assert told({"free_bytes": 8 * GIB}, unified, files=files).free_bytes == 4 * GIB
    assert told({"free_bytes": 2 * GIB}, unified, files=files).free_bytes == 2 * GIB
    assert told({}, unified, files=files).free_bytes == 4 * GIB


def test_other_processes_are_named_and_this_one_is_not_among_them() -> None:
    processes = [{"pid": 7, "bytes": 6 * GIB, "kind": "compute"}, {"pid": 42, "bytes": 1}, {"pid": 9, "bytes": None}]
    files = {"/proc/7/comm": "python3\n", "/proc/self/status": "Name:\tx\nPid:\t42\n"}
    health = told({"free_bytes": GIB, "processes": processes}, need=2 * GIB, files=files)
    assert health.holders == (Holder(pid=7, name="python3", held_bytes=6 * GIB, kind="compute"), Holder(pid=9))
    assert health.reasons == ("2.00 GiB needed, 1.00 GiB free; process 7 (python3, 6.00 GiB) has most",)
    assert told({"processes": processes}).ready


def test_inside_a_container_numbers_are_the_hosts_and_no_name_is_guessed() -> None:
    files = {"/proc/7/comm": "postgres\n", "/.dockerenv": ""}
    assert told({"processes": [{"pid": 7}]}, files=files).holders == (Holder(pid=7),)


@pytest.mark.parametrize("mode", ["exclusive_process", "exclusive_thread"])
def test_in_exclusive_mode_the_first_process_that_computes_keeps_others_out(mode: str) -> None:
    busy = {"compute_mode": mode, "processes": [{"pid": 7, "kind": "compute"}]}
    assert told(busy).reasons == ("it is in exclusive mode, and process 7 (name unknown) has it",)
    assert told(busy | {"processes": [{"pid": 7, "kind": "graphics"}]}).ready
    assert told(busy | {"processes": []}).ready
    assert told(busy | {"compute_mode": "default"}).ready


def test_an_mps_server_has_an_exclusive_device_and_lets_others_in() -> None:
    busy = {"compute_mode": "exclusive_process", "processes": [{"pid": 7, "kind": "compute"}]}
    health = told(busy, files={"/proc/7/comm": "nvidia-cuda-mps\n"})
    assert (health.ready, health.shared_by_mps) == (True, True)
    assert not told(busy, files={"/proc/7/comm": "python3\n"}).shared_by_mps


@pytest.mark.parametrize(("env", "folder"), [({}, "/tmp/nvidia-mps"), ({"CUDA_MPS_PIPE_DIRECTORY": "/pipe"}, "/pipe")])
def test_in_a_container_where_no_name_is_known_the_daemon_that_can_be_reached_is_mps(
    env: dict[str, str | None], folder: str
) -> None:
    busy = {"compute_mode": "exclusive_process", "processes": [{"pid": 7, "kind": "compute"}]}
    files = {"/report": json.dumps({"devices": {ID: busy}}), "/.dockerenv": ""}
    for here, shared in ((files | {f"{folder}/control": ""}, True), (files, False)):
        health = monitor_of(ReplayHost(Scene(facts=Facts(files=here, env=env)))).snapshot(CARD)
        assert (health.ready, health.shared_by_mps) == (shared, shared)


def test_the_mode_that_lets_nobody_in_is_a_reason() -> None:
    assert told({"compute_mode": "prohibited"}).reasons == ("its compute mode is Prohibited",)


THROTTLED = {"throttled": ["hardware_thermal"], "utilization": 99, "temperature_c": 93, "event_reasons": ["x"]}


def test_throttling_under_load_delays_and_does_not_prevent() -> None:
    health = told(THROTTLED)
    assert (health.ready, health.throttled) == (True, ("hardware_thermal",))
    assert health.slowed == ("throttled: hardware_thermal at 93 °C",)


@pytest.mark.parametrize(
    "look_alike",
    [
        {"utilization": 0},
        {"event_reasons": ["idle", "hardware_thermal"]},
        {"throttled": [], "event_reasons": ["power_cap"]},
        {"throttled": [], "event_reasons": ["application_clocks", "display_clock"]},
        {"throttled": [], "clock_mhz": 210, "clock_max_mhz": 2520, "utilization": 0},
        {"throttled": [], "clock_mhz": 1700, "clock_max_mhz": 2520},
    ],
)
def test_what_looks_like_throttling_is_not_called_that(look_alike: dict[str, Any]) -> None:
    health = told(THROTTLED | look_alike)
    assert (health.throttled, health.slowed) == ((), ())


@pytest.mark.parametrize(
    "why",
    [{"event_reasons": ["application_clocks"]}, {"event_reasons": ["power_cap"]}, {"throttled": None}],
)
def test_a_low_clock_that_is_wanted_or_may_be_throttled_is_not_stuck(why: dict[str, Any]) -> None:
    slow = {"throttled": [], "utilization": 100, "sm_clock_mhz": 210, "sm_clock_max_mhz": 2520}
    assert told(slow | why).slowed == ()


def test_a_clock_that_is_stuck_and_a_lowered_power_limit_are_told_apart_from_throttling() -> None:
    stuck = {"throttled": [], "utilization": 100, "core_clock_mhz": 41, "core_clock_max_mhz": 2400}
    assert told(stuck).slowed == ("busy at 41 of 2400 MHz without being throttled: its clock is stuck",)
    limited = {"power_limit_w": 150, "power_default_w": 450}
    assert told(limited).slowed == ("its power limit is set to 150 of 450 W",)
    assert told({"power_limit_w": 450, "power_default_w": 450}).slowed == ()


def test_a_device_that_its_driver_has_lost_is_not_ready() -> None:
    health = told({"lost": "it has fallen off the bus"})
    assert (health.ready, health.lost) == (False, "it has fallen off the bus")
    assert health.unknown["free_bytes"] == "it has fallen off the bus"


def test_a_driver_that_fails_loses_all_its_devices() -> None:
    files = {"/report": json.dumps({"devices": {}, "lost": "the driver is not loaded"})}
    health = monitor_of(ReplayHost(Scene(facts=Facts(files=files)))).snapshot(CARD)
    assert health.reasons == ("it does not answer: the driver is not loaded",)


def test_a_device_that_was_on_the_bus_and_is_no_more_is_lost() -> None:
    seen = replace(CARD, details={"pci_id": "10de:2684"})
    assert told({}, seen).lost == "it is not on the bus any more"
    assert told({}, seen, files={f"/sys/bus/pci/devices/{ID}/vendor": "0x10de"}).ready


def test_a_device_that_its_driver_does_not_list_is_unknown_and_not_lost() -> None:
    health = told({}, replace(CARD, id="dxg:0"))
    assert (health.ready, health.unknown["free_bytes"]) == (True, "its driver does not list it")


def test_a_device_that_sleeps_is_not_asked() -> None:
    root = f"/sys/bus/pci/devices/{ID}"
    files = {f"{root}/class": "0x030000", f"{root}/vendor": "0x10de", f"{root}/power_state": "D3cold"}
    health = told({"free_bytes": GIB}, files=files)
    assert (health.free_bytes, health.ready) == (None, True)
    assert health.unknown["free_bytes"] == "it is asleep, and asking would wake it"
    assert told({"free_bytes": GIB}, files=files | {f"{root}/power_state": "D0"}).free_bytes == GIB


@pytest.mark.parametrize("broken", ["[]", "3", '{"devices": {"0000:03:00.0": {"free_bytes": -1}}}', '{"devices": []}'])
def test_a_plug_in_whose_report_is_none_leaves_the_state_unknown(broken: str) -> None:
    health = monitor_of(ReplayHost(Scene(facts=Facts(files={"/report": broken})))).snapshot(CARD)
    assert (health.ready, health.free_bytes) == (True, None)
    assert health.unknown["free_bytes"]


WATCHED = [
    ("nvidia", "nvidia-server"),
    ("nvidia", "nvidia-laptop-wsl"),
    ("amd", "amd-workstation"),
    ("intel", "intel-arc-a770"),
    ("ascend", "ascend-centos7"),
]


def plugin_of(vendor: str) -> VendorPlugin:
    plugin: VendorPlugin = import_module(f"vllm_probe.vendors.{vendor}").PLUGIN
    return plugin


@pytest.mark.parametrize(("vendor", "name"), WATCHED, ids=[name for _, name in WATCHED])
def test_each_vendor_tells_the_free_memory_of_the_devices_that_its_probe_finds(vendor: str, name: str) -> None:
    plugin = plugin_of(vendor)
    host = ReplayHost(codec.from_json(Scene, HOSTS[name]))
    manager = PortableDeviceManager(host, (plugin,))
    devices = [device for device in manager.probe_devices().devices if device.usable and device.kind != "igpu"]
    assert devices
    for device in devices:
        health = DriverHealthMonitor(manager).snapshot(device, GIB)
        assert (health.ready, health.free_bytes) == (True, device.memory.usable_bytes)
        assert not DriverHealthMonitor(manager).snapshot(device, 1 << 40).ready


def test_a_driver_that_hangs_is_not_ready_and_says_so() -> None:
    scene = json.loads(json.dumps(HOSTS["nvidia-server"]))
    for library in scene["facts"]["libs"].values():
        library["calls"] = dict.fromkeys(library["calls"], "timeout")
    host = ReplayHost(codec.from_json(Scene, scene))
    plugin = plugin_of("nvidia")
    health = monitor_of(host, plugin).snapshot(replace(CARD, vendor="nvidia"))
    assert (health.ready, health.lost) == (False, "its driver says nothing for 5 s")


def test_a_library_that_is_missing_leaves_the_state_unknown() -> None:
    plugin = plugin_of("nvidia")
    health = monitor_of(ReplayHost(Scene(facts=Facts())), plugin).snapshot(replace(CARD, vendor="nvidia"))
    assert health.ready
    assert "libnvidia-ml" in health.unknown["free_bytes"]


def test_nvml_is_not_asked_while_another_gpu_sleeps() -> None:
    scene = json.loads(json.dumps(HOSTS["nvidia-server"]))
    scene["facts"]["files"]["/sys/bus/pci/devices/0002:00:00.0/power_state"] = "D3cold"
    awake = replace(CARD, id="0001:00:00.0", vendor="nvidia")
    health = monitor_of(ReplayHost(codec.from_json(Scene, scene)), plugin_of("nvidia")).snapshot(awake)
    assert (health.ready, health.free_bytes) == (True, None)
    assert health.unknown["free_bytes"] == "NVML was not asked, because that wakes 0002:00:00.0"

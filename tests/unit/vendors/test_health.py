from dataclasses import replace

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.system import HostStats
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.health import DriverHealthMonitor

GIB = 1 << 30
CPU = Device(
    id="cpu0",
    vendor="cpu",
    kind="cpu",
    memory=DeviceMemory(usable_bytes=1, kind="shared"),
    usable=True,
    details={"logical_cpus": 4},
)


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
    monitor = DriverHealthMonitor(FreeingHost(0))
    health = monitor.snapshot(CPU, 8 * GIB)
    assert (health.ready, health.free_bytes) == (True, 8 * GIB)
    health = monitor.snapshot(CPU, 9 * GIB)
    assert not health.ready
    assert health.reasons[0] == "9.00 GiB needed, 8.00 GiB free"


def test_the_limit_of_a_control_group_counts() -> None:
    files = {"/sys/fs/cgroup/memory.max": str(2 * GIB), "/sys/fs/cgroup/memory.current": str(GIB)}
    assert DriverHealthMonitor(FreeingHost(0, files)).snapshot(CPU).free_bytes == GIB


def test_a_high_load_is_said_and_does_not_prevent() -> None:
    health = DriverHealthMonitor(FreeingHost(0)).snapshot(CPU)
    assert (health.ready, health.load) == (True, 1.5)
    assert health.reasons == ("1.5 runnable processes per processor",)


def test_an_unusable_device_is_not_ready_whatever_is_free() -> None:
    broken = replace(CPU, usable=False, verdict=Verdict(code="unusable", reason="no driver"))
    health = DriverHealthMonitor(FreeingHost(0)).snapshot(broken)
    assert not health.ready
    assert "no driver" in health.reasons


def test_memory_of_its_own_is_what_detection_saw() -> None:
    card = replace(CPU, id="x", memory=DeviceMemory(usable_bytes=5, kind="dedicated"), details={})
    health = DriverHealthMonitor(FreeingHost(0)).snapshot(card, 6)
    assert (health.ready, health.free_bytes, health.load) == (False, 5, None)


def test_waiting_ends_when_the_memory_is_freed_with_growing_pauses() -> None:
    host = FreeingHost(10)
    assert DriverHealthMonitor(host).wait_until_ready(CPU, 4 * GIB, 60).ready
    assert host.asked == [0, 0.5, 1.5, 3.5, 7.5, 15.5]


def test_waiting_ends_at_the_timeout_with_the_last_state() -> None:
    host = FreeingHost(100)
    health = DriverHealthMonitor(host).wait_until_ready(CPU, 4 * GIB, 30)
    assert not health.ready
    assert host.asked == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5, 30]

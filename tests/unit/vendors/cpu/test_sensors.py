"""Sensors of processors, and what changes between two readings."""

from typing import Any

from vllm_probe.core.primitive import Telemetry
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.sensors import Sensors

CPU = "/sys/devices/system/cpu"


class Machine(ReplayHost):
    """A recording whose files change, with a clock that can be measured."""

    def __init__(self, files: dict[str, str], mhz: float | None = None) -> None:
        super().__init__(Scene(facts=Facts(files=files)))
        self.now_says: dict[str, str] = {}
        self.mhz = mhz

    def read_text(self, path: str) -> str | None:
        return self.now_says.get(path) or super().read_text(path)

    def clock_mhz(self) -> float | None:
        return self.mhz


def read(files: dict[str, str], mhz: float | None = None, later: dict[str, str] | None = None) -> Telemetry:
    machine = Machine(files, mhz)
    sensors = Sensors(machine, (0, 1))
    machine.now_says = later or {}
    return sensors.read()


def test_the_clock_is_the_mean_of_what_cpufreq_tells() -> None:
    files = {f"{CPU}/cpu{n}/cpufreq/scaling_cur_freq": f"{khz}\n" for n, khz in ((0, 3000000), (1, 2000000))}
    assert read(files, mhz=4000.0).clock_mhz == 2500.0


def test_where_cpufreq_is_silent_the_clock_is_measured() -> None:
    assert read({}, mhz=4105.0) == Telemetry(clock_mhz=4105.0)
    assert read({}).clock_mhz is None


def test_the_package_thermometer_is_found_among_others() -> None:
    files: dict[str, Any] = {
        "/sys/class/hwmon/hwmon0/name": "nvme\n",
        "/sys/class/hwmon/hwmon0/temp1_input": "31000\n",
        "/sys/class/hwmon/hwmon1/name": "k10temp\n",
        "/sys/class/hwmon/hwmon1/temp1_input": "61500\n",
    }
    assert read(files).temperature_c == 61.5
    assert read(files | {"/sys/class/hwmon/hwmon1/temp1_input": "hot"}).temperature_c is None


def test_a_core_that_throttled_since_the_last_reading_was_held_down_by_heat() -> None:
    files = {f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": "7\n" for n in (0, 1)}
    later = {f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "8\n"}
    assert read(files).held_down == ()
    assert read(files, later=later).held_down == ("thermal",)
    machine = Machine(files)
    sensors = Sensors(machine, (0, 1))
    machine.now_says = later
    assert [sensors.read().held_down for _ in range(2)] == [("thermal",), ()]


def test_periods_without_quota_are_counted_in_the_group_and_its_parents() -> None:
    v2 = {
        "/proc/self/cgroup": "0::/pod/app\n",
        "/sys/fs/cgroup/pod/app/cpu.stat": "usage_usec 5\nnr_periods 90\nnr_throttled 3\n",
        "/sys/fs/cgroup/pod/cpu.stat": "nr_periods 90\nnr_throttled 4\n",
        "/sys/fs/cgroup/cpu.stat": "usage_usec 5\n",
    }
    assert read(v2).quota_periods == 7
    v1 = {"/proc/self/cgroup": "4:cpu,cpuacct:/job\n", "/sys/fs/cgroup/cpu/job/cpu.stat": "nr_throttled 12\n"}
    assert read(v1).quota_periods == 12
    assert read({"/proc/self/cgroup": "0::/\n"}).quota_periods is None

"""What processors say of themselves while they work.

Sources: Linux Documentation/admin-guide/pm/cpufreq.rst, hwmon/coretemp.rst and k10temp.rst, admin-guide/cgroup-v2.rst
(`cpu.stat`), and arch/x86/kernel/cpu/mce/therm_throt.c for `core_throttle_count`.
"""

import re

from vllm_probe.core.primitive import Telemetry
from vllm_probe.core.system import Host
from vllm_probe.vendors.cpu.cpuinfo import parse_khz
from vllm_probe.vendors.cpu.limits import quota_statistics

_CPU = "/sys/devices/system/cpu"
_THERMOMETERS = ("coretemp", "k10temp", "zenpower")
_THROTTLED = re.compile(r"^nr_throttled ([0-9]{1,18})$", re.MULTILINE)
_NUMBER = re.compile(r"\s*(-?[0-9]{1,18})\s*")


class Sensors:
    """Sensors of the `processors` of one host: found once, then read in well under a millisecond."""

    def __init__(self, host: Host, processors: tuple[int, ...]) -> None:
        self._host = host
        self._processors = processors
        self._quotas = tuple(file for file in quota_statistics(host) if host.exists(file))
        self._thermometer = next(
            (
                f"{folder}/temp1_input"
                for folder in host.glob("/sys/class/hwmon/hwmon*")
                if (host.read_text(f"{folder}/name") or "").strip() in _THERMOMETERS
            ),
            None,
        )
        self._hot = self._throttles()

    def read(self) -> Telemetry:
        """Clock, temperature, and whether heat or a quota held the processors down since the last reading.

        The clock is the mean that cpufreq tells of the processors; where it is silent, as in most virtual machines,
        the one measured on the processor that asks.
        """
        told = [mhz for cpu in self._processors if (mhz := self._clock(cpu))]
        clock = sum(told) / len(told) if told else self._host.clock_mhz()
        hot, before = self._throttles(), self._hot
        self._hot = hot
        degrees = _integer(self._host.read_text(self._thermometer)) if self._thermometer else None
        return Telemetry(
            clock_mhz=clock,
            temperature_c=None if degrees is None else degrees / 1000,
            held_down=None if hot is None or before is None else ("thermal",) if hot > before else (),
            quota_periods=self._quota_periods(),
        )

    def _clock(self, cpu: int) -> float | None:
        return parse_khz(self._host.read_text(f"{_CPU}/cpu{cpu}/cpufreq/scaling_cur_freq"))

    def _throttles(self) -> int | None:
        folders = (f"{_CPU}/cpu{cpu}/thermal_throttle" for cpu in self._processors)
        counts = [_integer(self._host.read_text(f"{folder}/core_throttle_count")) for folder in folders]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _quota_periods(self) -> int | None:
        texts = (self._host.read_text(file) or "" for file in self._quotas)
        counts = [
            int(found[1]) for text in texts if (found := re.search(r"^nr_throttled ([0-9]{1,18})$", text, re.MULTILINE))
        ]
        return sum(counts) if counts else None


def _integer(text: str | None) -> int | None:
    found = _NUMBER.fullmatch(text or "")
    return int(found[1]) if found else None

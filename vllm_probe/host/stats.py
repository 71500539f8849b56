"""Processors, memory and load from the texts of /proc."""

import re
from collections.abc import Callable

from vllm_probe.core.system import HostStats

_MAX_CPU = 1 << 16


def read_stats(read_text: Callable[[str], str | None]) -> HostStats:
    """What `/proc` says through `read_text`; what it does not say is null."""
    status, memory = (_fields(read_text(path) or "") for path in ("/proc/self/status", "/proc/meminfo"))
    load = re.match(r"[0-9]{1,9}\.[0-9]{1,9}\s", read_text("/proc/loadavg") or "")
    return HostStats(
        affinity=parse_cpu_list(status.get("Cpus_allowed_list", "")) or None,
        memory_total_bytes=_kib(memory.get("MemTotal")),
        memory_available_bytes=_kib(memory.get("MemAvailable")),
        load_1m=float(load[0]) if load else None,
        process_rss_bytes=_kib(status.get("VmRSS")),
    )


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Processor numbers of a kernel list such as `0-3,8`, ascending; empty when it is not one.

    The form is that of the kernel's `Documentation/admin-guide/cputopology.rst`.
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if match is None or int(match[2] or match[1]) >= _MAX_CPU:
            return ()
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def _kib(text: str | None) -> int | None:
    match = re.fullmatch(r"([0-9]{1,15}) kB", text or "")
    return int(match[1]) * 1024 if match else None

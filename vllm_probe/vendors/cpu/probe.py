"""Describes the processors as one device, `cpu0`."""

import math
from collections import Counter
from typing import TypeVar

from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.core.units import format_bytes, format_count
from vllm_probe.core.values import JsonValue
from vllm_probe.host.stats import parse_cpu_list
from vllm_probe.vendors.cpu import cpuinfo
from vllm_probe.vendors.cpu.limits import free_memory, read_limits

T = TypeVar("T")
_CPU = "/sys/devices/system/cpu"
_CPUINFO = "/proc/cpuinfo"


def probe(host: Host) -> ProbeResult:
    """The CPU of `host` with everything that limits this process; no device where Linux hides /proc/cpuinfo."""
    text = host.read_text(_CPUINFO)
    if text is None and host.platform().system in {"linux", "android"}:
        return ProbeResult()
    reading = _Reading(host, text or "")
    return ProbeResult(devices=(reading.device(),), unknown=reading.unknown)


class _Reading:
    """One look at the host: what was read, the source of each value, and why the others are null."""

    def __init__(self, host: Host, text: str) -> None:
        self.host = host
        self.info = cpuinfo.parse_cpuinfo(text)
        self.limits = read_limits(host)
        self.stats = host.stats()
        self.online = parse_cpu_list(host.read_text(f"{_CPU}/online") or "") or self.info.processors
        self.affinity = self.stats.affinity or self.online
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}

    def note(self, pointer: str, value: T, source: str, reason: str) -> T:
        """`value`, remembered as read from `source` or as missing for `reason`."""
        if value is None:
            self.unknown[f"/0{pointer}"] = reason
        else:
            self.sources[pointer] = source
        return value

    def device(self) -> Device:
        """The device, judged."""
        isa = cpuinfo.isa_words(self.info.flags, self.host.platform().machine)
        model = self.info.model
        memory = self._memory()
        noted = self._processors() | self._hardware()
        noted["isa"] = (list(isa), f"{_CPUINFO} flags", "")
        noted["model"] = (model, _CPUINFO, "the system does not name the processor")
        details = {key: self.note(f"/details/{key}", *facts) for key, facts in noted.items()}
        for key, mhz in (details["frequency_mhz"] or {}).items():
            if mhz is None:
                self.unknown[f"/0/details/frequency_mhz/{key}"] = f"the system does not tell the {key} clock"
        return Device(
            id="cpu0",
            vendor="cpu",
            kind="cpu",
            name=self.note("/name", model, _CPUINFO, "the system does not name the processor"),
            arch=self.note("/arch", cpuinfo.best_isa(isa), f"{_CPUINFO} flags", "no instruction sets are listed"),
            driver=self.note("/driver", None, "", "processors need no driver"),
            memory=memory,
            adapter="cpu",
            usable=True,
            verdict=_verdict(isa, details, memory, len(self.affinity)),
            sources=self.sources,
            details=details,
        )

    def _memory(self) -> DeviceMemory:
        total, available = self.stats.memory_total_bytes, self.stats.memory_available_bytes
        usable, source = free_memory(self.stats, self.limits)
        used = total - available if total is not None and available is not None else None
        silent = "the system does not report it"
        return DeviceMemory(
            reported_bytes=self.note("/memory/reported_bytes", total, "physical memory (MemTotal)", silent),
            usable_bytes=self.note("/memory/usable_bytes", usable, source, silent),
            used_bytes=self.note("/memory/used_bytes", used, "MemTotal less MemAvailable", silent),
            kind="shared",
        )

    def _processors(self) -> dict[str, tuple[JsonValue, str, str]]:
        """Cores, the share of them that this process has, and the thread budget: value, source, reason if null."""
        siblings = f"{_CPU}/cpu*/topology/thread_siblings_list"
        cores = {cpu: core for cpu in self.online if (core := self._core(cpu)) is not None}
        per_core = Counter(cores.values())
        quota = self.limits.quota_cpus
        usable_cores = len({cores.get(cpu, cpu) for cpu in self.affinity})
        budget = min(usable_cores, max(math.floor(quota), 1)) if quota else usable_cores
        untold = "the system does not tell which processors share a core"
        return {
            "logical_cpus": (len(self.online) or None, f"{_CPU}/online", "the system does not list them"),
            "physical_cores": (len(per_core) or None, siblings, untold),
            "smt": (max(per_core.values(), default=None), siblings, untold),
            "affinity": (cpuinfo.format_cpu_list(self.affinity) or None, "affinity mask", "the system has none"),
            "quota_cpus": (quota, self.limits.quota_source or "", "no control group sets a quota"),
            "threads": (budget or None, "min(affinity, floor(quota), physical cores)", "no processor is listed"),
        }

    def _core(self, cpu: int) -> object | None:
        siblings = self.host.read_text(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
        return parse_cpu_list(siblings or "") or self.info.cores.get(cpu)

    def _hardware(self) -> dict[str, tuple[JsonValue, str, str]]:
        """What does not change from one process to the next: value, source, reason if null."""
        first = f"{_CPU}/cpu{min(self.affinity, default=0)}"
        current = cpuinfo.parse_khz(self.host.read_text(f"{first}/cpufreq/scaling_cur_freq"))
        maximum = cpuinfo.parse_khz(self.host.read_text(f"{first}/cpufreq/cpuinfo_max_freq"))
        clocks = {"current": current or self.info.mhz, "max": maximum}
        nodes = len(parse_cpu_list(self.host.read_text("/sys/devices/system/node/online") or ""))
        virtual = "hypervisor" in self.info.flags if self.info.flags else None
        limit, file = self.limits.memory_bytes, self.limits.memory_source or ""
        return {
            "caches": (self._caches(first) or None, f"{first}/cache", "sysfs has none, or reports 0"),
            "frequency_mhz": (clocks if any(clocks.values()) else None, f"cpufreq, {_CPUINFO}", "no clock is reported"),
            "hypervisor": (virtual, f"{_CPUINFO} flags", "no flags are listed"),
            "memory_limit_bytes": (limit, file, "no control group limits memory"),
            "numa_nodes": (nodes or None, "/sys/devices/system/node", "sysfs has none"),
        }

    def _caches(self, cpu: str) -> dict[str, int]:
        """Bytes of each cache that the processor at `cpu` reaches."""
        names = {("1", "Data"): "l1d", ("2", "Unified"): "l2", ("3", "Unified"): "l3"}
        found: dict[str, int] = {}
        for index in self.host.glob(f"{cpu}/cache/index[0-9]*"):
            level, kind, size = (self.host.read_text(f"{index}/{file}") or "" for file in ("level", "type", "size"))
            name, size_bytes = names.get((level.strip(), kind.strip())), cpuinfo.parse_size_kib(size)
            if name and size_bytes:
                found[name] = size_bytes
        return found


def _verdict(isa: tuple[str, ...], details: dict[str, JsonValue], memory: DeviceMemory, num_allowed: int) -> Verdict:
    """Usable, or limited by a quota below the affinity mask or by the lack of AVX2."""
    limits = []
    if details["quota_cpus"] is not None and details["quota_cpus"] < num_allowed:
        limits.append(
            f"the control group allows {details['quota_cpus']:g} of {num_allowed} visible CPUs,"
            f" so more than {format_count(details['threads'], 'thread')} would be throttled"
        )
    if "sse4_2" in isa and "avx2" not in isa:
        limits.append("no AVX2: prebuilt kernels may stop with an illegal instruction, only generic code is safe")
    if limits:
        return Verdict(code="limited", reason="; ".join(limits))
    arch = cpuinfo.best_isa(isa) or "unknown instruction set"
    return Verdict(
        code="usable",
        reason=f"{format_count(details['threads'], 'thread')}, {arch}, {format_bytes(memory.usable_bytes)} free",
    )

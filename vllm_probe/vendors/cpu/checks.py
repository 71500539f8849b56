"""Rows CPU-01 to CPU-09: why a program dies on a processor, or runs slow on it."""

import re
from collections.abc import Iterator
from pathlib import Path

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.plugin import Check
from vllm_probe.core.rows import load_rows, matching_line
from vllm_probe.core.system import Host
from vllm_probe.core.units import GIB
from vllm_probe.host.stats import parse_cpu_list
from vllm_probe.vendors.software import installed

_CAP_SYS_NICE = 1 << 23  # include/uapi/linux/capability.h
_DIED = (
    r"[Ii]llegal (hardware )?instruction(?! was encountered)|SIGILL|\btrap invalid opcode\b"
    r"|was compiled with avx\w{0,20} but CPU does not support it"
)
"""What a shell, a signal handler, the kernel and vLLM say; `an illegal instruction was encountered` is CUDA's word."""
_ROWS = load_rows(Path(__file__).with_name("rows.json"))


def missing_instructions(host: Host, devices: tuple[Device, ...], log: str) -> Iterator[Finding]:
    """CPU-01 and CPU-02."""
    cpu = _cpu(devices)
    isa = _isa(cpu)
    if cpu is None or not isa:
        return
    died = matching_line(log, _DIED)
    vllm, x86 = installed(host, "vllm") or "", "neon" not in isa
    unmet = f"vllm {vllm}: its CPU builds need AVX2" if "cpu" in vllm and x86 and "avx2" not in isa else None
    flags = f"{_source(cpu, 'isa')}: {cpu.name}, at best {cpu.arch}"
    if x86 and "avx" not in isa and cpu.details["hypervisor"]:
        yield _ROWS["CPU-02"].finding(cpu.id, (f"{flags}, hypervisor", died, unmet))
    elif died or unmet:
        none_fits = x86 and "avx2" not in isa
        image = "Every CPU build of vLLM needs AVX2." if none_fits else f"Or use an image built for {cpu.arch} or less."
        yield _ROWS["CPU-01"].finding(cpu.id, (flags, died, unmet), arch=cpu.arch, image=image)


def limited_instructions(host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CPU-03: by the variables of ATen, oneDNN and vLLM's build, or by a vLLM without its AVX512 library."""
    cpu = _cpu(devices)
    if cpu is None or "avx512" not in _isa(cpu):
        return
    row = _ROWS["CPU-03"]
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        value = host.env(name) or ""
        if re.fullmatch(r"default|sse41|avx|avx2(_vnni(_2)?)?", value, re.IGNORECASE):
            facts, how = (f"env {name}={value}",), "Take the limit away."
            yield row.finding(cpu.id, facts, limit=f"{name}={value}", command=f"unset {name}", text=how)
    for site in host.platform().site_packages:
        names = {path.rpartition("/")[2].partition(".")[0] for path in host.glob(f"{site}/vllm/_C*.so")}
        if names == {"_C_AVX2"}:
            facts, how = (
                (f"{site}/vllm: _C_AVX2 is its only kernel library",),
                "Install a CPU build with AVX512 kernels.",
            )
            yield row.finding(cpu.id, facts, limit="the build of vLLM", command="pip uninstall vllm", text=how)


def oversubscribed(host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CPU-04 and CPU-05: more threads than the cgroup's quota or the affinity allow."""
    cpu = _cpu(devices)
    if cpu is None:
        return
    logical = cpu.details["logical_cpus"] or 0
    allowed = len(parse_cpu_list(cpu.details["affinity"] or "")) or logical
    quota, variable = cpu.details["quota_cpus"], host.env("OMP_NUM_THREADS") or ""
    asked = int(variable) if re.fullmatch(r"[0-9]{1,6}", variable) else None
    affinity = f"{_source(cpu, 'affinity')}: {cpu.details['affinity']}"
    setting = f"env OMP_NUM_THREADS={variable}" if variable else "env OMP_NUM_THREADS is not set"
    if quota is not None and max(1, int(quota)) < (asked or allowed):
        share = _throttled(host, _source(cpu, "quota_cpus"))
        throttled = None if share is None else f"cpu.stat: throttled in {share:.0%} of the periods"
        yield _ROWS["CPU-04"].finding(
            cpu.id,
            (f"{_source(cpu, 'quota_cpus')}: {quota:g} CPUs", affinity, throttled, setting),
            severity="degrades" if share is None or share > 0.1 else "latent",
            asked=asked or allowed,
            quota=f"{quota:g}",
            threads=max(1, min(allowed, int(quota))),
        )
    elif allowed < min(logical, asked or logical):
        yield _ROWS["CPU-05"].finding(
            cpu.id,
            (affinity, f"/proc/cpuinfo: {logical} processors", setting),
            severity="degrades" if asked else "latent",
            affinity=allowed,
            logical=logical,
            asked=asked or logical,
            threads=allowed,
        )


def memory_policy(host: Host, devices: tuple[Device, ...], log: str) -> Iterator[Finding]:
    """CPU-06: fatal where vLLM binds, a warning to ignore where it only reads the policy."""
    cpu = _cpu(devices)
    device = cpu.id if cpu else None
    if died := matching_line(log, r"numa_migrate_pages failed\. errno: 1\b"):
        yield _ROWS["CPU-06"].finding(device, (died,))
    elif warned := matching_line(log, r"[gs]et_mempolicy: Operation not permitted"):
        yield _ROWS["CPU-06/warning"].finding(device, (warned,))
    else:
        bind = host.env("VLLM_CPU_OMP_THREADS_BIND")
        if bind not in {None, "auto", "nobind"} and _numa_calls_filtered(host.read_text("/proc/self/status") or ""):
            facts = (f"env VLLM_CPU_OMP_THREADS_BIND={bind}", "/proc/self/status: seccomp filter, no CAP_SYS_NICE")
            yield _ROWS["CPU-06"].finding(device, facts, severity="latent")


def kv_space(host: Host, devices: tuple[Device, ...], log: str) -> Iterator[Finding]:
    """CPU-07, for vLLM before 0.12 (vllm PR #29604 replaced the fixed 4 GiB by half of the memory)."""
    cpu = _cpu(devices)
    vllm = re.match(r"0\.(\d{1,4})\..*cpu", installed(host, "vllm") or "")
    old = f"vllm {vllm[0]}, env VLLM_CPU_KVCACHE_SPACE is not set" if vllm and int(vllm[1]) < 12 else None
    said = matching_line(log, r"VLLM_CPU_KVCACHE_SPACE.{0,80}using 4 by default")
    usable = cpu.memory.usable_bytes if cpu else None
    gib = None if usable is None else usable // 2 // GIB
    if (said or old) and (gib is None or gib > 4) and host.env("VLLM_CPU_KVCACHE_SPACE") is None:
        yield _ROWS["CPU-07"].finding(cpu.id if cpu else None, (old, said), gib="GIB" if gib is None else gib)


def numa_distance(host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CPU-08: a process kept away from its accelerator's node, or a CPU server spread over several."""
    cpu = _cpu(devices)
    paths = host.glob("/sys/devices/system/node/node[0-9]*/cpulist")
    nodes = {path.split("/")[-2][4:]: parse_cpu_list(host.read_text(path) or "") for path in paths}
    nodes = {node: cpus for node, cpus in nodes.items() if cpus}
    if cpu is None or len(nodes) < 2:
        return
    allowed = set(parse_cpu_list(cpu.details["affinity"] or ""))
    mine = [node for node, cpus in nodes.items() if allowed.intersection(cpus)]
    evidence = f"{_source(cpu, 'affinity')}: {cpu.details['affinity']}, on NUMA nodes {', '.join(mine)} of {len(nodes)}"
    others = [device for device in devices if device.vendor != cpu.vendor]
    for device in others:
        node = (host.read_text(f"/sys/bus/pci/devices/{device.id}/numa_node") or "").strip()
        if node in nodes and node not in mine:
            cause = f"The process runs on NUMA nodes {', '.join(mine)} and its accelerator hangs on node {node}."
            facts = (evidence, f"/sys/bus/pci/devices/{device.id}/numa_node: {node}")
            yield _ROWS["CPU-08"].finding(device.id, facts, severity="degrades", cause=cause, node=node)
    if not others and len(mine) > 1:
        cause = "Threads and memory spread over several NUMA nodes, and remote memory has about half the bandwidth."
        yield _ROWS["CPU-08"].finding(cpu.id, (evidence,), cause=cause, node=mine[0])


def slow_clock(host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CPU-09: only under load, since an idle processor lowers its clock by design."""
    cpu = _cpu(devices)
    clock = cpu.details.get("frequency_mhz") if cpu else None
    governor = (host.read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip()
    if cpu is None or not clock or not clock.get("current") or not clock.get("max") or governor != "powersave":
        return
    load = host.stats().load_1m or 0.0
    if load >= 0.5 * (cpu.details["logical_cpus"] or 1) and clock["current"] < 0.6 * clock["max"]:
        facts = (
            f"scaling_governor: {governor}",
            f"{_source(cpu, 'frequency_mhz')}: {clock}",
            f"/proc/loadavg: {load:g}",
        )
        yield _ROWS["CPU-09"].finding(cpu.id, facts, current=f"{clock['current']:g}", maximum=f"{clock['max']:g}")


CHECKS = (
    Check(ids=("CPU-01", "CPU-02"), run=missing_instructions),
    Check(ids=("CPU-03",), run=limited_instructions),
    Check(ids=("CPU-04", "CPU-05"), run=oversubscribed),
    Check(ids=("CPU-06",), run=memory_policy),
    Check(ids=("CPU-07",), run=kv_space),
    Check(ids=("CPU-08",), run=numa_distance),
    Check(ids=("CPU-09",), run=slow_clock),
)


def _cpu(devices: tuple[Device, ...]) -> Device | None:
    return next((device for device in devices if device.vendor == "cpu"), None)


def _isa(cpu: Device | None) -> frozenset[str]:
    return frozenset((cpu.details.get("isa") if cpu else None) or ())


def _source(cpu: Device, detail: str) -> str:
    return cpu.sources.get(f"/details/{detail}", detail)


def _numa_calls_filtered(status: str) -> bool:
    """Whether docker's default seccomp profile is likely in force, which allows them with CAP_SYS_NICE alone."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", status, re.MULTILINE)
    filtered = re.search(r"^Seccomp:\s*2$", status, re.MULTILINE)
    return bool(filtered and capabilities and not int(capabilities[1], 16) & _CAP_SYS_NICE)


def _throttled(host: Host, quota_file: str) -> float | None:
    """Share of the periods in which the group was stopped, from the cpu.stat beside its quota."""
    text = host.read_text(f"{quota_file.rpartition('/')[0]}/cpu.stat") or ""
    counts = dict(re.findall(r"^(nr_periods|nr_throttled) ([0-9]{1,18})$", text, re.MULTILINE))
    periods = int(counts.get("nr_periods", 0))
    return int(counts["nr_throttled"]) / periods if periods and "nr_throttled" in counts else None

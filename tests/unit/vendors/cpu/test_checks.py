from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.unit.detect.scenes import HOSTS, host_of, manager_of
from vllm_probe.core.device import Device, Finding
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.checks import (
    kv_space,
    limited_instructions,
    memory_policy,
    missing_instructions,
    numa_distance,
    oversubscribed,
    slow_clock,
)

CPUINFO = {"/proc/cpuinfo": "processor\t: 0\nflags\t: sse4_2 avx avx2\n"}
DEVICE = Device(id="gpu0", vendor="acme", kind="gpu", usable=True)
Run = Callable[[ReplayHost, tuple[Device, ...], str], Iterator[Finding]]


def _findings(run: Run, host: ReplayHost, log: str = "") -> list[Finding]:
    return list(run(host, manager_of(host).probe_devices().devices, log))


def test_an_idle_container_with_a_quota_is_warned_and_not_accused() -> None:
    stat = "nr_periods 50\nnr_throttled 1\n"
    files = CPUINFO | {"/sys/fs/cgroup/cpu.max": "100000 100000\n", "/sys/fs/cgroup/cpu.stat": stat}
    (finding,) = _findings(oversubscribed, host_of(files=files, env={"OMP_NUM_THREADS": "8"}))
    assert (finding.id, finding.severity) == ("CPU-04", "latent")
    assert "cpu.stat: throttled in 2% of the periods" in finding.evidence


def test_an_accelerator_on_another_numa_node_is_named_with_its_node() -> None:
    gpu = replace(DEVICE, id="0000:03:00.0")
    files = HOSTS["cpu-08-unbound"]["facts"]["files"] | {
        "/proc/self/status": "Cpus_allowed_list:\t0-7\n",
        "/sys/bus/pci/devices/0000:03:00.0/numa_node": "1\n",
    }
    host = host_of(files=files)
    (cpu,) = manager_of(host).probe_devices().devices
    (finding,) = numa_distance(host, (cpu, gpu), "")
    assert (finding.id, finding.severity, finding.device) == ("CPU-08", "degrades", "0000:03:00.0")
    assert finding.fix[0].command == "numactl -N 1 -m 1 vllm-probe serve"
    on_its_node = host_of(files=files | {"/proc/self/status": "Cpus_allowed_list:\t8-15\n"})
    assert list(numa_distance(on_its_node, (replace(cpu, details=cpu.details | {"affinity": "8-15"}), gpu), "")) == []


@pytest.mark.parametrize(
    "run",
    [missing_instructions, limited_instructions, oversubscribed, memory_policy, kv_space, numa_distance, slow_clock],
)
def test_a_machine_that_does_not_describe_its_processor_has_no_row(run: Run) -> None:
    assert _findings(run, host_of()) == []
    assert _findings(run, host_of(files={"/proc/cpuinfo": "nothing of use"})) == []


@pytest.mark.parametrize(("threads", "rows"), [("4", []), ("16", ["CPU-05"]), ("many", ["CPU-05"]), ("5", ["CPU-05"])])
def test_threads_are_counted_against_the_affinity(threads: str, rows: list[str]) -> None:
    files = HOSTS["cpu-05-cpuset"]["facts"]["files"]
    found = _findings(oversubscribed, host_of(files=files, env={"OMP_NUM_THREADS": threads}))
    assert [finding.id for finding in found] == rows


def test_an_illegal_instruction_on_arm_is_not_blamed_on_avx() -> None:
    host = host_of(files={"/proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\n"}, platform={"machine": "aarch64"})
    (finding,) = _findings(missing_instructions, host, "Illegal instruction (core dumped)")
    assert finding.id == "CPU-01"
    assert "AVX" not in f"{finding.cause} {finding.fix}"


def test_a_larger_kv_cache_is_proposed_only_where_it_would_be_larger() -> None:
    log = "WARNING Environment variable VLLM_CPU_KVCACHE_SPACE (GiB) for CPU backend is not set, using 4 by default."
    small = host_of(files=CPUINFO | {"/proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8388608 kB\n"})
    large = host_of(files=CPUINFO | {"/proc/meminfo": "MemTotal: 90000000 kB\nMemAvailable: 83886080 kB\n"})
    assert _findings(kv_space, small, log) == []
    assert _findings(kv_space, large) == []
    assert [finding.fix[0].command for finding in _findings(kv_space, large, log)] == [
        "export VLLM_CPU_KVCACHE_SPACE=40"
    ]

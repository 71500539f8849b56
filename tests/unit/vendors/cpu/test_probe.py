import pytest

from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.probe import probe

GIB = 1 << 30
CPU = "/sys/devices/system/cpu"


def run(files: dict[str, str], platform: dict[str, str] | None = None) -> ProbeResult:
    return probe(ReplayHost(Scene(facts=Facts(files=files, platform=platform or {}))))


def device(files: dict[str, str], platform: dict[str, str] | None = None) -> Device:
    (found,) = run(files, platform).devices
    return found


def server() -> dict[str, str]:
    """Four cores of two threads each, AVX-512, in a container with a quota of 3.5 CPUs and 8 GiB."""
    flags = "flags\t\t: sse4_2 avx avx2 fma avx512f avx512_vnni avx512_bf16 hypervisor\n"
    files = {
        "/proc/cpuinfo": "\n".join(
            f"processor\t: {n}\nmodel name\t: AMD EPYC 9354\ncpu MHz\t\t: 3250.5\n{flags}" for n in range(8)
        ),
        "/proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {32 * GIB // 1024} kB\n",
        "/proc/self/status": "Cpus_allowed_list:\t0-5\n",
        f"{CPU}/online": "0-7\n",
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/fs/cgroup/cpu.max": "350000 100000\n",
        "/sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        "/sys/fs/cgroup/memory.current": f"{2 * GIB}\n",
        f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "3100000\n",
        f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
    }
    for n in range(8):
        files[f"{CPU}/cpu{n}/topology/thread_siblings_list"] = f"{n % 4},{n % 4 + 4}\n"
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "32K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "0K")]
    ):
        folder = f"{CPU}/cpu0/cache/index{index}"
        files |= {f"{folder}/level": f"{level}\n", f"{folder}/type": f"{kind}\n", f"{folder}/size": f"{size}\n"}
    return files


def test_a_server_in_a_container_is_described_in_full() -> None:
    found = device(server())
    assert (found.id, found.vendor, found.kind, found.adapter) == ("cpu0", "cpu", "cpu", "cpu")
    assert (found.name, found.arch, found.usable) == ("AMD EPYC 9354", "avx512_bf16", True)
    assert codec.to_json(found.memory) == {
        "reported_bytes": 64 * GIB,
        "usable_bytes": 6 * GIB,
        "used_bytes": 32 * GIB,
        "kind": "shared",
    }
    assert found.details == {
        "isa": ["sse4_2", "avx", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "fma"],
        "model": "AMD EPYC 9354",
        "logical_cpus": 8,
        "physical_cores": 4,
        "smt": 2,
        "affinity": "0-5",
        "quota_cpus": 3.5,
        "threads": 3,
        "memory_limit_bytes": 8 * GIB,
        "numa_nodes": 2,
        "caches": {"l1d": 32 << 10, "l2": 1 << 20},
        "frequency_mhz": {"current": 3100.0, "max": 3800.0},
        "hypervisor": True,
    }


def test_every_value_has_a_source_and_every_null_a_reason() -> None:
    for files in (server(), {"/proc/cpuinfo": "processor\t: 0\n"}):
        result = run(files)
        found = result.devices[0]
        values = {f"/details/{key}": value for key, value in found.details.items()}
        values |= {
            f"/memory/{key}_bytes": getattr(found.memory, f"{key}_bytes") for key in ("reported", "usable", "used")
        }
        values |= {"/name": found.name, "/arch": found.arch, "/driver": found.driver}
        assert {pointer for pointer, value in values.items() if value is not None} == set(found.sources)
        assert {f"/0{pointer}" for pointer, value in values.items() if value is None} == set(result.unknown)
        assert all(result.unknown.values())


def test_a_clock_that_is_not_told_has_a_reason() -> None:
    result = run({"/proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 3000.000\n"})
    assert result.devices[0].details["frequency_mhz"] == {"current": 3000.0, "max": None}
    assert result.unknown["/0/details/frequency_mhz/max"] == "the system does not tell the max clock"


def test_threads_are_bounded_by_affinity_quota_and_cores() -> None:
    files = server()
    assert device(files).details["threads"] == 3
    assert device(files | {"/sys/fs/cgroup/cpu.max": "max 100000\n"}).details["threads"] == 4
    assert device(files | {"/sys/fs/cgroup/cpu.max": "50000 100000\n"}).details["threads"] == 1
    siblings = files | {"/proc/self/status": "Cpus_allowed_list:\t2,6\n"}
    assert device(siblings).details["threads"] == 1, "both processors are one core"


def test_a_quota_below_the_affinity_mask_is_a_limit() -> None:
    verdict = device(server()).verdict
    assert verdict.code == "limited"
    assert verdict.reason == (
        "the control group allows 3.5 of 6 visible CPUs, so more than 3 threads would be throttled"
    )
    assert device(server() | {"/sys/fs/cgroup/cpu.max": "600000 100000\n"}).verdict.code == "usable"


def test_a_processor_without_avx2_is_usable_with_limits() -> None:
    found = device({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon E7-4830 v2\nflags\t\t: sse4_2 avx f16c\n"})
    assert (found.arch, found.usable, found.verdict.code) == ("avx", True, "limited")
    assert "no AVX2" in found.verdict.reason


def test_cores_come_from_cpuinfo_where_sysfs_is_hidden() -> None:
    lines = (f"processor\t: {n}\nphysical id\t: 0\ncore id\t: {n % 2}\n" for n in range(4))
    found = device({"/proc/cpuinfo": "\n".join(lines)})
    assert (found.details["physical_cores"], found.details["smt"], found.details["threads"]) == (2, 2, 2)


def test_linux_without_cpuinfo_has_no_cpu_device() -> None:
    assert run({}).devices == ()


@pytest.mark.parametrize(("machine", "arch"), [("arm64", "neon"), ("x86_64", None)])
def test_another_system_is_described_from_its_statistics(machine: str, arch: str | None) -> None:
    files = {
        "/proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {4 * GIB // 1024} kB\n",
        "/proc/self/status": "Cpus_allowed_list:\t0-3\n",
    }
    found = device(files, {"system": "darwin", "machine": machine})
    assert (found.arch, found.memory.usable_bytes, found.details["threads"]) == (arch, 4 * GIB, 4)
    assert found.verdict.code == "usable"

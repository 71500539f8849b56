import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.limits import Limits, free_memory, parse_membership, parse_mounts, parse_quota, read_limits

V2_MOUNT = "31 23 0:28 {root} /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
GIB = 1 << 30


def limits(files: dict[str, str]) -> Limits:
    return read_limits(ReplayHost(Scene(facts=Facts(files=files))))


def test_without_control_groups_there_are_no_limits() -> None:
    assert limits({}) == Limits()


def test_a_bare_cgroup_folder_is_read_without_proc() -> None:
    found = limits({"/sys/fs/cgroup/cpu.max": "400000 100000\n"})
    assert (found.quota_cpus, found.quota_source) == (4.0, "/sys/fs/cgroup/cpu.max")


def test_the_tightest_quota_of_the_parents_counts() -> None:
    found = limits(
        {
            "/proc/self/cgroup": "0::/kubepods/pod1/app\n",
            "/proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "/sys/fs/cgroup/kubepods/pod1/app/cpu.max": "800000 100000\n",
            "/sys/fs/cgroup/kubepods/pod1/cpu.max": "250000 100000\n",
            "/sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
        }
    )
    assert (found.quota_cpus, found.quota_source) == (2.5, "/sys/fs/cgroup/kubepods/pod1/cpu.max")


def test_a_container_that_keeps_the_hosts_paths_reads_its_own_mount() -> None:
    found = limits(
        {
            "/proc/self/cgroup": "0::/docker/abc\n",
            "/proc/self/mountinfo": V2_MOUNT.format(root="/docker/abc"),
            "/sys/fs/cgroup/cpu.max": "150000 100000\n",
        }
    )
    assert found.quota_cpus == 1.5


@pytest.mark.parametrize("path", ["/../../elsewhere", "/other/abc"])
def test_a_group_outside_the_mounted_root_is_judged_by_the_mount_point(path: str) -> None:
    found = limits(
        {
            "/proc/self/cgroup": f"0::{path}\n",
            "/proc/self/mountinfo": V2_MOUNT.format(root="/docker/abc" if path == "/other/abc" else "/"),
            "/sys/fs/cgroup/cpu.max": "100000 100000\n",
        }
    )
    assert found.quota_cpus == 1.0


def test_version_1_has_a_hierarchy_for_each_controller() -> None:
    found = limits(
        {
            "/proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n",
            "/proc/self/mountinfo": (
                "33 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                "34 32 0:31 / /mnt/mem rw - cgroup cgroup rw,memory\n"
            ),
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "300000\n",
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/mnt/mem/job/memory.limit_in_bytes": f"{4 * GIB}\n",
            "/mnt/mem/job/memory.usage_in_bytes": f"{3 * GIB}\n",
            "/mnt/mem/job/memory.stat": f"cache 5\ninactive_file 1\ntotal_inactive_file {2 * GIB}\n",
            "/mnt/mem/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    assert found == Limits(
        quota_cpus=3.0,
        quota_source="/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us",
        memory_bytes=4 * GIB,
        memory_free_bytes=3 * GIB,
        memory_source="/mnt/mem/job/memory.limit_in_bytes",
        memory_free_source="/mnt/mem/job/memory.limit_in_bytes",
    )


def test_free_memory_is_the_tighter_of_the_machine_and_the_group() -> None:
    files = {
        "/proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\n",
        "/proc/self/cgroup": "0::/a/b\n",
        "/proc/self/mountinfo": V2_MOUNT.format(root="/"),
        "/sys/fs/cgroup/a/b/memory.max": f"{6 * GIB}\n",
        "/sys/fs/cgroup/a/b/memory.current": f"{1 * GIB}\n",
        "/sys/fs/cgroup/a/memory.max": f"{7 * GIB}\n",
        "/sys/fs/cgroup/a/memory.current": f"{5 * GIB}\n",
        "/sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 0\n",
    }
    host = ReplayHost(Scene(facts=Facts(files=files)))
    found = read_limits(host)
    assert found.memory_bytes == 6 * GIB
    assert found.memory_free_bytes == 2 * GIB, "the parent has less left than the group itself"
    free, source = free_memory(host.stats(), found)
    assert free == 2 * GIB
    assert source.startswith("/sys/fs/cgroup/a/memory.max")
    assert str(8 * GIB) in source, "the other figure is shown too"
    assert free_memory(host.stats(), Limits())[0] == 8 * GIB


@given(st.text() | st.from_regex(r"[0-9]{1,3}:[a-z,]*:/[a-z/.]*", fullmatch=True))
def test_any_membership_gives_an_answer(text: str) -> None:
    assert all(isinstance(path, str) for path in parse_membership(text).values())


@given(st.text() | st.from_regex(r"[0-9 ]* /[a-z]* /[a-z]* rw - cgroup2? [a-z]* [a-z,]*", fullmatch=True))
def test_any_mount_table_gives_an_answer(text: str) -> None:
    assert all(len(mount) == 2 for mount in parse_mounts(text).values())


@given(st.none() | st.text() | st.integers().map(str), st.none() | st.text() | st.integers().map(str))
def test_a_quota_is_positive_or_none(quota: str | None, period: str | None) -> None:
    found = parse_quota(quota, period)
    assert found is None or found > 0

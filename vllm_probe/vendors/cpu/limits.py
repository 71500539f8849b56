"""What the kernel lets this process have: CPU quota and memory limit of its control groups and their parents.

Sources: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, cgroups(7), and proc(5) for
/proc/self/mountinfo. A limit holds for everything below it, so the tightest on the way to the root counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_probe.core.system import Host, HostStats

_UNIFIED = ""
_DEFAULT_MOUNTS = {
    _UNIFIED: ("/", "/sys/fs/cgroup"),
    "cpu": ("/", "/sys/fs/cgroup/cpu"),
    "memory": ("/", "/sys/fs/cgroup/memory"),
}
_V1_UNLIMITED = 1 << 60  # version 1 writes the largest multiple of a page below 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits in force; null where there is none.

    Attributes:
        quota_cpus: processors' worth of time per period.
        quota_source: file that sets it.
        memory_bytes: most memory that the group may hold.
        memory_free_bytes: what is left of it, reclaimable file cache counted as free.
        memory_source: file that sets it.
        memory_free_source: file of the limit that leaves the least, which a parent may be.
    """

    quota_cpus: float | None = None
    quota_source: str | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_source: str | None = None
    memory_free_source: str | None = None


def read_limits(host: Host) -> Limits:
    """The tightest quota and memory limit above this process, in cgroup version 2, version 1 or both."""
    folders = _group_folders(host)
    quota, quota_source = min(_quotas(host, folders), default=(None, None))
    memory = tuple(_memory(host, folders))
    limit, _, source = min(memory, default=(None, None, None))
    free, free_source = min(((free, file) for _, free, file in memory), default=(None, None))
    return Limits(
        quota_cpus=quota,
        quota_source=quota_source,
        memory_bytes=limit,
        memory_free_bytes=free,
        memory_source=source,
        memory_free_source=free_source,
    )


def quota_statistics(host: Host) -> tuple[str, ...]:
    """Files that count the periods in which a quota above this process ran out, those of its group first."""
    folders = _group_folders(host)
    return tuple(f"{folder}/cpu.stat" for name in (_UNIFIED, "cpu") for folder in folders[name])


def free_memory(stats: HostStats, limits: Limits) -> tuple[int | None, str]:
    """Bytes that this process can still allocate, and where the tighter of the two figures came from."""
    available, left = stats.memory_available_bytes, limits.memory_free_bytes
    if left is not None and (available is None or left < available):
        return left, f"{limits.memory_free_source} less what the group holds (MemAvailable: {available} bytes)"
    return available, "memory available without swapping (MemAvailable)"


def parse_membership(text: str) -> dict[str, str]:
    """Controller to path from /proc/self/cgroup; the version-2 group is under the empty name."""
    lines = (line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2)
    return {name: path for _, names, path in lines for name in names.split(",")}


def parse_mounts(text: str) -> dict[str, tuple[str, str]]:
    """Controller to mounted root and mount point from /proc/self/mountinfo; version 2 is under the empty name."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        mount, _, system = line.partition(" - ")
        fields, kind = mount.split(), system.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        names = {"cgroup": kind[2].split(","), "cgroup2": [_UNIFIED]}.get(kind[0], [])
        for name in names:
            found.setdefault(name, (fields[3], fields[4]))
    return found


def parse_quota(quota: str | None, period: str | None) -> float | None:
    """Processors that a quota per period allows; null when unlimited."""
    if not all(re.fullmatch(r"[0-9]{1,15}", text or "") for text in (quota, period)) or not int(period or 0):
        return None
    return int(quota or 0) / int(period or 0) or None


def _group_folders(host: Host) -> dict[str, tuple[str, ...]]:
    """Controller to the folders of this process's group and its parents."""
    membership = parse_membership(host.read_text("/proc/self/cgroup") or "")
    mounts = _DEFAULT_MOUNTS | parse_mounts(host.read_text("/proc/self/mountinfo") or "")
    return {name: _folders(membership.get(name, "/"), *mounts[name]) for name in _DEFAULT_MOUNTS}


def _folders(path: str, root: str, point: str) -> tuple[str, ...]:
    """The group's folder and its parents up to the mount point.

    Inside a container without a cgroup namespace the path and the mounted root are both the host's, and inside
    one with a namespace both are `/`; a path outside the mounted root cannot be seen, the mount point is then all.
    """
    below = path.removeprefix(root.rstrip("/")) if f"{path}/".startswith(f"{root.rstrip('/')}/") else ""
    names = [name for name in below.split("/") if name]
    if ".." in names:
        names = []
    return tuple("/".join((point.rstrip("/"), *names[:depth])) for depth in range(len(names), -1, -1))


def _quotas(host: Host, folders: dict[str, tuple[str, ...]]) -> Iterator[tuple[float, str]]:
    for folder in folders[_UNIFIED]:
        words = [*(host.read_text(f"{folder}/cpu.max") or "").split(), None, None]
        if quota := parse_quota(words[0], words[1]):
            yield quota, f"{folder}/cpu.max"
    for folder in folders["cpu"]:
        allowed, period = (host.read_text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota := parse_quota((allowed or "").strip(), (period or "").strip()):
            yield quota, f"{folder}/cpu.cfs_quota_us"


def _memory(host: Host, folders: dict[str, tuple[str, ...]]) -> Iterator[tuple[int, int, str]]:
    """Limit, what is left of it, and the file. Inactive file cache is given back first, as kubelet counts too."""
    for name, limit_file, usage_file, cache in (
        (_UNIFIED, "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in folders[name]:
            limit = _integer(host.read_text(f"{folder}/{limit_file}"))
            if limit is None or limit >= _V1_UNLIMITED:
                continue
            used = _integer(host.read_text(f"{folder}/{usage_file}")) or 0
            line = re.search(rf"^{cache} ([0-9]+)$", host.read_text(f"{folder}/memory.stat") or "", re.MULTILINE)
            used -= _integer(line[1]) or 0 if line else 0
            yield limit, min(max(limit - used, 0), limit), f"{folder}/{limit_file}"


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\s*[0-9]{1,19}\s*", text) else None

"""What the mode of a device node allows, found without opening it."""

import re
from dataclasses import dataclass

from vllm_probe.core.system import FileStat, Host
from vllm_probe.core.values import JsonValue

_READ_WRITE = 0o6


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, by number."""

    uid: int | None
    groups: frozenset[int]


def read_identity(host: Host) -> Identity:
    """Who this process is on `host`."""
    return parse_identity(host.read_text("/proc/self/status") or "")


def read_own_pid(host: Host) -> int | None:
    """Number of this process."""
    match = re.search(r"^Pid:\s*([0-9]{1,10})$", host.read_text("/proc/self/status") or "", re.MULTILINE)
    return int(match[1]) if match else None


def parse_identity(status: str) -> Identity:
    """Effective user and all groups in the text of `/proc/self/status`."""
    fields = dict(re.findall(r"^(Uid|Gid|Groups):([0-9 \t]*)$", status, re.MULTILINE))
    uid, gid, groups = (re.findall(r"[0-9]{1,10}", fields.get(name, "")) for name in ("Uid", "Gid", "Groups"))
    return Identity(int(uid[1]) if len(uid) > 1 else None, frozenset(map(int, (*gid[1:2], *groups))))


def group_word(host: Host, number: str | None, node: str) -> str:
    """The group of `node` as a shell on the host takes it: its name, else `number`, else what asks the node for it."""
    if number is None:
        return f'"$(stat -c %G {node})"'
    match = re.search(rf"^([\w-]+):[^:]*:{number}:", host.read_text("/etc/group") or "", re.MULTILINE)
    return match[1] if match else number


def mode_allows(stat: FileStat, identity: Identity) -> bool:
    """Whether permission bits alone let `identity` read and write."""
    if identity.uid in {0, stat.uid}:
        return identity.uid == 0 or stat.mode >> 6 & _READ_WRITE == _READ_WRITE
    return (stat.mode >> 3 if stat.gid in identity.groups else stat.mode) & _READ_WRITE == _READ_WRITE


def node_facts(host: Host, node: str, identity: Identity) -> dict[str, JsonValue]:
    """Path, mode, group and state of `node`: `absent`, `denied` by its mode, or `not opened`."""
    stat = host.stat(node)
    if stat is None:
        return {"path": node, "state": "absent"}
    allowed = identity.uid is None or mode_allows(stat, identity)
    return {
        "path": node,
        "mode": f"{stat.mode:04o}",
        "gid": stat.gid,
        "state": "not opened" if allowed else "denied",
    }

"""Why a device node does not open, and what a container must be given to open it.

ENOENT, EACCES and EPERM separate three faults with three cures; numeric groups count, names lie inside containers.
"""

import errno
import re
from enum import StrEnum

from vllm_probe.core.system import Host
from vllm_probe.vendors.nodes import mode_allows, read_identity

_NOBODY = 65534  # an unmapped group of a user namespace
_MAJORS = {"drm": "226", "nvidia": "195"}  # Documentation/admin-guide/devices.txt; others are dynamic


class Refusal(StrEnum):
    """What keeps this process from a node, in words for the evidence."""

    ABSENT = "not there (ENOENT)"
    CGROUP = "forbidden by the device cgroup (EPERM)"
    GROUP = "forbidden by its mode and group (EACCES)"
    LABEL = "forbidden by SELinux (EACCES, though mode and group allow it)"


def refusal(host: Host, node: str) -> Refusal | None:
    """Why `node` does not open, null when it does or when the driver behind it is at fault."""
    number = host.open_errno(node)
    if number == errno.EACCES:
        stat, identity = host.stat(node), read_identity(host)
        enforcing = (host.read_text("/sys/fs/selinux/enforce") or "").strip() == "1"
        return Refusal.LABEL if enforcing and stat and mode_allows(stat, identity) else Refusal.GROUP
    return {errno.ENOENT: Refusal.ABSENT, errno.EPERM: Refusal.CGROUP}.get(number)


def group_number(host: Host, node: str) -> str | None:
    """Numeric group of `node`, null when it is not there or a user namespace hides the number."""
    stat = host.stat(node)
    return None if stat is None or stat.gid == _NOBODY else str(stat.gid)


def npu_options(host: Host, reason: str) -> str:
    """`--device` for each Ascend NPU that is here, and for the one that `reason` says is not, `N` for its number."""
    here = host.glob("/dev/davinci[0-9]*")
    named = tuple(re.findall(r"/dev/davinci[0-9]+\b", reason))
    lacking = named or (() if here and "the device" not in reason else ("/dev/davinciN",))
    return " ".join(f"--device {node}" for node in dict.fromkeys((*here, *lacking)))


def lxc_lines(host: Host, nodes: tuple[str, ...]) -> str:
    """Configuration that gives an LXC container `nodes`; a major that cannot be seen here stays `MAJOR`."""
    lines = []
    for node in nodes:
        folder = node == "/dev/dri"
        stat, name = host.stat(node), "drm" if folder else node.rpartition("/")[2].rstrip("0123456789")
        match = re.search(rf"^ *([0-9]+) {name}$", host.read_text("/proc/devices") or "", re.MULTILINE)
        major = stat.device[0] if stat and stat.device else match[1] if match else _MAJORS.get(name, "MAJOR")
        lines += [
            f"lxc.cgroup2.devices.allow: c {major}:* rwm",
            f"lxc.mount.entry: {node} {node[1:]} none bind,optional,create={'dir' if folder else 'file'}",
        ]
    return "\n".join(dict.fromkeys(lines))

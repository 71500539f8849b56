"""Processes that hold a GPU, from what the kernel tells of their open nodes.

https://docs.kernel.org/gpu/drm-usage-stats.html; of other users' processes only root is told.
"""

import re
from collections.abc import Collection, Mapping

from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue

_FIELD = re.compile(r"^drm-([a-z0-9-]{1,40}):[ \t]*(\S{1,40})(?: ([KM]iB))?[ \t]*$", re.MULTILINE)
_LOCAL = re.compile(r"(resident|total)-((?:vram|local)\d{1,2})")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "": 1}


def read_clients(host: Host, address: str) -> list[dict[str, JsonValue]]:
    """`pid`, `bytes` of the GPU's own memory (null where the driver does not tell) and `kind`, by process."""
    held: dict[int, dict[str, int | None]] = {}
    for path in host.glob("/proc/[0-9]*/fd/[0-9]*"):
        if not (host.readlink(path) or "").startswith("/dev/dri/"):
            continue
        client = parse_client(host.read_text(path.replace("/fd/", "/fdinfo/")) or "")
        if client.get("pdev") == address:
            pid = int(path.split("/")[2])
            held.setdefault(pid, {})[str(client.get("client-id", path))] = parse_bytes(client)
    return [{"pid": pid, "bytes": _sum(sizes.values()), "kind": "unknown"} for pid, sizes in sorted(held.items())]


def parse_client(text: str) -> dict[str, str]:
    """What the kernel says of one open node, without the `drm-` of each key and with units made bytes."""
    found: dict[str, str] = {}
    for key, value, unit in _FIELD.findall(text):
        size = re.fullmatch(r"\d{1,18}", value)
        found[key] = str(int(value) * _UNITS[unit]) if size else value
    return found


def parse_bytes(client: Mapping[str, str]) -> int | None:
    """Bytes of the GPU's own memory that an open node holds, null where nothing tells."""
    sizes: dict[str, dict[str, int]] = {"resident": {}, "total": {}}
    for key, value in client.items():
        match = _LOCAL.fullmatch(key)
        if match and value.isdecimal() and value.isascii():
            sizes[match[1]][match[2]] = int(value)
    told = sizes["resident"] or sizes["total"]
    return sum(told.values()) if told else None


def _sum(sizes: Collection[int | None]) -> int | None:
    return None if None in sizes else sum(size for size in sizes if size is not None)

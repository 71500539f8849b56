"""Layer 1: what the kernel drivers i915 and xe say through a render node: version and memory regions.

Layouts and numbers: include/uapi/drm/{drm,i915_drm,xe_drm}.h of Linux, for 64-bit processes.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from vllm_probe.core.system import Host

VERSION = 0xC0406400
"""DRM_IOCTL_VERSION."""

I915_QUERY = 0xC0106479
"""DRM_IOCTL_I915_QUERY."""

XE_DEVICE_QUERY = 0xC0286440
"""DRM_IOCTL_XE_DEVICE_QUERY."""

VERSION_LAYOUT = struct.Struct("=iii4xQQQQQQ")
"""drm_version: major, minor, patch, then length and address of name, date and description."""

I915_LAYOUT = struct.Struct("=IIQ")
"""drm_i915_query: num_items, flags, items_ptr."""

I915_ITEM = struct.Struct("=QiIQ")
"""drm_i915_query_item: query_id, length, flags, data_ptr."""

I915_HEADER = struct.Struct("=I12x")
"""drm_i915_query_memory_regions: num_regions."""

I915_REGION = struct.Struct("=HH4xQQQQ48x")
"""drm_i915_memory_region_info: class, instance, probed, unallocated, and the same of what the CPU can reach."""

XE_LAYOUT = struct.Struct("=QIIQ16x")
"""drm_xe_device_query: extensions, query, size, data."""

XE_HEADER = struct.Struct("=I4x")
"""drm_xe_query_mem_regions and drm_xe_query_config: how many follow."""

XE_REGION = struct.Struct("=HHIQQQQ48x")
"""drm_xe_mem_region: class, instance, page size, total, used, and the same of what the CPU can reach."""

_MEMORY_REGIONS, _XE_REGIONS, _XE_CONFIG = 4, 1, 2
_HAS_VRAM = 1
_NAME_BYTES = 64
_UNKNOWN = (0, 2**64 - 1)
_MOST_BYTES = 1 << 16


class Region(NamedTuple):
    """A memory that the driver places buffers in; unknown is null.

    Attributes:
        local: whether it is the device's own, not the machine's.
        total: bytes.
        used: bytes in use, by anybody.
        reachable: bytes that the CPU can reach.
    """

    local: bool
    total: int | None
    used: int | None
    reachable: int | None


class Memory(NamedTuple):
    """What a driver says of all memory of one device; unknown is null.

    Attributes:
        local: whether the device has memory of its own; if not, the sizes are the machine's.
        total: bytes, of all tiles.
        used: bytes in use.
        reachable: bytes that the CPU can reach.
        tiles: memories of its own.
    """

    local: bool
    total: int | None
    used: int | None
    reachable: int | None
    tiles: int


def version(host: Host, node: str) -> tuple[str, str] | None:
    """Name and version of the driver behind `node`, null where it does not tell."""
    size = VERSION_LAYOUT.size
    asked = VERSION_LAYOUT.pack(0, 0, 0, _NAME_BYTES, size, 0, 0, 0, 0)
    answer = host.ioctl(node, VERSION, asked + bytes(_NAME_BYTES), (24,))
    if answer is None or len(answer) < size:
        return None
    major, minor, patch, length, *_ = VERSION_LAYOUT.unpack_from(answer)
    name = answer[size:][: min(length, _NAME_BYTES)].decode("ascii", "replace").strip("\0")
    return (name, f"{major}.{minor}.{patch}") if name else None


def memory(host: Host, node: str, driver: str) -> Memory | None:
    """Memory of the device behind `node`, null where `driver` is another than i915 and xe, or refuses."""
    if driver == "i915":
        return _summed(parse_i915(_i915(host, node)))
    if driver == "xe":
        return _summed(parse_xe(_xe(host, node, _XE_REGIONS))) or _by_config(_xe(host, node, _XE_CONFIG))
    return None


def parse_i915(data: bytes) -> tuple[Region, ...]:
    """Regions in a reply of i915; without CAP_PERFMON it says of each that all is free, so that tells nothing."""
    rows = list(_rows(data, I915_HEADER, I915_REGION))
    counted = any(free not in (size, *_UNKNOWN) for _, _, size, free, _, _ in rows)
    return tuple(
        Region(
            local=class_ == 1,
            total=_known(size),
            used=size - free if counted and size not in _UNKNOWN and free <= size else None,
            reachable=_known(reachable),
        )
        for class_, _, size, free, reachable, _ in rows
    )


def parse_xe(data: bytes) -> tuple[Region, ...]:
    """Regions in a reply of xe; without CAP_PERFMON it says that none is in use, which tells nothing."""
    rows = list(_rows(data, XE_HEADER, XE_REGION))
    counted = any(used for _, _, _, _, used, _, _ in rows)
    return tuple(
        Region(
            local=class_ == 1,
            total=_known(size),
            used=used if counted and used <= size else None,
            reachable=_known(reachable),
        )
        for class_, _, _, size, used, reachable, _ in rows
    )


def parse_has_vram(data: bytes) -> bool | None:
    """Whether xe's configuration says that the device has memory of its own, null where it does not tell."""
    count = XE_HEADER.unpack_from(data)[0] if len(data) >= XE_HEADER.size else 0
    if count < 2 or len(data) < XE_HEADER.size + 16:
        return None
    return bool(struct.unpack_from("=Q", data, XE_HEADER.size + 8)[0] & _HAS_VRAM)


def _by_config(data: bytes) -> Memory | None:
    """Whose memory it is, where that is all that xe tells."""
    local = parse_has_vram(data)
    return None if local is None else Memory(local=local, total=None, used=None, reachable=None, tiles=0)


def _i915(host: Host, node: str) -> bytes:
    """The reply to a query whose size is asked for first; empty where the driver refuses."""
    query = I915_LAYOUT.pack(1, 0, I915_LAYOUT.size)
    place = I915_LAYOUT.size + I915_ITEM.size
    asked = host.ioctl(node, I915_QUERY, query + I915_ITEM.pack(_MEMORY_REGIONS, 0, 0, 0), (8,))
    length = I915_ITEM.unpack_from(asked, I915_LAYOUT.size)[1] if asked and len(asked) >= place else 0
    if not 0 < length <= _MOST_BYTES:  # a negative length is an errno
        return b""
    item = I915_ITEM.pack(_MEMORY_REGIONS, length, 0, place)
    told = host.ioctl(node, I915_QUERY, query + item + bytes(length), (8, I915_LAYOUT.size + 16)) or b""
    length = I915_ITEM.unpack_from(told, I915_LAYOUT.size)[1] if len(told) >= place else 0
    return told[place : place + max(length, 0)]


def _xe(host: Host, node: str, query: int) -> bytes:
    """As `_i915`."""
    place = XE_LAYOUT.size
    asked = host.ioctl(node, XE_DEVICE_QUERY, XE_LAYOUT.pack(0, query, 0, 0))
    size = XE_LAYOUT.unpack_from(asked)[2] if asked and len(asked) >= place else 0
    if not 0 < size <= _MOST_BYTES:
        return b""
    told = host.ioctl(node, XE_DEVICE_QUERY, XE_LAYOUT.pack(0, query, size, place) + bytes(size), (16,))
    return (told or b"")[place:]


def _rows(data: bytes, header: struct.Struct, row: struct.Struct) -> Iterator[tuple[int, ...]]:
    """As many rows as the header says and the reply holds."""
    count = header.unpack_from(data)[0] if len(data) >= header.size else 0
    for number in range(min(count, (len(data) - header.size) // row.size)):
        yield row.unpack_from(data, header.size + number * row.size)


def _known(size: int) -> int | None:
    return None if size in _UNKNOWN else size


def _summed(regions: tuple[Region, ...]) -> Memory | None:
    own = [region for region in regions if region.local]
    kept = own or regions
    if not kept:
        return None
    return Memory(
        local=bool(own),
        total=_sum([region.total for region in kept]),
        used=_sum([region.used for region in kept]),
        reachable=_sum([region.reachable for region in own]) if own else None,
        tiles=len(own),
    )


def _sum(sizes: list[int | None]) -> int | None:
    return None if None in sizes else sum(size for size in sizes if size is not None)

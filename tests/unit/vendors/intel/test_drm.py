"""The kernel's layouts, pinned, and what is made of its replies."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from vllm_probe.vendors.intel import drm

MIB = 1 << 20
NODE = "/dev/dri/renderD128"
ALL_ONES = 2**64 - 1


def i915_reply(*regions: tuple[int, int, int]) -> bytes:
    """Class, probed and unallocated of each region, at the offsets of i915_drm.h."""
    reply = bytearray(16 + 88 * len(regions))
    struct.pack_into("<I", reply, 0, len(regions))
    for number, (class_, probed, unallocated) in enumerate(regions):
        at = 16 + 88 * number
        struct.pack_into("<H", reply, at, class_)
        struct.pack_into("<QQ", reply, at + 8, probed, unallocated)
        struct.pack_into("<Q", reply, at + 24, probed // 4)
    return bytes(reply)


def xe_reply(*regions: tuple[int, int, int]) -> bytes:
    """Class, total and used of each region, at the offsets of xe_drm.h."""
    reply = bytearray(8 + 88 * len(regions))
    struct.pack_into("<I", reply, 0, len(regions))
    for number, (class_, total, used) in enumerate(regions):
        at = 8 + 88 * number
        struct.pack_into("<H", reply, at, class_)
        struct.pack_into("<QQQ", reply, at + 8, total, used, total // 4)
    return bytes(reply)


def test_numbers_of_requests_hold_direction_size_letter_and_function_as_linux_has_them() -> None:
    for request, size, function in (
        (drm.VERSION, 64, 0x00),
        (drm.I915_QUERY, 16, 0x40 + 0x39),
        (drm.XE_DEVICE_QUERY, 40, 0x40 + 0x00),
    ):
        assert request == 3 << 30 | size << 16 | ord("d") << 8 | function


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (drm.VERSION_LAYOUT, 64),
        (drm.I915_LAYOUT, 16),
        (drm.I915_ITEM, 24),
        (drm.I915_HEADER, 16),
        (drm.I915_REGION, 88),
        (drm.XE_LAYOUT, 40),
        (drm.XE_HEADER, 8),
        (drm.XE_REGION, 88),
    ],
)
def test_structures_have_the_sizes_of_the_kernel(layout: struct.Struct, size: int) -> None:
    assert layout.size == size


def test_fields_stand_where_the_kernel_has_them() -> None:
    version = drm.VERSION_LAYOUT.pack(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert struct.unpack_from("<III", version, 0) == (1, 2, 3)
    assert struct.unpack_from("<6Q", version, 16) == (4, 5, 6, 7, 8, 9)
    query, item = drm.I915_LAYOUT.pack(1, 2, 3), drm.I915_ITEM.pack(4, -22, 5, 6)
    assert struct.unpack("<IIQ", query) == (1, 2, 3)
    assert struct.unpack_from("<Q", item, 0) + struct.unpack_from("<i", item, 8) == (4, -22)
    assert struct.unpack_from("<I", item, 12) + struct.unpack_from("<Q", item, 16) == (5, 6)
    asked = drm.XE_LAYOUT.pack(1, 2, 3, 4)
    assert struct.unpack_from("<Q", asked, 0) + struct.unpack_from("<II", asked, 8) == (1, 2, 3)
    assert struct.unpack_from("<Q", asked, 16) == (4,)
    assert asked[24:] == bytes(16)


def test_i915_tells_what_is_in_use_only_where_something_is_not_free() -> None:
    machine, card = drm.parse_i915(i915_reply((0, 100 * MIB, 100 * MIB), (1, 80 * MIB, 80 * MIB)))
    assert (card.local, card.total, card.used, card.reachable) == (True, 80 * MIB, None, 20 * MIB)
    assert not machine.local
    _, card = drm.parse_i915(i915_reply((0, 100 * MIB, 100 * MIB), (1, 80 * MIB, 60 * MIB)))
    assert card.used == 20 * MIB


@pytest.mark.parametrize("unknown", [0, ALL_ONES])
def test_a_size_that_i915_does_not_know_is_null(unknown: int) -> None:
    (region,) = drm.parse_i915(i915_reply((1, unknown, unknown)))
    assert (region.total, region.used) == (None, None)


def test_xe_tells_what_is_in_use_only_where_something_is() -> None:
    assert [region.used for region in drm.parse_xe(xe_reply((0, 100, 0), (1, 80, 0)))] == [None, None]
    assert [region.used for region in drm.parse_xe(xe_reply((0, 100, 0), (1, 80, 8), (1, 80, 0)))] == [0, 8, 0]


def test_a_reply_that_is_cut_gives_the_regions_that_it_holds() -> None:
    whole = xe_reply((0, 100, 0), (1, 80, 0))
    assert len(drm.parse_xe(whole[:-1])) == 1
    assert drm.parse_xe(whole[:7]) == drm.parse_xe(b"") == ()


def test_the_configuration_of_xe_tells_whether_there_is_own_memory() -> None:
    def config(flags: int, count: int = 2) -> bytes:
        return struct.pack("<IIQQ", count, 0, 0xE20B, flags)

    assert drm.parse_has_vram(config(1)) is True
    assert drm.parse_has_vram(config(6)) is False
    assert drm.parse_has_vram(config(1, count=1)) is None
    assert drm.parse_has_vram(b"") is None


@given(st.binary(max_size=300))
def test_any_reply_gives_sizes_that_are_known_or_null(data: bytes) -> None:
    for region in (*drm.parse_i915(data), *drm.parse_xe(data)):
        assert region.total is None or 0 < region.total < ALL_ONES
        assert region.used is None or 0 <= region.used <= (region.total or 0)
    drm.parse_has_vram(data)


def i915_ioctls(length: int, reply: bytes) -> dict[str, str]:
    query = struct.pack("<IIQ", 1, 0, 16)
    asked = query + struct.pack("<QiIQ", 4, 0, 0, 0)
    sized = query + struct.pack("<QiIQ", 4, length, 0, 0)
    filled = query + struct.pack("<QiIQ", 4, length, 0, 40)
    head = f"{NODE} {drm.I915_QUERY:#x}"
    return {
        f"{head} {asked.hex()}": sized.hex(),
        f"{head} {(filled + bytes(length)).hex()}": (filled + reply).hex(),
    }


def test_i915_is_asked_for_the_size_first_and_tiles_are_summed() -> None:
    reply = i915_reply((0, 100 * MIB, 100 * MIB), (1, 80 * MIB, 70 * MIB), (1, 80 * MIB, 80 * MIB))
    found = drm.memory(host_of(ioctls=i915_ioctls(len(reply), reply)), NODE, "i915")
    assert found == drm.Memory(local=True, total=160 * MIB, used=10 * MIB, reachable=40 * MIB, tiles=2)


@pytest.mark.parametrize("length", [-22, 0, 1 << 30])
def test_a_length_that_is_none_is_a_refusal(length: int) -> None:
    query = struct.pack("<IIQ", 1, 0, 16)
    asked, sized = (query + struct.pack("<QiIQ", 4, each, 0, 0) for each in (0, length))
    told = {f"{NODE} {drm.I915_QUERY:#x} {asked.hex()}": sized.hex()}
    assert drm.memory(host_of(ioctls=told), NODE, "i915") is None


def test_a_driver_that_is_neither_i915_nor_xe_is_not_asked() -> None:
    assert drm.memory(host_of(), NODE, "vfio-pci") is None
    assert drm.version(host_of(), NODE) is None


def xe_ioctls(query: int, reply: bytes) -> dict[str, str]:
    head = f"{NODE} {drm.XE_DEVICE_QUERY:#x}"
    asked, sized, filled = (
        struct.pack("<QIIQ16x", 0, query, size, place) for size, place in ((0, 0), (len(reply), 0), (len(reply), 40))
    )
    return {
        f"{head} {asked.hex()}": sized.hex(),
        f"{head} {(filled + bytes(len(reply))).hex()}": (filled + reply).hex(),
    }


def test_xe_is_asked_for_the_size_first_and_for_its_configuration_where_it_tells_no_regions() -> None:
    regions = xe_ioctls(1, xe_reply((0, 100, 4), (1, 80, 8), (1, 80, 0)))
    config = xe_ioctls(2, struct.pack("<II4Q", 4, 0, 0xE20B, 1, 65536, 48))
    assert drm.memory(host_of(ioctls=regions | config), NODE, "xe") == drm.Memory(
        local=True, total=160, used=8, reachable=40, tiles=2
    )
    assert drm.memory(host_of(ioctls=config), NODE, "xe") == drm.Memory(
        local=True, total=None, used=None, reachable=None, tiles=0
    )
    assert drm.memory(host_of(), NODE, "xe") is None

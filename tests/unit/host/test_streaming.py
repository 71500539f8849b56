import ctypes
import platform

import pytest

from vllm_probe.host import streaming
from vllm_probe.host.streaming import copy_past_caches

SIZE = 4096


def aligned(fill: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(fill * (SIZE + 64), SIZE + 64)
    address = ctypes.addressof(buffer)
    return buffer, address + -address % 64


def content(address: int, size: int = SIZE) -> bytes:
    return ctypes.string_at(address, size)


def test_the_loop_jumps_back_to_its_first_load() -> None:
    end = streaming._CODE.index(b"\x75\xd4") + 2
    assert end + int.from_bytes(b"\xd4", "little", signed=True) == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 code")
@pytest.mark.parametrize("nbytes", [64, 128, SIZE])
def test_exactly_the_bytes_that_are_asked_for_are_copied(nbytes: int) -> None:
    _source, source = aligned(b"s")
    _target, target = aligned(b"t")
    for position in range(SIZE):
        ctypes.memset(source + position, position % 251, 1)
    if not copy_past_caches(target, source, nbytes):
        pytest.skip("executable memory is refused here")
    assert content(target, nbytes) == content(source, nbytes)
    assert content(target + nbytes, SIZE - nbytes) == b"t" * (SIZE - nbytes)


@pytest.mark.parametrize(("shift", "nbytes"), [(0, 0), (0, 63), (0, -64), (8, 64)])
def test_parts_of_lines_and_unaligned_targets_are_refused_untouched(shift: int, nbytes: int) -> None:
    _source, source = aligned(b"s")
    _target, target = aligned(b"t")
    assert not copy_past_caches(target + shift, source, nbytes)
    assert content(target) == b"t" * SIZE

import ctypes
import platform
from pathlib import Path

import pytest

from vllm_probe.host import streaming
from vllm_probe.host.streaming import copy_past_caches

SIZE = 4096


def aligned(fill: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(fill * (SIZE + 128), SIZE + 128)
    address = ctypes.addressof(buffer)
    return buffer, address + -address % 64


def content(address: int, size: int = SIZE) -> bytes:
    return ctypes.string_at(address, size)


@pytest.mark.parametrize(("width", "jump"), [(16, b"\x75\xd4"), (32, b"\x75\xe0"), (64, b"\x75\xe6")])
def test_the_loops_jump_back_to_their_first_load(width: int, jump: bytes) -> None:
    end = streaming._CODE[width].index(jump) + 2
    assert end + int.from_bytes(jump[1:], "little", signed=True) == 0


def test_the_question_to_the_processor_jumps_to_its_end() -> None:
    for jump in (b"\x73\x1c", b"\x73\x16"):
        assert streaming._ASK.index(jump) + 2 + jump[1] == len(streaming._ASK) - len(b"\x5b\xc3")


@pytest.mark.parametrize(
    ("leaf1_ecx", "xcr0", "leaf7_ebx", "widths"),
    [
        (3 << 27, 0xE7, 1 << 16, (64, 32, 16)),
        (3 << 27, 0x07, 1 << 16, (32, 16)),  # the system keeps no zmm registers
        (3 << 27, 0xE7, 0, (32, 16)),
        (3 << 27, 0x03, 1 << 16, (16,)),
        (1 << 28, 0, 0, (16,)),  # nobody told what the system keeps
        (0, 0, 0, (16,)),
    ],
)
def test_a_store_is_as_wide_as_processor_and_system_allow(
    leaf1_ecx: int, xcr0: int, leaf7_ebx: int, widths: tuple[int, ...]
) -> None:
    assert streaming._widths(leaf1_ecx, xcr0, leaf7_ebx) == widths


@pytest.mark.skipif(platform.system() != "Linux" or platform.machine() != "x86_64", reason="x86-64 Linux")
def test_the_processor_answers_as_linux_says() -> None:
    if not streaming.store_bytes():
        pytest.skip("executable memory is refused here")
    flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    wide = [width for width, flag in ((64, "avx512f"), (32, "avx")) if flag in flags]
    assert streaming.store_bytes() == (*wide, 16)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 code")
@pytest.mark.parametrize("nbytes", [64, 128, SIZE])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_exactly_the_bytes_that_are_asked_for_are_copied(width: int, nbytes: int) -> None:
    if width not in streaming.store_bytes():
        pytest.skip(f"no stores of {width} bytes here")
    _source, source = aligned(b"s")
    _target, target = aligned(b"t")
    for position in range(SIZE):
        ctypes.memset(source + position, position % 251, 1)
    target += width % 64  # aligned to this width and to no wider one
    assert copy_past_caches(target, source, nbytes)
    assert content(target, nbytes) == content(source, nbytes)
    assert content(target + nbytes, SIZE - nbytes) == b"t" * (SIZE - nbytes)


@pytest.mark.parametrize(("shift", "nbytes"), [(0, 0), (0, 63), (0, -64), (8, 64)])
def test_parts_of_lines_and_unaligned_targets_are_refused_untouched(shift: int, nbytes: int) -> None:
    _source, source = aligned(b"s")
    _target, target = aligned(b"t")
    assert not copy_past_caches(target + shift, source, nbytes)
    assert content(target) == b"t" * SIZE

"""Where glibc puts weights and what steps allocate."""

import ctypes
import mmap
import sys
from pathlib import Path

import pytest
import torch

from tests.vendors.test_cpu_adapter import opened

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
MIB = 1 << 20


class Usage(ctypes.Structure):
    """struct mallinfo2 of malloc.h; field 4 is hblkhd, bytes in mappings of their own."""

    _fields_ = tuple((f"field_{index}", ctypes.c_size_t) for index in range(10))


def mapped_bytes() -> int:
    """Bytes of allocations that have a mapping of their own."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = Usage
    return int(libc.mallinfo2().field_4)


def test_weights_stand_alone_and_what_steps_allocate_does_not() -> None:
    adapter = opened()
    before = mapped_bytes()
    with adapter.loading():
        weights = [torch.empty(512 * MIB, dtype=torch.int8) for _ in range(4)]  # more than other tests have left free
        assert mapped_bytes() - before >= 2048 * MIB
    loaded = mapped_bytes()
    scratch = torch.empty(16 * MIB, dtype=torch.int8)
    assert mapped_bytes() == loaded
    del weights, scratch
    assert mapped_bytes() <= before
    adapter.close()


def test_what_is_freed_while_loading_is_given_back() -> None:
    adapter = opened()
    with adapter.loading():
        small = [torch.empty(MIB // 16, dtype=torch.int8).fill_(1) for _ in range(1024)]
        last = torch.empty(MIB // 16, dtype=torch.int8)
        del small
        held = resident_bytes()
    assert held - resident_bytes() > 32 * MIB
    assert len(last)
    adapter.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

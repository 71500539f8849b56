"""The clock of a processor core, from the time of a loop whose cycles are known.

A 32-bit `imul` has to wait for the one before, and takes 3 cycles on Intel since Sandy Bridge (2011) and AMD since Zen
(2017): Agner Fog, https://www.agner.org/optimize/instruction_tables.pdf, and https://uops.info. Neither renaming nor
fusion shortens such a chain, as they do with `add` and `mov` on newer cores.
"""

import ctypes
import mmap
import os
import platform
import time

_LATENCY = 3
_CHAIN = 32
_TURNS = 4000
_TRIES = 3
_CODE = (
    b"\x89\xf8"  # mov eax, edi
    + b"\x0f\xaf\xc0" * _CHAIN  # imul eax, eax
    + b"\xff\xcf"  # dec edi
    + b"\x75\x9c"  # jnz to the first imul, 100 bytes back
    + b"\xc3"  # ret
)


def measure_clock_mhz() -> float | None:
    """The clock of the core that this thread is on, in about 0.3 ms; null where code cannot be mapped.

    Only for x86-64 with the System V calling convention. What interrupts the thread lengthens the loop, so the shortest
    of three counts.
    """
    if os.name != "posix" or platform.machine().lower() not in {"x86_64", "amd64"}:
        return None
    try:
        with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
            page.write(_CODE)
            place = ctypes.c_char.from_buffer(page)
            loop = ctypes.CFUNCTYPE(None, ctypes.c_uint)(ctypes.addressof(place))
            seconds = min(_seconds(loop) for _ in range(_TRIES))
            del place, loop
    except OSError:
        return None
    return _LATENCY * _CHAIN * _TURNS / seconds / 1e6 if seconds > 0 else None


def _seconds(loop: "ctypes._FuncPointer") -> float:
    begin = time.perf_counter()
    loop(_TURNS)
    return time.perf_counter() - begin

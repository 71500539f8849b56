"""The clock of a processor core, from the time of a loop whose cycles are known.

A 32-bit `imul` has to wait for the one before, and takes 3 cycles on Intel since Sandy Bridge (2011) and AMD since Zen
(2017): Agner Fog, https://www.agner.org/optimize/instruction_tables.pdf, and https://uops.info. Neither renaming nor
fusion shortens such a chain, as they do with `add` and `mov` on newer cores.
"""

import ctypes
import time
from collections.abc import Callable

from vllm_probe.host.machine import mapped

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

    What interrupts the thread lengthens the loop, so the shortest of three counts.
    """
    loop = mapped(_CODE, ctypes.c_uint)
    if loop is None:
        return None
    seconds = min(_seconds(loop) for _ in range(_TRIES))
    return _LATENCY * _CHAIN * _TURNS / seconds / 1e6 if seconds > 0 else None


def _seconds(loop: Callable[[int], None]) -> float:
    begin = time.perf_counter()
    loop(_TURNS)
    return time.perf_counter() - begin

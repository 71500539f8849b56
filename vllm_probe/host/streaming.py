"""A copy whose stores bypass the caches, so that no line is read before it is overwritten."""

import ctypes
from functools import cache

from vllm_probe.host.machine import mapped

_LINE = 64
_SSE, _AVX, _AVX512 = 16, 32, 64
"""Bytes of a store, and so the alignment that `movntps` wants of its target."""

_ADVANCE = "4883c640 4883c740 4883ea40"  # add rsi, 64; add rdi, 64; sub rdx, 64
_CODE = {
    _SSE: bytes.fromhex(
        "0f1006 0f104e10 0f105620 0f105e30"  # movups xmm0..3, [rsi + 0..48]
        "0f2b07 0f2b4f10 0f2b5720 0f2b5f30"  # movntps [rdi + 0..48], xmm0..3
        f"{_ADVANCE} 75d4"  # jnz to the beginning, 44 bytes back
        "0faef8 c3"  # sfence; ret
    ),
    _AVX: bytes.fromhex(
        "c5fc1006 c5fc104e20"  # vmovups ymm0..1, [rsi + 0..32]
        "c5fc2b07 c5fc2b4f20"  # vmovntps [rdi + 0..32], ymm0..1
        f"{_ADVANCE} 75e0"  # jnz to the beginning, 32 bytes back
        "0faef8 c5f877 c3"  # sfence; vzeroupper; ret
    ),
    _AVX512: bytes.fromhex(
        "62f17c481006"  # vmovups zmm0, [rsi]
        "62f17c482b07"  # vmovntps [rdi], zmm0
        f"{_ADVANCE} 75e6"  # jnz to the beginning, 26 bytes back
        "0faef8 c5f877 c3"  # sfence; vzeroupper; ret
    ),
}
"""A line of 64 bytes in each turn of the loop: two or four are no faster, measured on Zen 5."""

_ASK = bytes.fromhex(
    "53 4989f8"  # push rbx; mov r8, rdi
    "b801000000 31c9 0fa2 418908"  # cpuid of leaf 1; mov [r8], ecx
    "0fbae11b 731c"  # bt ecx, 27 (OSXSAVE); jnc to the end
    "0fbae11c 7316"  # bt ecx, 28 (AVX); jnc to the end
    "31c9 0f01d0 41894004"  # xgetbv of 0; mov [r8 + 4], eax
    "b807000000 31c9 0fa2 41895808"  # cpuid of leaf 7; mov [r8 + 8], ebx
    "5b c3"  # pop rbx; ret
)
_OSXSAVE_AVX, _AVX_STATE = 3 << 27, 0x6
_AVX512F, _AVX512_STATE = 1 << 16, 0xE6


def copy_past_caches(target: int, source: int, nbytes: int) -> bool:
    """Copies `nbytes` between addresses of this process; false where that cannot be done, or not in whole lines.

    `movntps` wants a target aligned to its bytes, and fills lines of 64 bytes (Intel SDM, volume 2).
    """
    widths = [width for width in store_bytes() if target % width == 0]
    copy = mapped(_CODE[widths[0]], ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t) if widths else None
    if copy is None or nbytes <= 0 or nbytes % _LINE:
        return False
    copy(target, source, nbytes)
    return True


@cache
def store_bytes() -> tuple[int, ...]:
    """Bytes that one store can have here, the most first; empty on other processors.

    A wider register counts where the processor has it and the system keeps it (CPUID leaves 1 and 7 and XCR0: Intel
    SDM, volume 1, 14.3 and 15.2).
    """
    ask, told = mapped(_ASK, ctypes.c_void_p), (ctypes.c_uint32 * 3)()
    if ask is None:
        return ()
    ask(ctypes.addressof(told))
    return _widths(*told)


def _widths(leaf1_ecx: int, xcr0: int, leaf7_ebx: int) -> tuple[int, ...]:
    if leaf1_ecx & _OSXSAVE_AVX != _OSXSAVE_AVX or xcr0 & _AVX_STATE != _AVX_STATE:
        return (_SSE,)
    return (_AVX512, _AVX, _SSE) if leaf7_ebx & _AVX512F and xcr0 & _AVX512_STATE == _AVX512_STATE else (_AVX, _SSE)

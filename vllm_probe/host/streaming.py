"""A copy whose stores bypass the caches, so that no line is read before it is overwritten."""

import ctypes

from vllm_probe.host.machine import mapped

_LINE = 64
_ALIGNMENT = 16
_CODE = bytes.fromhex(
    "0f1006 0f104e10 0f105620 0f105e30"  # movups xmm0..3, [rsi + 0..48]
    "0f2b07 0f2b4f10 0f2b5720 0f2b5f30"  # movntps [rdi + 0..48], xmm0..3
    "4883c640 4883c740 4883ea40"  # add rsi, 64; add rdi, 64; sub rdx, 64
    "75d4"  # jnz to the beginning, 44 bytes back
    "0faef8 c3"  # sfence; ret
)


def copy_past_caches(target: int, source: int, nbytes: int) -> bool:
    """Copies `nbytes` between addresses of this process; false where that cannot be done, or not in whole lines.

    `movntps` wants a target aligned to 16 bytes, and fills lines of 64 bytes (Intel SDM, volume 2).
    """
    copy = mapped(_CODE, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    if copy is None or nbytes <= 0 or nbytes % _LINE or target % _ALIGNMENT:
        return False
    copy(target, source, nbytes)
    return True

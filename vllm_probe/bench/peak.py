"""What the arithmetic of a device can reach at most, to tell a plausible rate from an impossible one."""

from dataclasses import dataclass

from vllm_probe.core.capability import Judgement
from vllm_probe.core.device import Device

_TOLERANCE = 1.05
_LOW = 0.5
_FASTEST_CORE_GHZ = 6.2
"""Highest boost clock sold (Core i9-14900KS): a bound where the clock of a virtual machine is not known."""

_OPS_PER_CYCLE: tuple[tuple[str, dict[str, tuple[int, int]]], ...] = (
    ("amx", {"fp32": (64, 64), "bf16": (1024, 1024), "fp16": (0, 1024), "int8": (2048, 2048)}),
    ("avx512_bf16", {"fp32": (32, 64), "bf16": (64, 128), "fp16": (0, 64), "int8": (128, 256)}),
    ("avx512_vnni", {"fp32": (32, 64), "bf16": (0, 64), "fp16": (0, 64), "int8": (128, 256)}),
    ("avx512", {"fp32": (32, 64), "bf16": (0, 64), "fp16": (0, 64), "int8": (64, 128)}),
    ("avx_vnni", {"fp32": (32, 32), "bf16": (0, 32), "fp16": (0, 32), "int8": (128, 128)}),
    ("avx2", {"fp32": (32, 32), "bf16": (0, 32), "fp16": (0, 32), "int8": (64, 64)}),
)
"""Best instruction set to operations per core and cycle, a multiply-add counted as 2: (slowest, fastest) core with it.

Two 256-bit FMA units give 32 in fp32, two 512-bit ones 64 (Zen 4 runs 512 bits in two cycles); a bf16 dot product
doubles, an int8 one quadruples that; AMX does 16x16x32 bf16 multiply-adds in 16 cycles
(https://www.intel.com/content/www/us/en/docs/intrinsics-guide, TDPBF16PS). A format without arithmetic of
its own is converted to fp32, at any loss. Arm cores differ too much to be bounded by their instruction set.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Arithmetic limits of a device in one number format, in 1e9 operations per second.

    Attributes:
        slowest: peak of the slowest core with this instruction set, null when the clock is not known.
        fastest: peak of the fastest core with it at the highest clock.
    """

    slowest: float | None
    fastest: float


def arithmetic_band(device: Device, dtype: str) -> Band | None:
    """Peak of a CPU from its instruction set, threads and clock; null for what is not in the table."""
    details = device.details
    isa, threads = details.get("isa") or (), details.get("threads")
    ops = next((by_dtype.get(dtype) for name, by_dtype in _OPS_PER_CYCLE if name in isa), None)
    if device.kind != "cpu" or not ops or not threads:
        return None
    mhz = None if details.get("hypervisor") else (details.get("frequency_mhz") or {}).get("max")
    ghz = mhz / 1000 if mhz else None
    return Band(slowest=ops[0] * threads * ghz if ghz else None, fastest=ops[1] * threads * (ghz or _FASTEST_CORE_GHZ))


def judge(value: float, band: Band | None) -> tuple[Judgement | None, str | None]:
    """The verdict on a rate, and what stands against trusting it fully.

    Suspect above 105 % of what is possible, low below half of the slowest such core, null where only the upper
    bound is known.
    """
    if band is None:
        return None, "no peak is known to check it against"
    if value > _TOLERANCE * band.fastest:
        return "suspect", f"over the {band.fastest:.0f} that is possible"
    if band.slowest is None:
        return None, "the clock is not known"
    if value < _LOW * band.slowest:
        return "low", f"under half of the {band.slowest:.0f} that the slowest such core reaches"
    return "normal", None

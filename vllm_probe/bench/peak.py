"""What the arithmetic of a device can reach at most, to tell a plausible rate from an impossible one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_probe.core.capability import Capability, Judgement
from vllm_probe.core.device import Device

_TOLERANCE = 1.05
_LOW = 0.5
_SHORT = 0.95
"""Share of the lowest published value below which a device is slow, SuperBench's rule for a defect."""
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
class Expected:
    """What a device should give in one measurement, in the unit of its value.

    Attributes:
        slowest: peak of the slowest such device, null when unknown.
        fastest: peak of the fastest such device, null when unknown.
        at_mhz: clock at which both hold; null for what does not depend on the clock of the compute units.
        is_own_clock: whether `at_mhz` is the clock of this device, not a bound for all.
        usual: least and most that was published for such devices.
    """

    slowest: float | None = None
    fastest: float | None = None
    at_mhz: float | None = None
    is_own_clock: bool = True
    usual: tuple[float, float] | None = None

    def limits(self, clock_mhz: float | None) -> tuple[float | None, float | None]:
        """Lowest value that is normal, and the peak, at the observed clock or else the known one."""
        scale = clock_mhz / self.at_mhz if clock_mhz and self.at_mhz else 1.0
        known = clock_mhz is not None or self.is_own_clock
        low = _SHORT * self.usual[0] if self.usual else None
        if low is None and self.slowest is not None and known:
            low = _LOW * self.slowest * scale
        return low, None if self.fastest is None else self.fastest * scale


class Judged(NamedTuple):
    """A verdict, null when nothing is known; what stands against trusting the value fully; the value over the peak."""

    verdict: Judgement | None
    doubt: str | None
    pct_of_peak: float | None


def judge(value: float, expected: Expected | None, clock_mhz: float | None = None) -> Judged:
    """Suspect above 105 % of the peak at the observed clock, low under what such devices give, else normal.

    Low is under 95 % of the least that was published, or under half of the peak of the slowest such device.
    """
    low, peak = expected.limits(clock_mhz) if expected else (None, None)
    if peak is None and low is None:
        return Judged(None, "no peak is known to check it against", None)
    share = None if peak is None else 100 * value / peak
    if peak is not None and value > _TOLERANCE * peak:
        return Judged("suspect", f"over the {peak:.4g} that is possible", share)
    if low is None:
        return Judged(None, "the clock is not known", None)
    return (
        Judged("low", f"under the {low:.4g} that such a device gives", share)
        if value < low
        else Judged("normal", None, share)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What is known of a device before it is measured.

    Attributes:
        device: the device.
        datasheet: descriptor of such a device from its data sheet, null when there is none.
        published: JSON pointer to the least and most that others measured on such devices.
    """

    device: Device
    datasheet: Capability | None = None
    published: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def compute(self, dtype: str) -> Expected | None:
        """For matrix products in `dtype`: from the instruction set of a CPU, from the data sheet of others."""
        if self.device.kind == "cpu":
            return _arithmetic(self.device, dtype)
        unit = self.datasheet.compute_units.get(dtype) if self.datasheet else None
        return self._expected(f"/compute_units/{dtype}/throughput_gflops", unit.throughput_gflops if unit else None)

    def bandwidth(self) -> Expected | None:
        """For any kind of access to the device's memory."""
        return self._expected(
            "/memory/bandwidth_gb_s", self.datasheet.memory.bandwidth_gb_s if self.datasheet else None
        )

    def value(self, pointer: str) -> Expected | None:
        """For a value that no data sheet gives."""
        return self._expected(pointer, None)

    def _expected(self, pointer: str, peak: float | None) -> Expected | None:
        usual = self.published.get(pointer)
        if peak is None and usual is None:
            return None
        about = self.datasheet.measurements.get(pointer) if self.datasheet else None
        return Expected(slowest=peak, fastest=peak, at_mhz=about.clock_mhz if about else None, usual=usual)


def _arithmetic(device: Device, dtype: str) -> Expected | None:
    """Peak of a CPU from its instruction set, threads and clock; null for what is not in the table."""
    details = device.details
    isa, threads = details.get("isa") or (), details.get("threads")
    ops = next((by_dtype.get(dtype) for name, by_dtype in _OPS_PER_CYCLE if name in isa), None)
    if not ops or not threads:
        return None
    own_mhz = None if details.get("hypervisor") else (details.get("frequency_mhz") or {}).get("max")
    mhz = own_mhz or 1000 * _FASTEST_CORE_GHZ
    slowest, fastest = (each * threads * mhz / 1000 for each in ops)
    return Expected(slowest=slowest, fastest=fastest, at_mhz=mhz, is_own_clock=own_mhz is not None)

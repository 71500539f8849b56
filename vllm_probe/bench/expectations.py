"""What is known of a device before it is measured: instruction set, data sheet, and what others measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vllm_probe.bench.peak import Expected
from vllm_probe.core.capability import Capability
from vllm_probe.core.device import Device

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
class Expectations:
    """What is known of a device before it is measured.

    Attributes:
        device: the device.
        datasheet: descriptor of such a device from its data sheet, null when there is none.
        published: JSON pointer to the least and most that others measured on such devices.
        unknown: JSON pointer from the device to why its probe has no value there.
    """

    device: Device
    datasheet: Capability | None = None
    published: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def compute(self, dtype: str) -> Expected | None:
        """For matrix products in `dtype`: from the instruction set of a CPU, from the data sheet of others."""
        if self.device.kind == "cpu":
            return _arithmetic(self.device, dtype)
        unit = self.datasheet.compute_units.get(dtype) if self.datasheet else None
        return self._expected(f"/compute_units/{dtype}/throughput_gflops", unit.throughput_gflops if unit else None)

    def bandwidth(self, kind: str) -> Expected | None:
        """For the `kind` of access to the device's memory: read, copy or triad."""
        return self._expected(f"/memory/{kind}_gb_s", self.datasheet.memory.bandwidth_gb_s if self.datasheet else None)

    def value(self, pointer: str) -> Expected | None:
        """For a value that no data sheet gives."""
        return self._expected(pointer, None)

    def _expected(self, pointer: str, peak: float | None) -> Expected | None:
        usual = self.published.get(pointer)
        if peak is None and usual is None:
            return None
        about = self.datasheet.measurements.get(pointer) if self.datasheet else None
        return Expected(slowest=peak, fastest=peak, at_mhz=about.clock_mhz if about else None, usual=usual)


def published(descriptor: str) -> dict[str, tuple[float, float]]:
    """JSON pointer to the least and most that others measured on the device of the bundled `descriptor`."""
    bands = json.loads(Path(__file__).with_name("bands.json").read_text())
    return {key: (band[0], band[1]) for key, band in bands.get(descriptor, {}).items() if key.startswith("/")}


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

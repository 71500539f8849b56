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

_MOST_GFLOPS, _MOST_GB_S, _MOST_LINK_GB_S = 2e7, 4e4, 2e3
"""Over all that is sold: Rubin has 22,000 GB/s of memory and 3,600 GB/s of NVLink for both ways together
(https://www.nvidia.com/en-us/data-center/technologies/rubin/); no dense format of today has 10 PFLOP/s on one device.
"""

_LOADED_BYTES = 128
"""Most that a core loads in a cycle: two registers of 512 bits
(https://www.intel.com/content/www/us/en/content-details/671488/).
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
        peak = unit.throughput_gflops if unit else None
        return self._expected(f"/compute_units/{dtype}/throughput_gflops", peak, _MOST_GFLOPS)

    def bandwidth(self, kind: str) -> Expected:
        """For the `kind` of access to the device's memory: read, copy or triad; cached reads have no data sheet."""
        threads = self.device.details.get("threads") if self.device.kind == "cpu" else None
        most = threads * _LOADED_BYTES * _FASTEST_CORE_GHZ if threads else _MOST_GB_S
        if kind == "cached_read":
            return Expected(most=most if threads else None)
        peak = self.datasheet.memory.bandwidth_gb_s if self.datasheet else None
        return self._expected(f"/memory/{kind}_gb_s", peak, most)

    def link(self, pointer: str) -> Expected:
        """For the rate of a transfer between host and device, which no data sheet gives."""
        return self._expected(pointer, None, _MOST_LINK_GB_S)

    def _expected(self, pointer: str, peak: float | None, most: float) -> Expected:
        about, usual = self.datasheet.measurements.get(pointer) if self.datasheet else None, self.published.get(pointer)
        return Expected(slowest=peak, fastest=peak, at_mhz=about.clock_mhz if about else None, usual=usual, most=most)


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

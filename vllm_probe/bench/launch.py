"""Section of what an operation costs besides its work: issuing, waiting, allocating, and addresses that do not fit."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from vllm_probe.bench.doubt import checked
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.bench.wall import Timer, one_by_one, until_issued
from vllm_probe.core.capability import Capability, Measurement

_TIMES = {"launch_overhead_us": "round trip", "issue_us": "issue", "allocation_us": "allocation"}
_ALIGNMENTS = {"observed_alignment_bytes": "addresses", "full_rate_alignment_bytes": "alignment"}
_EMPTY_BYTES = 64
"""The smallest copy that every device makes: an operation whose work takes no time."""

_ALLOCATION_BYTES = 1 << 20
_SIZES = (*range(1, 34), 63, 65, 100, 127, 129, 255, 257, 511, 513, 1000, 1025, 2049, 3000, 4097)
_OFFSETS = (0, 4, 16, 32, 64, 128, 256, 512)
_SHARE = 0.3
_ROUNDS = 5
_FULL = 0.98
_RESTLESS = 0.05


class LaunchSection(Section):
    """Times of `/execution` for an empty operation, and alignments of `/memory`."""

    name = "launch"

    def total(self) -> int:
        """The times and the alignments."""
        return len(_TIMES) + len(_ALIGNMENTS)

    def batches(self) -> Iterator[Sequence[Case]]:
        """All at once."""
        times: dict[str, Callable[[int], Work | Reading]] = {
            "round trip": partial(self._copy, one_by_one(self.adapter), "until it is done"),
            "issue": partial(self._copy, until_issued(self.adapter), "until the call returns"),
            "allocation": self._allocation,
        }
        prepare = {**times, "addresses": self._addresses, "alignment": self._alignment}
        yield [
            Case(key=(name, 0), title=name, unit="us" if name in times else "bytes", prepare=make, share=_SHARE)
            for name, make in prepare.items()
        ]

    def write(self, sheet: Sheet) -> None:
        """Each value where it belongs."""
        for field, name in _TIMES.items():
            sheet.put(f"/execution/{field}", *self.readings.get((name, 0), self.pending))
        for field, name in _ALIGNMENTS.items():
            value, about = self.readings.get((name, 0), self.pending)
            sheet.put(f"/memory/{field}", None if value is None else int(value), about)

    def restore(self, partial: Capability) -> None:
        """What has a value."""
        for part, fields in (("execution", _TIMES), ("memory", _ALIGNMENTS)):
            for field, name in fields.items():
                value = getattr(getattr(partial, part), field)
                if value is not None and (about := partial.measurements.get(f"/{part}/{field}")):
                    self.readings[name, 0] = Reading(value, about)

    def _copy(self, timer: Timer, end: str, divisor: int) -> Work:  # noqa: ARG002 - it cannot be smaller
        source, target = (self.adapter.random((_EMPTY_BYTES,), "int8", seed) for seed in range(2))
        return Work(
            calls=(partial(self.adapter.copy, source, target),),
            amount=None,
            method=f"copy of {_EMPTY_BYTES} bytes on the device, {end}",
            threads=1,
            timer=timer,
        )

    def _allocation(self, divisor: int) -> Work:
        nbytes = _ALLOCATION_BYTES // divisor
        return Work(
            calls=(partial(self.adapter.allocate, nbytes),),
            amount=None,
            method=f"{nbytes} bytes allocated and given back, untouched",
            threads=1,
            timer=until_issued(self.adapter),
        )

    def _addresses(self, divisor: int) -> Reading:  # noqa: ARG002 - they are small
        """Power of two that divides the addresses of allocations for which no alignment was asked."""
        held = [self.adapter.allocate(size, 1) for size in _SIZES]
        found = [self.adapter.address(tensor) for tensor in held]
        addresses = [address for address in found if address is not None]
        if not addresses:
            return absent("unsupported", "the device shows no addresses")
        common = math.gcd(*addresses)
        method = f"greatest power of two in {len(addresses)} addresses of 1 to {max(_SIZES)} bytes, alignment 1 asked"
        about = Measurement(
            source="measured", status="measured", confidence="high", samples=len(addresses), method=method, unit="bytes"
        )
        return Reading(common & -common if common else max(_SIZES), about)

    def _alignment(self, divisor: int) -> Reading:
        """Smallest step of which all multiples up to 512 give at least 98 % of the rate of the aligned copy."""
        adapter, nbytes = self.adapter, self.plan.array_bytes // 4 // divisor
        wholes = [adapter.allocate(nbytes + max(_OFFSETS), 4096) for _ in range(2)]
        parts = {offset: [adapter.part(whole, offset, nbytes) for whole in wholes] for offset in _OFFSETS}
        if parts[0][0] is None:
            return absent("unsupported", "the adapter names no parts of an allocation")
        calls = {offset: partial(adapter.copy, *pair) for offset, pair in parts.items()}
        adapter.copy(adapter.random((nbytes,), "int8", 1), parts[0][0])
        seconds: dict[int, list[float]] = {offset: [] for offset in _OFFSETS}
        once = checked(adapter.time_batch([calls[0]] * 2), 2) / 2
        size = max(1, math.ceil(self.plan.batch_s / once))
        for _ in range(_ROUNDS):
            for offset, call in calls.items():
                seconds[offset].append(checked(adapter.time_batch([call] * size), size) / size)
        return Reading(*_smallest_step(seconds, nbytes))


def _smallest_step(seconds: dict[int, list[float]], nbytes: int) -> tuple[float, Measurement]:
    best = {offset: min(times) for offset, times in seconds.items()}
    full = {offset for offset, time in best.items() if _FULL * time <= best[0]}
    steps = [step for step in _OFFSETS[1:] if all(o in full for o in _OFFSETS if o % step == 0)]
    spread = median(max(times) / min(times) - 1 for times in seconds.values())
    restless = spread > _RESTLESS or not steps
    rates = ", ".join(f"{offset}: {2 * nbytes / time / 1e9:.4g}" for offset, time in best.items())
    return float(min(steps, default=2 * max(_OFFSETS))), Measurement(
        source="measured",
        status="noisy" if restless else "measured",
        reason=f"GB/s by offset in bytes: {rates}" + (f"; rounds differ by {100 * spread:.0f} %" if restless else ""),
        confidence="low" if restless else "medium",
        samples=sum(map(len, seconds.values())),
        spread_pct=100 * spread,
        method=f"copies of {nbytes} bytes, both ends at an offset, best of {_ROUNDS} rounds in turn, 98 % is full",
        unit="bytes",
    )

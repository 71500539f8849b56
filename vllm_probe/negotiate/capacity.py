"""Step 3, turned round: the device memory from which a config that does not boot would."""

import bisect
from dataclasses import replace

from vllm_probe.negotiate.budget import account
from vllm_probe.negotiate.sizing import Sized

_MOST = 1 << 50  # bytes; no device has as many


def least_capacity(chosen: Sized, *, without: str | None = None) -> int | None:
    """Fewest bytes of device memory that hold the sizes of `chosen`; null where no memory makes up for a pin.

    It is what the usable share of the memory leaves that has to hold them, so that it is more than they are. The pin
    `without` is left out.
    """
    case, needed = chosen.case, chosen.budget.requested_bytes
    pins = {key: value for key, value in case.request.pins.items() if key != without}

    def boots(count: int) -> bool:
        request = replace(case.request, device_memory_bytes=count, pins=pins)
        there = replace(case, request=request, total_bytes=count, usable_bytes=count)
        return account(there, chosen.candidate, chosen.shape).verdict == "boots"

    if needed is None or not boots(_MOST):
        return None
    high = needed
    while not boots(high):
        high *= 2
    sizes = range(high // 2, high + 1)
    return sizes[bisect.bisect_left(sizes, True, key=boots)]

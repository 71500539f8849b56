"""What changes from moment to moment, from the kernel driver alone: no library is loaded."""

from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.intel import drm, sysfs
from vllm_probe.vendors.intel.clients import read_clients
from vllm_probe.vendors.pci import PciFunction, accelerators

_KEPT = (
    *("clock_mhz", "clock_max_mhz", "event_reasons", "throttled", "temperature_c", "memory_temperature_c"),
    *("power_limit_w", "fans_rpm"),
)
_DRIVERS = ("i915", "xe")


def health(host: Host) -> dict[str, Any]:
    """`{"devices": {id: {...}}}`: of each GPU what is known of its state.

    `free_bytes`, `used_bytes`, `processes` (pid, bytes, kind), `event_reasons` in the kernel's words, `throttled`
    (those that do harm), clocks, temperatures and limits; or `lost`: why it cannot be asked. Of one that sleeps,
    nothing.
    """
    gpus = [each for each in accelerators(host) if each.vendor == 0x8086 and each.kind in {"gpu", "igpu"}]
    return {"devices": {each.address: _health(host, each) for each in gpus}}


def _health(host: Host, function: PciFunction) -> dict[str, Any]:
    if function.driver not in _DRIVERS:
        return {"lost": f"{function.driver or 'no driver'} is bound to it, not i915 or xe"}
    if function.asleep:
        return {}
    if sysfs.failed_boot(host, function.address):
        return {"lost": "its firmware did not boot"}
    record = sysfs.read(host, function.address)
    number = sysfs.nodes(host, function.address).get("drm_render")
    state: dict[str, Any] = {name: record[name] for name in _KEPT if name in record}
    memory = None if number is None else drm.memory(host, f"/dev/dri/renderD{number}", function.driver)
    if memory and memory.local and memory.total is not None and memory.used is not None:
        state |= {"free_bytes": memory.total - memory.used, "used_bytes": memory.used}
    elif memory and not memory.local:
        available = host.stats().memory_available_bytes
        state |= {} if available is None else {"free_bytes": available}
    return state | {"processes": read_clients(host, function.address)}

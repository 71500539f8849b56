"""What changes from moment to moment, from sysfs alone: no library is loaded and no node opened."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.amd.facts import LIVE
from vllm_probe.vendors.amd.kfd import read_processes, read_topology
from vllm_probe.vendors.amd.memory import INTEGRATED, memory_evidence
from vllm_probe.vendors.amd.units import Unit, units_of
from vllm_probe.vendors.layer0 import asleep, bus_devices
from vllm_probe.vendors.pci import accelerators

_DRIVER = "amdgpu"
_KEPT = (*LIVE, "junction_limit_c", "power_limit_w", "power_default_w", "core_clock_max_mhz")
_MEMORY = {"free_bytes": "/memory/usable_bytes", "used_bytes": "/memory/used_bytes"}
_BUSY = 90  # percent
_HOT_BELOW_LIMIT_C = 5.0
_LOWERED = 0.9  # of the highest clock


def health(host: Host) -> dict[str, Any]:
    """`{"devices": {id: {...}}}`: of each GPU that computes, what is known of its state.

    `free_bytes`, `used_bytes`, `processes` (pid, bytes, kind), `throttled`, temperatures, power, clocks and load; or
    `lost`: why it cannot be asked. A card that sleeps has its memory only, one that is split is not listed.
    """
    shown = [reading for reading in bus_devices(host, PLUGIN) if reading[0].kind != "npu"]
    drivers = {function.address: function.driver for function in accelerators(host)}
    units = [unit for unit in units_of(host, shown, read_topology(host), asleep(host, PLUGIN)) if not unit.parts]
    return {"devices": {unit.id: _health(host, unit, drivers.get(unit.id.partition("/")[0])) for unit in units}}


def throttled(card: Mapping[str, Any]) -> list[str] | None:
    """`hardware_thermal` where a busy card is as hot as it may be and has lowered its clock; null where not known.

    The flag that amd-smi prints is not asked: on some cards it is always set
    (https://github.com/ROCm/rocm-systems/issues/11781).
    """
    names = ("utilization", "junction_c", "junction_limit_c", "core_clock_mhz", "core_clock_max_mhz")
    if any(name not in card for name in names):
        return None
    hot = card["junction_c"] >= card["junction_limit_c"] - _HOT_BELOW_LIMIT_C
    slow = card["core_clock_mhz"] < _LOWERED * card["core_clock_max_mhz"]
    return ["hardware_thermal"] if hot and slow and card["utilization"] >= _BUSY else []


def _health(host: Host, unit: Unit, driver: str | None) -> dict[str, Any]:
    if driver != _DRIVER:
        return {"lost": f"{driver or 'no driver'} is bound to it, not {_DRIVER}"}
    device, node = unit.reading[0], unit.node
    if ((node.arch if node else None) or device.arch) in INTEGRATED:
        device = replace(device, kind="igpu")
    memory = memory_evidence(host, device, node, unit.card)[0].facts
    state = {name: memory[pointer] for name, pointer in _MEMORY.items() if pointer in memory}
    if node:
        processes = read_processes(host, node)
        state["processes"] = [{"pid": pid, "bytes": used, "kind": "compute"} for pid, used in processes]
    if not unit.partition:
        state |= {name: unit.card[name] for name in _KEPT if name in unit.card}
        reasons = throttled(unit.card)
        state |= {} if reasons is None else {"throttled": reasons}
    return state

"""Layer 1: what i915 and xe show in sysfs: clocks, throttling, tiles, sensors, virtual functions.

Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon, drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c,
drivers/gpu/drm/xe/xe_{gt_freq,gt_throttle,vram_freq}.c of Linux. Neither driver, as it is in Linux, shows its memory
here; Intel's own builds of them do.
"""

import re
from collections.abc import Iterable
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.pci import ROOT

_CLASS = "/sys/class/drm"
_CLOCKS = {"clock_mhz": "act", "clock_max_mhz": "RP0"}
_HARMLESS = {"pl1", "pl2", "pl4"}
"""Reasons by which every device is held back that has work enough: its power limits."""


def read(host: Host, address: str) -> dict[str, Any]:
    """What is known; a clock of 0 is that of a device that rests, and is left out."""
    folder, card = f"{ROOT}/{address}", _card(host, address)
    found: dict[str, Any] = _clocks(host, folder, card)
    reasons = _throttle_reasons(host, folder, card)
    if reasons is not None:
        found |= {"event_reasons": reasons, "throttled": [each for each in reasons if each not in _HARMLESS]}
    tiles = len(host.glob(f"{folder}/tile[0-9]*"))
    found |= {"tiles": tiles} if tiles else {}
    memory_clock = _first(host, f"{folder}/tile0/memory/freq0/max_freq", f"{card}/gt/gt0/mem_RP0_freq_mhz")
    found |= {"memory_clock_max_mhz": memory_clock} if memory_clock else {}
    total = _backport_memory(host, folder, card)
    found |= {"memory": {"total": total}} if total else {}
    most = _number(host, f"{folder}/sriov_totalvfs")
    if most:
        found["sriov"] = {"virtual_functions": _number(host, f"{folder}/sriov_numvfs"), "most": most}
    return found | _sensors(host, folder)


def failed_boot(host: Host, address: str) -> bool:
    """Whether xe runs the device in survivability mode, in which it has no nodes and only takes new firmware.

    https://docs.kernel.org/gpu/xe/xe_survivability_mode.html
    """
    return host.exists(f"{ROOT}/{address}/survivability_mode")


def nodes(host: Host, address: str) -> dict[str, int]:
    """Numbers of the device's card and render node, also where the bus's folder does not list them."""
    found: dict[str, int] = {}
    for index, name in (("drm_card", "card"), ("drm_render", "renderD")):
        own = host.glob(f"{ROOT}/{address}/drm/{name}[0-9]*") or _of_class(host, address, name)
        numbers = [re.sub(r".*\D", "", path) for path in own]
        found |= {index: int(numbers[0])} if numbers else {}
    return found


def _card(host: Host, address: str) -> str:
    own = host.glob(f"{ROOT}/{address}/drm/card[0-9]*") or _of_class(host, address, "card")
    return own[0] if own else f"{ROOT}/{address}/drm/card"


def _of_class(host: Host, address: str, name: str) -> tuple[str, ...]:
    links = host.glob(f"{_CLASS}/{name}[0-9]*/device")
    own = [path for path in links if (host.readlink(path) or "").rpartition("/")[2] == address]
    return tuple(path.removesuffix("/device") for path in own)


def tells_clock(host: Host, address: str) -> bool:
    """Whether sysfs tells the clock now, even if it is that of a device that rests."""
    return _clock(host, f"{ROOT}/{address}", _card(host, address), "act") is not None


def _clocks(host: Host, folder: str, card: str) -> dict[str, int]:
    found = {key: _clock(host, folder, card, name) for key, name in _CLOCKS.items()}
    return {key: value for key, value in found.items() if value}


def _clock(host: Host, folder: str, card: str, name: str) -> int | None:
    """Megahertz of the first engine block, which computes: i915 shows them with the card, xe with the tile."""
    return _first(
        host,
        f"{folder}/tile0/gt0/freq0/{name.lower()}_freq",
        f"{card}/gt_{name}_freq_mhz",
        f"{card}/gt/gt0/rps_{name}_freq_mhz",
    )


def _throttle_reasons(host: Host, folder: str, card: str) -> list[str] | None:
    """Words of the kernel for what holds the clock down now, null where it does not tell."""
    files = host.glob(f"{folder}/tile*/gt*/freq0/throttle/reason_*") or host.glob(f"{card}/gt/gt*/throttle_reason_*")
    states = {path: _number(host, path) for path in files}
    if not any(value is not None for value in states.values()):
        return None
    words = {re.sub(r".*reason_", "", path) for path, value in states.items() if value}
    return sorted(words - {"status"})


def _backport_memory(host: Host, folder: str, card: str) -> int | None:
    sizes = [
        size
        for path in host.glob(f"{folder}/tile*/physical_vram_size_bytes")
        if (size := _number(host, path)) is not None
    ]
    return sum(sizes) or _number(host, f"{card}/lmem_total_bytes") or None


def _sensors(host: Host, folder: str) -> dict[str, Any]:
    for path in host.glob(f"{folder}/hwmon/hwmon*/name"):
        chip = path.removesuffix("/name")
        own = (host.read_text(path) or "").strip() == "xe"
        celsius = {
            "temperature_c": _labelled(host, chip, "temp", "pkg", 2 if own else 1),
            "memory_temperature_c": _labelled(host, chip, "temp", "vram", 3) if own else None,
        }
        found: dict[str, Any] = {name: value // 1000 for name, value in celsius.items() if value}
        limit = _power_limit(host, chip, (2, 1) if own else (1,))
        fans = [rpm for fan in host.glob(f"{chip}/fan[0-9]*_input") if (rpm := _number(host, fan)) is not None]
        return found | ({"power_limit_w": limit} if limit else {}) | ({"fans_rpm": fans} if fans else {})
    return {}


def _labelled(host: Host, chip: str, kind: str, label: str, usual: int) -> int | None:
    for path in host.glob(f"{chip}/{kind}[0-9]*_label"):
        if (host.read_text(path) or "").strip() == label:
            return _number(host, path.removesuffix("label") + "input")
    return _number(host, f"{chip}/{kind}{usual}_input")


def _power_limit(host: Host, chip: str, channels: Iterable[int]) -> float | None:
    """Watts; a limit of 0 is switched off, and then the critical or the rated one holds."""
    for channel in channels:
        for name in ("max", "crit", "rated_max"):
            microwatts = _number(host, f"{chip}/power{channel}_{name}")
            if microwatts:
                return microwatts / 1e6
    return None


def _first(host: Host, *paths: str) -> int | None:
    return next((value for path in paths if (value := _number(host, path)) is not None), None)


def _number(host: Host, path: str) -> int | None:
    text = (host.read_text(path) or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None

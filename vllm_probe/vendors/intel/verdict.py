"""Whether a GPU can be used here, from what each layer said of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_probe.core.device import Device, Verdict
from vllm_probe.core.units import format_bytes
from vllm_probe.vendors.intel.codes import INSTALL, REBOOT, RESULTS, UNINITIALIZED, Meaning, meaning
from vllm_probe.vendors.layer0 import Reading

MASK, SELECTOR = "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"
_STATE = 80  # characters of a state that a sentence takes
_IN_IMAGE = "use an image that has libze1 and libze-intel-gpu1, such as intel/vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What was said of the machine.

    Attributes:
        level_zero: Level Zero's report, empty where it gave none.
        error: why it gave none.
        state: whether its loader is `missing`, it only did not answer in time (`late`), or is `broken`.
        driver: path of the library that drives Intel GPUs for Level Zero, null where it is not in a usual place.
        mask: ZE_AFFINITY_MASK, null where it is not set.
        selector: ONEAPI_DEVICE_SELECTOR, null where it is not set.
        gpus: how many GPUs there are that a driver runs.
        inside: whether this process is in a container.
    """

    level_zero: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    state: str | None = None
    driver: str | None = None
    mask: str | None = None
    selector: str | None = None
    gpus: int = 1
    inside: bool = False


def judged(device: Device, reports: Reports, *, seen: bool | None, told: bool, silent: str | None = None) -> Device:
    """`device` with its verdict, `usable` and `visible`.

    `seen` is whether Level Zero lists it, null where that is not known; `told` whether xpu-smi does, which asks Level
    Zero too; `silent` how Level Zero failed over it. The bus's word that it cannot be used stands, unless one of them
    lists it. What an environment variable hides stays usable. Of a device in another state than `normal` xpu-smi's list
    proves nothing; the state itself is no proof either (https://github.com/intel/xpumanager/issues/151).
    """
    state = device.details.get("state")
    doubted = isinstance(state, str) and state.lower() != "normal" and not seen
    if device.verdict.code == "unusable" and not (seen or (told and not doubted)):
        return device
    hiding = _hiding(device, reports, seen=seen)
    if hiding is not None:
        return replace(device, usable=True, visible=False, verdict=Verdict(code="hidden", reason=hiding))
    against = None if seen else _against(reports, told=told)
    if silent:
        against = _unusable(Meaning(f"Level Zero lists it and fails over it: {silent}", REBOOT))
    if against is None and seen is False:
        text = "Level Zero does not list it: its driver is older than the GPU, or does not support it"
        against = _unusable(Meaning(text, _way_in(reports)))
    if against is None and seen is None and not told:
        reason = "Level Zero can be initialised, and does not tell which of the GPUs it lists"
        against = Verdict(code="unknown", reason=reason)
    if doubted and (against is None or against.code == "unknown"):
        against = _doubt(f"{state}"[:_STATE], reports)
    if against is not None:
        return replace(device, usable=False, verdict=against)
    return _accepted(device, seen=bool(seen))


def failed_boot(reading: Reading) -> Reading:
    """A GPU that xe runs in survivability mode."""
    device, unknown = reading
    why = "its firmware did not boot"
    reason = (
        f"{why}, and xe keeps it in survivability mode, in which it does not compute; write its firmware anew with "
        "`sudo fwupdmgr update` or `xpu-smi updatefw`, and power the machine off and on"
    )
    gaps = {pointer: why for pointer in unknown if pointer.startswith("/memory/")}
    return replace(device, usable=False, verdict=Verdict(code="unusable", reason=reason)), unknown | gaps


def shown_by(selector: str, ordinal: int | None) -> bool:
    """Whether ONEAPI_DEVICE_SELECTOR lets SYCL, and so torch, have the Level Zero device of that number.

    https://github.com/intel/llvm/blob/sycl/sycl/doc/EnvironmentVariables.md
    """
    clauses = [clause.strip().lower() for clause in selector.split(";") if clause.strip()]
    accepted = [clause for clause in clauses if not clause.startswith("!")]
    if not accepted:
        return True
    for backend, _, devices in (clause.partition(":") for clause in accepted):
        names = {name.strip() for name in devices.split(",")}
        if backend not in {"level_zero", "*"}:
            continue
        if names & {"*", "gpu", ""} or ordinal is None or any(name.split(".")[0] == str(ordinal) for name in names):
            return True
    return False


def _hiding(device: Device, reports: Reports, *, seen: bool | None) -> str | None:
    """How a variable hides the device, null where none does; an empty mask hides nothing."""
    numbers = [int(part) for part in re.findall(r"(?:^|,)\s*(\d{1,4})", reports.mask or "")]
    status = reports.level_zero.get("status")
    beyond = bool(numbers) and all(number >= reports.gpus for number in numbers)
    if numbers and ((status == 0 and seen is False) or (status == UNINITIALIZED and beyond)):
        return f"the environment variable {MASK}={reports.mask} hides it; run `unset {MASK}`"
    ordinal = device.indices.get("level_zero")
    if seen and reports.selector and not shown_by(reports.selector, ordinal):
        return f"the environment variable {SELECTOR}={reports.selector} hides it from torch; run `unset {SELECTOR}`"
    return None


def _against(reports: Reports, *, told: bool) -> Verdict | None:
    """Why it cannot be initialised, null where Level Zero could be."""
    status = reports.level_zero.get("status")
    empty = status == UNINITIALIZED or (status == 0 and reports.level_zero.get("devices") == [])
    if status == 0 and not empty:
        return None
    if empty and reports.driver is None:
        text = "the Level Zero loader is there and finds no driver for Intel GPUs: libze_intel_gpu.so.1 is missing"
        return _unusable(Meaning(text, _way_in(reports)), status)
    if empty:
        return _unusable(Meaning(RESULTS[UNINITIALIZED].text, _way_in(reports)), status)
    if status is not None:
        return _unusable(meaning(status), status)
    if told:
        return None
    if reports.state == "late":
        return Verdict(code="unknown", reason=f"{reports.error}; the driver hangs or is still starting")
    if reports.state == "missing":
        return _unusable(Meaning(f"Level Zero is not there: {reports.error}", _way_in(reports)))
    return _unusable(Meaning(f"{reports.error}", "see `sudo dmesg`, and install the compute runtime anew"))


def _doubt(state: str, reports: Reports) -> Verdict:
    why = f": {reports.error}" if reports.error else ""
    reason = f'xpu-smi says "{state}" of it, which it may say falsely, and Level Zero does not tell{why}'
    way = _way_in(reports) if reports.state == "missing" else "see `sudo dmesg`"
    return Verdict(code="unknown", reason=f"{reason}; {way}")


def _way_in(reports: Reports) -> str:
    return _IN_IMAGE if reports.inside else INSTALL


def _accepted(device: Device, *, seen: bool) -> Device:
    reachable, total = device.details.get("cpu_reachable_bytes"), device.memory.reported_bytes
    if isinstance(reachable, int) and total and reachable < total:
        reason = (
            f"the CPU reaches only {format_bytes(reachable)} of its memory, which makes it slow: "
            "switch on Resizable BAR and above-4G decoding in the BIOS"
        )
        return replace(device, usable=True, verdict=Verdict(code="limited", reason=reason))
    reason = "Level Zero can be initialised and lists it" if seen else "xpu-smi lists it, which asks Level Zero"
    number = device.indices.get("level_zero")
    reason += f"; {MASK}={number} selects it" if number is not None else ""
    return replace(device, usable=True, verdict=Verdict(code="usable", reason=reason))


def _unusable(found: Meaning, status: int | None = None) -> Verdict:
    prefix = f"zeInit gives {status:#x}: " if status else ""
    return Verdict(code="unusable", reason=f"{prefix}{found.text}" + (f"; {found.fix}" if found.fix else ""))

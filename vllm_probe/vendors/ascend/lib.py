"""Layer 1: DCMI. A report in JSON, from a child process: `Host.isolated("vllm_probe.vendors.ascend.lib:read")`.

The report is `{"status": 0, "driver", "devices": [...]}`, with a `status` that is not 0 where DCMI cannot be
initialised. A device has `card` and `chip`, `chips` (how many the card has), the values that DCMI gave, and `failed`:
name of a value to the status in its place; `status` where the driver knows nothing of it; `silent` (why) where DCMI
hangs or crashes over it.
"""

from collections.abc import Callable, Iterable
from ctypes import byref, c_int
from functools import partial
from typing import Any

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.vendors.ascend import PLUGIN, smi
from vllm_probe.vendors.ascend.codes import LOST, NO_FUNCTION, dcmi_meaning
from vllm_probe.vendors.ascend.dcmi import FIELDS, LIVE, Dcmi, Place, Question, load
from vllm_probe.vendors.ascend.places import units_of
from vllm_probe.vendors.layer0 import asleep, bus_devices
from vllm_probe.vendors.status_library import Record, Refused, answers

_MOST_CARDS, _MOST_CHIPS = 64, 16
_IDENTITY = frozenset({"pci", "logic", "phy"})
_GROUPS = ("chip_info", "pci", "memory_info")
"""Questions that answer with several values at once."""


def read(host: Host) -> Record:
    """Everything that is asked of DCMI.

    Raises:
        LibraryUnavailable: there is none.
    """
    return _session(host, FIELDS)


def health(host: Host) -> Record:
    """What changes from moment to moment, by device id, with few questions and no context.

    Where there is no DCMI, or it tells no memory, npu-smi does. A device has what is known of `free_bytes`,
    `used_bytes`, `processes` (pid, bytes, kind), `health`, `utilization`, `temperature_c`, `power_w`,
    `aicore_clock_mhz` and `aicore_clock_max_mhz`, or `lost`: why it cannot be asked.

    Raises:
        LibraryUnavailable: there is neither, or to ask would wake an NPU.
    """
    sleeping = asleep(host, PLUGIN)
    if sleeping:
        raise LibraryUnavailable(f"DCMI was not asked, because that wakes {min(sleeping)}", hint="use the NPU first")
    more: Iterable[Record] = ()
    try:
        report = _session(host, {name: FIELDS[name] for name in LIVE})
        if any(not {"memory", "status", "silent"} & device.keys() for device in report.get("devices", ())):
            more = smi.read(host)["devices"]
    except LibraryUnavailable:
        report = {"status": 0} | smi.read(host)
        if not (report["devices"] or report["status"]):
            raise
    if report["status"]:
        return {"lost": dcmi_meaning(report["status"]).text, "devices": {}}
    units = units_of(bus_devices(host, PLUGIN), report["devices"], more, told=True)
    return {"devices": {unit.id: _moment(unit.record) for unit in units if unit.record}}


def _moment(device: Record) -> Record:
    if {"status", "silent"} & device.keys() or device.get("health") == "offline":
        return {"lost": device.get("silent") or dcmi_meaning(device.get("status", -8012)).text}
    memory = device.get("memory", {})
    told = "used" in memory
    sizes = {"free_bytes": memory["total"] - memory["used"], "used_bytes": memory["used"]} if told else {}
    kept = {name: device[name] for name in LIVE if name in device and name not in {*_GROUPS, "phy"}}
    return kept | sizes


def _session(host: Host, fields: dict[str, Question]) -> Record:
    dcmi = Dcmi(load(host))
    try:
        dcmi.call("dcmi_init")
    except Refused as refused:
        if refused.status != NO_FUNCTION:
            return {"status": refused.status}
    known = answers({"driver": lambda: dcmi.text("dcmi_get_driver_version")})
    try:
        places = list(_places(host, dcmi))
    except Refused as refused:
        if refused.status == NO_FUNCTION:
            raise LibraryUnavailable("DCMI of this driver cannot list its cards", hint="look at npu-smi") from refused
        return {"status": refused.status}
    return {"status": 0, **known, "devices": _devices(host, dcmi, places, fields)}


def _places(host: Host, dcmi: Dcmi) -> Iterable[tuple[Place, int]]:
    """Card and chip of each NPU, and how many chips its card has."""
    count, cards = c_int(), (c_int * _MOST_CARDS)()
    dcmi.call("dcmi_get_card_list dcmi_get_card_num_list", byref(count), cards, _MOST_CARDS)
    number = max(min(count.value, _MOST_CARDS), 0)
    listed = cards[:number]
    for card in listed if len(set(listed)) == number else range(number):  # a recording by hand has the count alone
        try:
            chips, npus = host.attempt(f"asking for the chips of card {card}", partial(_chips, dcmi, card))
        except LibraryUnavailable:
            chips, npus = 1, [0]
        for chip in npus:
            yield (card, chip), chips


def _chips(dcmi: Dcmi, card: int) -> tuple[int, list[int]]:
    """How many chips the card has, and those that are no management controller and no processor."""
    try:
        chips = dcmi.number("dcmi_get_device_num_in_card", card)
    except Refused:
        chips = 1
    return chips, [chip for chip in range(max(min(chips, _MOST_CHIPS), 1)) if _is_npu(dcmi, (card, chip))]


def _is_npu(dcmi: Dcmi, place: Place) -> bool:
    try:
        return dcmi.number("dcmi_get_device_type", *place) == 0
    except Refused:
        return True


def _devices(host: Host, dcmi: Dcmi, places: Iterable[tuple[Place, int]], fields: dict[str, Question]) -> list[Record]:
    """All addresses before the rest, so that a chip over which DCMI hangs or crashes is known by its address."""
    found: list[Record] = [{"card": card, "chip": chip, "chips": chips} for (card, chip), chips in places]
    for what, names in (("address", fields.keys() & _IDENTITY), ("state", fields.keys() - _IDENTITY)):
        questions = {name: fields[name] for name in fields if name in names}
        found = [_told(host, dcmi, device, what, questions) for device in found]
    return [_lost(device, fields) for device in found]


def _told(host: Host, dcmi: Dcmi, device: Record, what: str, questions: dict[str, Question]) -> Record:
    card, chip = device["card"], device["chip"]
    asked = {name: _asking(question, dcmi, (card, chip)) for name, question in questions.items()}
    if "silent" in device:
        return device
    try:
        told = host.attempt(f"asking for the {what} of card {card} chip {chip}", partial(answers, asked))
    except LibraryUnavailable as error:
        return device | {"silent": str(error)}
    failed = device.get("failed", {}) | told.pop("failed", {})
    for group in _GROUPS:
        told |= {key: value for key, value in told.pop(group, {}).items() if value is not None}
    return device | told | ({"failed": failed} if failed else {})


def _lost(device: Record, fields: dict[str, Question]) -> Record:
    """`device`, of which only a status is left where the driver lists it and tells nothing of it."""
    failed = device.get("failed", {})
    lost = [status for status in failed.values() if status in LOST]
    if not lost or set(failed) != set(fields):
        return device
    return {name: device[name] for name in ("card", "chip", "chips")} | {"status": lost[0]}


def _asking(question: Question, dcmi: Dcmi, place: Place) -> Callable[[], Any]:
    return lambda: question(dcmi, place)

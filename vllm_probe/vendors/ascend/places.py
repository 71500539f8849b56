"""Which chip of DCMI or npu-smi is which device that the bus or /dev shows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from vllm_probe.vendors.layer0 import Reading

Record: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """A device, and what DCMI and npu-smi say of it.

    Attributes:
        reading: what layer 0 says, with the id of the chip where a function on the bus has several.
        dcmi: DCMI's record, empty where it has none.
        smi: npu-smi's record, empty where it has none.
        listed: whether they list it, null where they cannot tell.
    """

    reading: Reading
    dcmi: Record = field(default_factory=dict)
    smi: Record = field(default_factory=dict)
    listed: bool | None = None

    @property
    def id(self) -> str:
        """Address of the device."""
        return self.reading[0].id

    @property
    def record(self) -> dict[str, Any]:
        """What either says, DCMI's word first."""
        return {**self.smi, **self.dcmi}


def units_of(shown: Sequence[Reading], dcmi: Iterable[Record], smi: Iterable[Record], *, told: bool) -> list[Unit]:
    """The devices `shown`, and the chips of those that have several, each with its records.

    Chips are found by bus address, or by the number of the node where only nodes are shown. What says neither belongs
    to the devices that are left, in order, where there are as many; of devices that only nodes show, those that may be
    opened. `told` is whether an empty list means that the driver knows no device; a node that is there stays unknown.
    """
    chips = _merged(dcmi, smi)
    owners = _by_address(chips)
    found: dict[str, list[Unit]] = {}
    for reading in shown:
        mine = owners.get(reading[0].id) or [chip for chip in chips if _has_node(reading, chip)]
        found[reading[0].id] = [replace(chip, reading=reading, listed=True) for chip in mine]
    placed = {(chip.record["card"], chip.record["chip"]) for mine in found.values() for chip in mine}
    loose = [chip for chip in chips if (chip.record["card"], chip.record["chip"]) not in placed]
    left = [reading for reading in shown if not found[reading[0].id]]
    by_node = all(_number(reading) is not None for reading in left)
    nameless = [chip for chip in loose if not (_numbered(chip) if by_node else _among(chip, owners))]
    open_ = sorted((each for each in left if each[0].verdict.code != "unusable"), key=_order) if by_node else left
    if nameless and len(nameless) == len(open_):
        for reading, chip in zip(open_, nameless, strict=True):
            found[reading[0].id] = [replace(chip, reading=reading, listed=True)]
        nameless = []
    known = False if told and not nameless and not by_node else None
    for reading in left:
        found[reading[0].id] = found[reading[0].id] or [Unit(reading, listed=known)]
    return [unit for mine in found.values() for unit in _parts(mine)]


def _merged(dcmi: Iterable[Record], smi: Iterable[Record]) -> list[Unit]:
    nobody: Any = None
    units: dict[tuple[int, int], Unit] = {}
    for record in dcmi:
        units[record["card"], record["chip"]] = Unit(nobody, dcmi=record)
    for record in smi:
        place = record["card"], record["chip"]
        units[place] = replace(units.get(place, Unit(nobody)), smi=record)
    return [units[place] for place in sorted(units)]


def _by_address(chips: Iterable[Unit]) -> dict[str, list[Unit]]:
    """Chips of one card may share an address; one that several cards have is that of none."""
    owners: dict[str, list[Unit]] = {}
    for chip in chips:
        if "id" in chip.record:
            owners.setdefault(chip.record["id"], []).append(chip)
    return {address: mine for address, mine in owners.items() if len({chip.record["card"] for chip in mine}) == 1}


def _has_node(reading: Reading, chip: Unit) -> bool:
    number = _number(reading)
    return number is not None and chip.record.get("phy") == number


def _number(reading: Reading) -> int | None:
    """The number of the node, of a device that only that shows."""
    match = re.fullmatch(r"ascend:([0-9]+)", reading[0].id)
    return int(match[1]) if match else None


def _order(reading: Reading) -> int:
    return _number(reading) or 0


def _numbered(chip: Unit) -> bool:
    return "phy" in chip.record


def _among(chip: Unit, owners: Mapping[str, list[Unit]]) -> bool:
    return any(chip in mine for mine in owners.values())


def _parts(mine: list[Unit]) -> list[Unit]:
    """The chips of a card that share its function on the bus, as devices of their own."""
    if len(mine) == 1:
        return mine
    return [replace(unit, reading=_part(unit.reading, unit.record["chip"])) for unit in mine]


def _part(reading: Reading, chip: int) -> Reading:
    device, unknown = reading
    return replace(device, id=f"{device.id}/chip-{chip}", details=device.details | {"parent": device.id}), unknown

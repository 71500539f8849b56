"""Numbers of NPUs in ACL and torch_npu, from what numbers the driver gives and from ASCEND_RT_VISIBLE_DEVICES.

The variable names logical ids, which count from 0 what the driver gives this process; what follows an entry that names
none, a blank too, is ignored: https://www.hiascend.com/document/detail/en/canncommercial/850/maintenref/envvar.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vllm_probe.core.device import Device
from vllm_probe.vendors.ascend.places import Unit

MASK = "ASCEND_RT_VISIBLE_DEVICES"
_BY_DRIVER, _BY_NODE = "logical ids of the driver", "order of /dev/davinci numbers"
_BY_CARD, _ALONE = "order of the driver's card and chip numbers", "the only device"
UNNUMBERED = "neither DCMI nor `npu-smi info -m` tells its logical id, and the order of the bus is another"
"""Such as on servers with eight NPUs, of which NPU 0 is at c1:00.0 and NPU 4 at 01:00.0."""


def logical_ids(units: Sequence[Unit]) -> tuple[dict[str, int], str | None]:
    """Address to logical id of each device that this process can reach, and how that is known.

    Null where it is not known: then only how many ids there are is right.
    """
    reached = [unit for unit in units if unit.listed is not False and unit.reading[0].verdict.code != "unusable"]
    logic = {unit.id: unit.record["logic"] for unit in reached if "logic" in unit.record}
    if logic and len(logic) == len(reached) == len(set(logic.values())):
        return logic, _BY_DRIVER
    nodes = {unit.id: number for unit in reached if (number := node_number(unit)) is not None}
    if nodes and len(nodes) == len(reached) == len(set(nodes.values())):
        return {id_: number for number, id_ in enumerate(sorted(nodes, key=nodes.__getitem__))}, _BY_NODE
    places = {unit.id: (unit.record["card"], unit.record["chip"]) for unit in reached if "id" in unit.record}
    if places and len(places) == len(reached) == len(set(places.values())):
        return {id_: number for number, id_ in enumerate(sorted(places, key=places.__getitem__))}, _BY_CARD
    return {unit.id: number for number, unit in enumerate(reached)}, _ALONE if len(reached) == 1 else None


def node_number(unit: Unit) -> int | None:
    """The N of its /dev/davinciN, null where it is not known."""
    match = re.fullmatch(r"ascend:([0-9]{1,4})", unit.id)
    number = unit.record.get("phy")
    return int(number) if number is not None else int(match[1]) if match else None


def visible(logic: Mapping[str, int], mask: str | None) -> dict[str, int]:
    """Address to number in ACL of what `mask` leaves; without one, the logical ids themselves, counted from 0."""
    by_number = {number: id_ for id_, number in logic.items()}
    if mask is None:
        return {id_: number for number, id_ in enumerate(by_number[each] for each in sorted(by_number))}
    found: list[str] = []
    for token in mask.split(","):
        named = by_number.get(int(token)) if re.fullmatch(r"[0-9]{1,4}", token) else None
        if named is None or named in found:
            break
        found.append(named)
    return {id_: number for number, id_ in enumerate(found)}


def numbered(device: Device, logic: Mapping[str, int], numbers: Mapping[str, int], source: str | None) -> Device:
    """`device` with its number in ACL; not visible where it has a logical id, and no number because of the mask.

    Without a `source` it has no number, and is hidden only where the mask leaves none.
    """
    if source is None:
        return replace(device, visible=bool(numbers) or device.id not in logic)
    if device.id not in numbers:
        return replace(device, visible=device.id not in logic)
    return replace(
        device,
        visible=True,
        indices=device.indices | {"npu": numbers[device.id]},
        sources=device.sources | {"/indices/npu": source},
    )

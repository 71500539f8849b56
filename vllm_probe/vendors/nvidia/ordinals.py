"""Numbers of devices in CUDA, from CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, where no driver can be asked.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_probe.core.device import Device
from vllm_probe.vendors.layer0 import Reading

_FASTEST = "the GPUs differ, and by default CUDA puts the fastest first: set CUDA_DEVICE_ORDER=PCI_BUS_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU, or a MIG instance of one.

    Attributes:
        id: address.
        name: what tells whether two GPUs are equally fast.
        uuid: `GPU-...` or `MIG-...`, null when not known.
        parent: of a MIG instance, the UUID of its GPU.
        instance: of a MIG instance, `3/0`: its GPU and compute instance.
    """

    id: str
    name: str | None = None
    uuid: str | None = None
    parent: str | None = None
    instance: str | None = None


def ordinals(cards: Iterable[Card], mask: str | None, order: str | None) -> dict[str, int] | None:
    """Address to number of what CUDA shows, null where only the CUDA driver knows it.

    `cards` are in the order of the bus, each GPU before its MIG instances. Of MIG instances CUDA shows one at most, and
    then no GPU. By default it puts the fastest GPU first, so the order is that of the bus where all are the same, or
    where CUDA_DEVICE_ORDER says so.
    """
    cards = tuple(cards)
    split = {card.parent for card in cards if card.instance}
    gpus = [card for card in cards if not card.instance and (card.uuid is None or card.uuid not in split)]
    in_order = order == "PCI_BUS_ID" or len({card.name for card in gpus}) <= 1
    if mask is None:
        shown = gpus or [card for card in cards if card.instance][:1]
        return {card.id: number for number, card in enumerate(shown)} if in_order else None
    found: list[Card] = []
    for token in (token.strip() for token in mask.split(",")):
        if re.fullmatch(r"[0-9]{1,4}", token) and not in_order:
            return None
        card = _meant(token, cards, gpus)
        if card is None or card in found:  # what follows an invalid one is not visible
            break
        found.append(card)
    instances = [card for card in found if card.instance]
    return {card.id: number for number, card in enumerate(instances[:1] or found)}


def _meant(token: str, cards: Sequence[Card], gpus: Sequence[Card]) -> Card | None:
    if re.fullmatch(r"[0-9]{1,4}", token):
        return gpus[int(token)] if int(token) < len(gpus) else None
    legacy = re.fullmatch(r"MIG-(GPU-[0-9a-fA-F-]+)/([0-9]+/[0-9]+)", token)
    if legacy:
        return next((card for card in cards if card.parent == legacy[1] and card.instance == legacy[2]), None)
    wanted = [card for card in cards if token[:4] in {"GPU-", "MIG-"} and (card.uuid or "").startswith(token)]
    return wanted[0] if len(wanted) == 1 else None


def numbered(
    readings: Sequence[Reading], numbers: Mapping[str, int] | None, source: str, mask: str | None, why: str | None
) -> list[Reading]:
    """`readings` with their `numbers` in CUDA, by address; those without are not visible where there is a mask.

    `why` is why there are none, null where that is the order that CUDA takes by default.
    """
    if numbers is None:
        return [(device, unknown | {"/indices/cuda": why or _FASTEST}) for device, unknown in readings]
    return [(_with_number(device, numbers.get(device.id), source, mask), unknown) for device, unknown in readings]


def _with_number(device: Device, number: int | None, source: str, mask: str | None) -> Device:
    if number is None:
        return replace(device, visible=device.visible and mask is None)
    return replace(
        device,
        indices=device.indices | {"cuda": number},
        sources=device.sources | {"/indices/cuda": source},
    )


def card_of(device: Device) -> Card:
    """What `ordinals` has to know of a GPU or MIG instance."""
    details: dict[str, Any] = device.details
    instance = re.search(r"/mig-([0-9]+)\.([0-9]+)$", device.id)
    return Card(
        id=device.id,
        name=device.name,
        uuid=details.get("uuid"),
        parent=details.get("parent_uuid"),
        instance=f"{instance[1]}/{instance[2]}" if instance else None,
    )

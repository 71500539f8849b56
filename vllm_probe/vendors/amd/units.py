"""Which KFD nodes are which card of the bus, and what computes: a card, or the partitions that it is split into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.amd.facts import partition_of
from vllm_probe.vendors.amd.kfd import Node, Topology
from vllm_probe.vendors.amd.sysfs import read_card
from vllm_probe.vendors.layer0 import Reading

_SPLIT_MODES = frozenset({"DPX", "TPX", "QPX", "CPX"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A card, or a partition of one.

    Attributes:
        reading: what the bus shows of it.
        node: of KFD, null where KFD shows none, and of a card that is split.
        card: what sysfs tells of the card.
        sleeps: live values cannot be had without waking it.
        parts: ids of the partitions that compute in its place.
    """

    reading: Reading
    node: Node | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    sleeps: bool = False
    parts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Address."""
        return self.reading[0].id

    @property
    def partition(self) -> bool:
        """Whether it is a part of a card."""
        return "parent" in self.reading[0].details

    @property
    def pci_id(self) -> int:
        """Of the chip, without the vendor's."""
        return int(str(self.reading[0].details["pci_id"])[-4:], 16)

    @property
    def render(self) -> str | None:
        """Its render node, as KFD or else sysfs tells it."""
        minor = self.node.properties.get("drm_render_minor") if self.node else None
        minor = minor or self.reading[0].indices.get("drm_render")
        return f"/dev/dri/renderD{minor}" if minor else None


def units_of(host: Host, shown: Sequence[Reading], topology: Topology, asleep: frozenset[str]) -> list[Unit]:
    """Every card, each before its partitions."""
    addresses = [device.id for device, _ in shown]
    owned: dict[str, list[Node]] = {address: [] for address in addresses}
    for node in topology.nodes:
        address = owner(node, addresses)
        if address:
            owned[address].append(node)
    return [unit for reading in shown for unit in _card(host, reading, owned[reading[0].id], asleep)]


def owner(node: Node, addresses: Sequence[str]) -> str | None:
    """The card that `node` is, or is a partition of, which has the card's address but for the function.

    Kernels before 5.6 do not tell the domain.
    """
    for address in (f"{node.slot}.{node.function}", f"{node.slot}.0"):
        if address in addresses:
            return address
    alike = [address for address in addresses if address[5:-2] == node.slot[5:]]
    return alike[0] if "domain" not in node.properties and len(alike) == 1 else None


def placed(cards: Sequence[dict[str, Any]], units: Sequence[Unit]) -> list[dict[str, Any]]:
    """`cards` that a tool tells of, each with the address of one of `units`, which are in order of the bus.

    Where it tells no address, those of one PCI id are matched in order, which is the bus's
    (`RocmSMI::DiscoverAmdgpuDevices` of https://github.com/ROCm/rocm_smi_lib), if both are equally many.
    """
    if any("id" in card for card in cards):
        return [card for card in cards if "id" in card]
    found = []
    for pci_id in dict.fromkeys(card.get("pci_id") for card in cards):
        told = [card for card in cards if card.get("pci_id") == pci_id]
        there = [unit for unit in units if pci_id is None or unit.pci_id == int(pci_id, 16)]
        if len(told) == len(there):
            found += [{**card, "id": unit.id} for card, unit in zip(told, there, strict=True)]
    return found


def _card(host: Host, reading: Reading, nodes: Sequence[Node], asleep: frozenset[str]) -> list[Unit]:
    address = reading[0].id
    sleeps = address in asleep
    card = read_card(host, address, live=not sleeps)
    beyond = [node for node in nodes if f"{node.slot}.{node.function}" != address]
    if not beyond and len(nodes) < 2 and card.get("compute_partition") not in _SPLIT_MODES:
        return [Unit(reading=reading, node=nodes[0] if nodes else None, card=card, sleeps=sleeps)]
    parts = [
        Unit(reading=partition_of(host, reading, node), node=node, card=card, sleeps=sleeps)
        for node in sorted(nodes, key=lambda node: node.function)
    ]
    return [Unit(reading=reading, card=card, sleeps=sleeps, parts=tuple(part.id for part in parts)), *parts]

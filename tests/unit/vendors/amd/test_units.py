"""Which KFD nodes are which card."""

import pytest

from vllm_probe.vendors.amd.kfd import Node
from vllm_probe.vendors.amd.units import owner

CARDS = ("0000:03:00.0", "0000:83:00.0", "0001:83:00.0", "0000:c1:02.1")


@pytest.mark.parametrize(
    ("properties", "card"),
    [
        ({"location_id": 0x300, "domain": 0}, "0000:03:00.0"),
        ({"location_id": 0x305, "domain": 0}, "0000:03:00.0"),  # a partition
        ({"location_id": 0x8300, "domain": 1}, "0001:83:00.0"),
        ({"location_id": 0xC111, "domain": 0}, "0000:c1:02.1"),  # a virtual function
        ({"location_id": 0x300}, "0000:03:00.0"),
        ({"location_id": 0x9900, "domain": 0}, None),
        ({"location_id": 0x300, "domain": 2}, None),
        ({}, None),
    ],
)
def test_a_node_belongs_to_the_card_at_its_address(properties: dict[str, int], card: str | None) -> None:
    assert owner(Node(number=1, properties=properties), CARDS) == card


def test_without_a_domain_the_only_card_at_the_place_is_meant() -> None:
    assert owner(Node(number=1, properties={"location_id": 0x8300}), ("0001:83:00.0",)) == "0001:83:00.0"
    assert owner(Node(number=1, properties={"location_id": 0x8300}), ("0001:83:00.0", "0002:83:00.0")) is None

"""Numbers in CUDA, computed where no CUDA driver can be asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.nvidia.ordinals import Card, ordinals

ONE = Card(id="a", name="T4", uuid="GPU-11111111-aaaa")
TWO = Card(id="b", name="T4", uuid="GPU-22222222-bbbb")
FAST = Card(id="c", name="L40", uuid="GPU-22333333-cccc")
SPLIT = Card(id="d", name="A100", uuid="GPU-44444444-dddd")
PART = Card(id="d/mig-3.0", name="A100 MIG", uuid="MIG-55555555-eeee", parent=SPLIT.uuid, instance="3/0")
OTHER = Card(id="d/mig-5.0", name="A100 MIG", uuid="MIG-66666666-ffff", parent=SPLIT.uuid, instance="5/0")


@pytest.mark.parametrize(
    ("cards", "mask", "order", "expected"),
    [
        ((ONE, TWO), None, None, {"a": 0, "b": 1}),
        ((ONE, TWO), "1,0", None, {"b": 0, "a": 1}),
        ((ONE, TWO), "1", None, {"b": 0}),
        ((ONE, TWO), "", None, {}),
        ((ONE, TWO), "-1", None, {}),
        ((ONE, TWO), "0,-1,1", None, {"a": 0}),
        ((ONE, TWO), "0,7,1", None, {"a": 0}),
        ((ONE, TWO), "0, 1", None, {"a": 0, "b": 1}),
        ((ONE, TWO), "0,0", None, {"a": 0}),
        ((ONE, TWO), "NoDevFiles", None, {}),
        ((ONE, TWO), "GPU-22222222-bbbb", None, {"b": 0}),
        ((ONE, TWO), "GPU-2", None, {"b": 0}),
        ((ONE, TWO, FAST), "GPU-22", "PCI_BUS_ID", {}),
        ((ONE, TWO, FAST), "GPU-223,GPU-1", None, {"c": 0, "a": 1}),
        ((ONE, FAST), None, "PCI_BUS_ID", {"a": 0, "c": 1}),
        ((ONE, FAST), "1", "PCI_BUS_ID", {"c": 0}),
        ((ONE, FAST), None, None, None),
        ((ONE, FAST), None, "FASTEST_FIRST", None),
        ((ONE, FAST), "0", "FASTEST_FIRST", None),
        ((ONE, FAST), "", None, {}),
        ((SPLIT, PART, OTHER), None, None, {"d/mig-3.0": 0}),
        ((SPLIT, PART, OTHER), "MIG-66666666-ffff", None, {"d/mig-5.0": 0}),
        ((SPLIT, PART, OTHER), "MIG-GPU-44444444-dddd/5/0", None, {"d/mig-5.0": 0}),
        ((SPLIT, PART, OTHER), "MIG-66666666-ffff,MIG-55555555-eeee", None, {"d/mig-5.0": 0}),
        ((ONE, SPLIT, PART), None, None, {"a": 0}),
        ((ONE, SPLIT, PART), "0,MIG-5", None, {"d/mig-3.0": 0}),
    ],
)
def test_devices_are_numbered_as_cuda_does(
    cards: tuple[Card, ...], mask: str | None, order: str | None, expected: dict[str, int] | None
) -> None:
    assert ordinals(cards, mask, order) == expected


@given(st.text(alphabet="0123,-GPUMI ") | st.text(), st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST"]))
def test_any_mask_gives_each_device_one_number_or_none(mask: str, order: str | None) -> None:
    numbers = ordinals((ONE, TWO, SPLIT, PART), mask, order)
    if numbers is not None:
        assert sorted(numbers.values()) == list(range(len(numbers)))

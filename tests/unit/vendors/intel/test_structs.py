"""Layouts of Level Zero, pinned to what a C compiler makes of ze_api.h of 1.8.12 on a 64-bit machine."""

from ctypes import Structure, sizeof

import pytest

from vllm_probe.vendors.intel import structs


@pytest.mark.parametrize(
    ("layout", "size", "offsets"),
    [
        (structs.DriverProperties, 40, {"uuid": 16, "driverVersion": 32}),
        (
            structs.DeviceProperties,
            368,
            {
                "type": 16,
                "flags": 28,
                "maxMemAllocSize": 40,
                "numSlices": 72,
                "timerResolution": 80,
                "uuid": 96,
                "name": 112,
            },
        ),
        (structs.MemoryProperties, 296, {"maxClockRate": 20, "totalSize": 32, "name": 40}),
        (structs.MemoryExtProperties, 48, {"type": 16, "physicalSize": 24, "readBandwidth": 32, "bandwidthUnit": 40}),
        (structs.PciProperties, 48, {"domain": 16, "genVersion": 32, "maxBandwidth": 40}),
    ],
)
def test_structures_are_those_of_the_header(layout: type[Structure], size: int, offsets: dict[str, int]) -> None:
    assert sizeof(layout) == size
    assert {name: getattr(layout, name).offset for name in offsets} == offsets


def test_types_of_structures_are_those_of_the_header() -> None:
    assert (structs.DRIVER_PROPERTIES, structs.DEVICE_PROPERTIES, structs.MEMORY_PROPERTIES) == (1, 3, 7)
    assert (structs.PCI_PROPERTIES, structs.MEMORY_EXT_PROPERTIES) == (0x10008, 0x1000E)

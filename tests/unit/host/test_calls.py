"""What a recording keeps of a native call."""

from ctypes import Structure, byref, c_ubyte, c_uint32
from typing import Any

from vllm_probe.host.calls import RecordingLibrary


class Properties(Structure):
    _fields_ = (("kind", c_uint32), ("uuid", c_ubyte * 4), ("serialNumber", c_uint32), ("size", c_uint32))


class Driver:
    """A library that fills the structure of a call."""

    path = None

    def call(self, _symbol: str, *arguments: object) -> int:
        target: Any = arguments[0]
        target._obj.kind, target._obj.serialNumber, target._obj.size = 1, 0x12345678, 2
        target._obj.uuid[:] = b"\x01\x02\x03\x04"
        return 0


def test_a_uuid_and_a_serial_number_in_a_structure_are_not_recorded_and_are_passed_on() -> None:
    calls: dict[str, Any] = {}
    properties = Properties()
    assert RecordingLibrary(Driver(), calls).call("properties", byref(properties)) == 0
    assert bytes(properties.uuid) == b"\x01\x02\x03\x04"
    recorded = Properties(kind=1, size=2)
    assert calls == {"properties()": (0, [bytes(recorded)])}

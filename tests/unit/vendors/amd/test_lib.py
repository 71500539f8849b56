"""What libamd_smi is called with; that its answers are read is tested with a real library."""

from ctypes import c_uint64
from typing import Any

from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.system import Library
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd.lib import names


class Listening:
    """A library that keeps what it is called with, and refuses."""

    path = None

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def call(self, symbol: str, *arguments: object) -> int:
        self.calls.append((symbol, *arguments))
        return 1


def test_the_flags_have_the_64_bits_that_the_function_takes() -> None:
    library = Listening()

    class Machine(ReplayHost):
        def library(self, name: str) -> Library:
            return library

    assert names(Machine(Scene(facts=Facts()))) == {"status": 1, "devices": []}
    ((symbol, flags),) = library.calls
    assert symbol == "amdsmi_init"
    assert isinstance(flags, c_uint64)
    assert flags.value == 2

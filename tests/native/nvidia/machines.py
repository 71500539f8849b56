"""Machines whose files are recorded and whose libraries are real, which the tests of this folder share."""

from pathlib import Path
from typing import Any

from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
READ = "vllm_probe.vendors.nvidia.lib:read"
BUS = "/sys/bus/pci/devices"
CARD = {"class": "0x030000", "vendor": "0x10de", "device": "0x2222"}


class Machine(ReplayHost):
    """The files of a recording, the libraries of this machine."""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        return LocalHost().isolated(function, timeout_s)


def bus(*, count: int = 2, **files: str) -> dict[str, str]:
    listed = {f"/dev/{name}": "!chr 195:0 0666 0:0" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")}
    for number in range(6, 6 + count):
        folder = f"{BUS}/0000:{number:02x}:00.0"
        listed |= {f"{folder}/{name}": text for name, text in CARD.items()}
        listed |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/nvidia"}
    return listed | files


def machine(*, count: int = 2) -> Machine:
    return Machine(codec.from_json(Scene, {"facts": {"files": bus(count=count)}}))


def report() -> Any:
    return LocalHost().isolated(READ, 60)

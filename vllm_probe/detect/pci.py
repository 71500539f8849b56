"""Accelerators on the PCI bus: present whatever their driver, library or container does."""

import re
from dataclasses import dataclass

from vllm_probe.core.system import Host

ROOT = "/sys/bus/pci/devices"
NVIDIA = 0x10DE

VENDORS = {
    NVIDIA: "NVIDIA GPU",
    0x1002: "AMD GPU",
    0x8086: "Intel GPU",
    0x19E5: "Ascend NPU",
    0x1D94: "Hygon DCU",
    0xCABC: "Cambricon MLU",
    0x1ED5: "Moore Threads GPU",
    0x9999: "MetaX GPU",
    0x1E3E: "Iluvatar GPU",
    0x1DED: "T-Head PPU",
    0x1DA3: "Gaudi",
    0x1AE0: "Google TPU",
}
"""PCI vendors of accelerators (the detectors of gpustack and all-smi); other display adapters compute nothing."""


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One display controller (class 03) or processing accelerator (class 12).

    Attributes:
        address: `0000:03:00.0`.
        vendor: PCI vendor id.
        device: PCI device id.
        driver: bound driver, null when unbound.
        asleep: in D3cold, so that opening its nodes would wake it.
    """

    address: str
    vendor: int
    device: int
    driver: str | None
    asleep: bool

    @property
    def label(self) -> str:
        """What a person calls it."""
        return VENDORS.get(self.vendor, "display adapter")

    @property
    def evidence(self) -> str:
        """That it is there, with the source."""
        return (
            f"{ROOT}/{self.address}: {self.label} {self.vendor:04x}:{self.device:04x}, driver {self.driver or 'none'}"
        )

    @property
    def integrated(self) -> bool:
        """On the processor's own bus, where Intel's integrated GPU always is."""
        return self.vendor == 0x8086 and self.address == "0000:00:02.0"


def accelerators(host: Host) -> tuple[PciFunction, ...]:
    """Every function of class 03 or 12, by address; one without a readable vendor is left out."""
    found = []
    for path in host.glob(f"{ROOT}/*/class"):
        folder = path.removesuffix("/class")
        vendor, device = _hex(host.read_text(f"{folder}/vendor")), _hex(host.read_text(f"{folder}/device"))
        if vendor is None or ((_hex(host.read_text(path)) or 0) >> 16) not in {0x03, 0x12}:
            continue
        driver = (host.readlink(f"{folder}/driver") or "").rpartition("/")[2] or None
        asleep = (host.read_text(f"{folder}/power_state") or "").strip() == "D3cold"
        found.append(PciFunction(folder.rpartition("/")[2], vendor, device or 0, driver, asleep))
    return tuple(found)


def _hex(text: str | None) -> int | None:
    match = re.fullmatch(r"\s*(?:0x)?([0-9a-fA-F]{1,8})\s*", text or "")
    return int(match[1], 16) if match else None

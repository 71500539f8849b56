"""Accelerators on the PCI bus: present whatever their driver, library or container does; nothing here wakes one."""

import re
from dataclasses import dataclass

from vllm_probe.core.system import Host
from vllm_probe.core.values import Kind

ROOT = "/sys/bus/pci/devices"
NVIDIA = 0x10DE
OTHER_DISPLAY = "display adapter"
"""Label of one that no vendor here makes."""
_DISPLAY, _COPROCESSOR, _ACCELERATOR = 0x03, 0x0B, 0x12
_ASLEEP = {"power_state": "D3cold", "power/runtime_status": "suspended"}  # before Linux 5.11 there is no power_state
_ELSEWHERE = {0x08, _COPROCESSOR, 0x11, 0xFF}  # base classes in which some vendors hide an accelerator

_BY_CLASS: dict[int, tuple[str, Kind, tuple[int, ...]]] = {
    NVIDIA: ("NVIDIA GPU", "gpu", (_DISPLAY,)),
    0x1002: ("AMD GPU", "gpu", (_DISPLAY, _ACCELERATOR)),
    0x8086: ("Intel GPU", "gpu", (_DISPLAY,)),
    0x19E5: ("Ascend NPU", "npu", (_ACCELERATOR,)),  # its class 03 is a management controller
    0x1D94: ("Hygon DCU", "gpu", (_DISPLAY, _COPROCESSOR, _ACCELERATOR)),
    0xCABC: ("Cambricon MLU", "npu", (_DISPLAY, _COPROCESSOR, _ACCELERATOR)),
    0x1ED5: ("Moore Threads GPU", "gpu", (_DISPLAY, _ACCELERATOR)),
    0x9999: ("MetaX GPU", "gpu", (_DISPLAY, _ACCELERATOR)),
    0x1E3E: ("Iluvatar GPU", "gpu", (_DISPLAY, _ACCELERATOR)),
    0x1DED: ("T-Head PPU", "gpu", (_DISPLAY, _ACCELERATOR)),
    0x1DA3: ("Gaudi", "npu", (_ACCELERATOR,)),
    0x1E52: ("Tenstorrent", "npu", (_ACCELERATOR,)),
}
"""PCI vendor to label, kind and base classes of its accelerators (the detectors of gpustack and all-smi, pci.ids)."""

_BY_DEVICE: dict[int, tuple[str, str, frozenset[int]]] = {
    0x1022: ("AMD NPU", "amdxdna", frozenset({0x1502, 0x17F0, 0x17F1, 0x17F2, 0x1B0A, 0x1B0B})),
    0x8086: ("Intel NPU", "intel_vpu", frozenset({0x7D1D, 0xAD1D, 0x643E, 0xB03E, 0xFD3E, 0xD71D})),
    0x1D0F: ("AWS Neuron", "neuron", frozenset({0x7064, 0x7164, 0x7264, 0x7364})),
    0x1AE0: ("Google TPU", "gasket", frozenset({0x0027, 0x005E, 0x0062, 0x0063, 0x006F, 0x0076})),
}
"""PCI vendor to label, driver and devices of NPUs whose class says nothing, or that the vendor shares with others
(amdxdna and ivpu of Linux; pci.ids; jax/_src/hardware_utils.py)."""


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A display controller or a processing accelerator.

    Attributes:
        address: `0000:03:00.0`.
        vendor: PCI vendor id.
        device: PCI device id.
        driver: bound driver, null when unbound.
        asleep: in D3cold, or suspended by its driver, so that opening its nodes would wake it, and the host is not to
            be woken.
        label: what a person calls it.
        kind: what its vendor makes of it, null when it is no accelerator that is known.
    """

    address: str
    vendor: int
    device: int
    driver: str | None
    asleep: bool
    label: str
    kind: Kind | None

    @property
    def pci_id(self) -> str:
        """`10de:2204`."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def evidence(self) -> str:
        """That it is there, with the source."""
        return f"{ROOT}/{self.address}: {self.label} {self.pci_id}, driver {self.driver or 'none'}"


def accelerators(host: Host) -> tuple[PciFunction, ...]:
    """Every accelerator, and every other function of class 03 or 12, by address.

    Left out are functions without a readable vendor, virtual functions that have no render node (a virtual machine has
    them), second heads of a display controller, and Hyper-V's stand-in for `/dev/dxg`.
    """
    found: list[PciFunction] = []
    for path in host.glob(f"{ROOT}/*/class"):
        folder, class_ = path.removesuffix("/class"), parse_hex(host.read_text(path)) or 0
        base, address = class_ >> 16, folder.rpartition("/")[2]
        if base not in {_DISPLAY, _ACCELERATOR, *_ELSEWHERE}:
            continue
        vendor = parse_hex(host.read_text(f"{folder}/vendor"))
        if vendor is None or (base in _ELSEWHERE and vendor not in _BY_CLASS | _BY_DEVICE):
            continue
        device = parse_hex(host.read_text(f"{folder}/device")) or 0
        driver = (host.readlink(f"{folder}/driver") or "").rpartition("/")[2] or None
        label, kind = _family(vendor, device, base, driver, address)
        slot, _, number = address.rpartition(".")
        shadow = class_ >> 8 == 0x0380 and number != "0" and bool(found) and found[-1].address.startswith(slot)
        if host.readlink(f"{folder}/physfn"):
            shadow = not host.glob(f"{folder}/drm/renderD*")
        if label is None or driver == "dxgkrnl" or shadow:
            continue
        asleep = not host.wakes and any(
            (host.read_text(f"{folder}/{file}") or "").strip() == state for file, state in _ASLEEP.items()
        )
        found.append(PciFunction(address, vendor, device, driver, asleep, label, kind))
    return tuple(found)


def parse_hex(text: str | None) -> int | None:
    """The number in a sysfs file such as `vendor`."""
    match = re.fullmatch(r"\s*(?:0x)?([0-9a-fA-F]{1,8})\s*", text or "")
    return int(match[1], 16) if match else None


def _family(vendor: int, device: int, base: int, driver: str | None, address: str) -> tuple[str | None, Kind | None]:
    """Label and kind; no label where it is neither an accelerator nor of class 03 or 12."""
    label, own_driver, devices = _BY_DEVICE.get(vendor, ("", "", frozenset[int]()))
    if device in devices or (driver is not None and driver == own_driver):
        return label, "npu"
    name, kind, classes = _BY_CLASS.get(vendor, ("", "gpu", ()))
    if base in classes:
        return name, "igpu" if (vendor, address) == (0x8086, "0000:00:02.0") else kind
    return {_DISPLAY: OTHER_DISPLAY, _ACCELERATOR: "processing accelerator"}.get(base), None

"""Functions of the PCI bus that NVIDIA's driver has."""

from vllm_probe.core.system import Host
from vllm_probe.vendors.nvidia import PLUGIN
from vllm_probe.vendors.pci import PciFunction, accelerators

_VENDORS = PLUGIN.pci_vendors


def driven(host: Host) -> list[PciFunction]:
    """GPUs that the driver can tell of, in the order of the bus: it counts none that another driver has, or nobody."""
    return [each for each in accelerators(host) if each.kind and each.vendor in _VENDORS and each.driver == "nvidia"]

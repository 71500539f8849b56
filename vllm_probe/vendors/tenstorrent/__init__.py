"""Tenstorrent accelerators."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="tenstorrent",
    device_types=("tenstorrent",),
    probe="vllm_probe.vendors.tenstorrent.probe:probe",
    pci_vendors=(0x1E52,),
    signs=("/dev/tenstorrent/[0-9]*",),
    container=ContainerAccess(nodes=("/dev/tenstorrent",), mounts=("/dev/hugepages-1G",)),
)

"""Iluvatar CoreX GPUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="iluvatar",
    device_types=("iluvatar", "corex"),
    probe="vllm_probe.vendors.iluvatar.probe:probe",
    pci_vendors=(0x1E3E,),
    signs=("/dev/iluvatar[0-9]*",),
    container=ContainerAccess(nodes=("/dev/iluvatar0",)),
)

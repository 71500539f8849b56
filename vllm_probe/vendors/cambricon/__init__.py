"""Cambricon MLUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="cambricon",
    device_types=("cambricon", "mlu"),
    probe="vllm_probe.vendors.cambricon.probe:probe",
    pci_vendors=(0xCABC,),
    signs=("/dev/cambricon_dev[0-9]*",),
    container=ContainerAccess(nodes=("/dev/cambricon_ctl", "/dev/cambricon_dev0")),
)

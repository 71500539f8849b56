"""MetaX GPUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="metax",
    device_types=("metax", "maca"),
    probe="vllm_probe.vendors.metax.probe:probe",
    pci_vendors=(0x9999,),
    signs=(),
    container=ContainerAccess(nodes=("/dev/mxcd", "/dev/dri"), groups_of=("/dev/dri/renderD*",)),
)

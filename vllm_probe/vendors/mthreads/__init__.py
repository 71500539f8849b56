"""Moore Threads GPUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="mthreads",
    device_types=("mthreads", "musa"),
    probe="vllm_probe.vendors.mthreads.probe:probe",
    pci_vendors=(0x1ED5,),
    signs=("/dev/mtgpu*",),
    container=ContainerAccess(nodes=("/dev/mtgpu.0", "/dev/dri"), groups_of=("/dev/dri/renderD*",)),
)

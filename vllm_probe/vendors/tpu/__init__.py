"""Google TPUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="tpu",
    device_types=("tpu",),
    probe="vllm_probe.vendors.tpu.probe:probe",
    pci_vendors=(0x1AE0,),
    signs=("/dev/accel[0-9]*",),
    container=ContainerAccess(nodes=("/dev/accel0",)),
)

"""AWS Inferentia and Trainium."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="neuron",
    device_types=("neuron",),
    probe="vllm_probe.vendors.neuron.probe:probe",
    pci_vendors=(0x1D0F,),
    signs=("/dev/neuron[0-9]*",),
    container=ContainerAccess(nodes=("/dev/neuron0",)),
)

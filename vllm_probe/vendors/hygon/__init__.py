"""Hygon DCUs, which have a ROCm of their own."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="hygon",
    device_types=("hygon", "dcu"),
    probe="vllm_probe.vendors.hygon.probe:probe",
    pci_vendors=(0x1D94,),
    signs=(),
    container=ContainerAccess(
        nodes=("/dev/kfd", "/dev/mkfd", "/dev/dri"), groups_of=("/dev/kfd", "/dev/dri/renderD*"), mounts=("/opt/hyhal",)
    ),
)

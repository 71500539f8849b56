"""AMD GPUs and the XDNA NPUs of AMD processors."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="amd",
    device_types=("amd", "rocm"),
    probe="vllm_probe.vendors.amd.probe:probe",
    adapter="vllm_probe.vendors.amd.adapter:AmdAdapter",
    health="vllm_probe.vendors.amd.health:health",
    adapter_kinds=("gpu", "igpu"),
    pci_vendors=(0x1002, 0x1022),
    signs=("/dev/dxg",),
    container=ContainerAccess(
        nodes=("/dev/kfd", "/dev/dri"),
        groups_of=("/dev/kfd", "/dev/dri/renderD*"),
        shares_ipc=True,
        resources={"*": "amd.com/gpu"},  # https://github.com/ROCm/k8s-device-plugin
    ),
)

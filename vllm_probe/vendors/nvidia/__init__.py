"""NVIDIA GPUs: on PCI, behind WSL, and in Jetson modules."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="nvidia",
    device_types=("nvidia", "cuda"),
    probe="vllm_probe.vendors.nvidia.probe:probe",
    adapter="vllm_probe.vendors.nvidia.adapter:NvidiaAdapter",
    health="vllm_probe.vendors.nvidia.lib:health",
    pci_vendors=(0x10DE,),
    signs=("/dev/nvidia[0-9]*", "/dev/dxg", "/proc/device-tree/compatible", "windows x86_64", "windows aarch64"),
    container=ContainerAccess(
        runtime="nvidia",
        env={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        resources={"*": "nvidia.com/gpu"},  # https://github.com/NVIDIA/k8s-device-plugin
    ),
)

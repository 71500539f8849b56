"""Intel GPUs, integrated and discrete, and the NPUs of Intel processors."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="intel",
    device_types=("intel_xpu", "intel", "xpu"),
    probe="vllm_probe.vendors.intel.probe:probe",
    adapter="vllm_probe.vendors.intel.adapter:IntelAdapter",
    health="vllm_probe.vendors.intel.health:health",
    adapter_kinds=("gpu", "igpu"),
    pci_vendors=(0x8086,),
    signs=("/dev/dxg",),
    container=ContainerAccess(
        nodes=("/dev/dri",),
        groups_of=("/dev/dri/renderD*",),
        resources={"*": "gpu.intel.com/{driver}"},  # https://github.com/intel/intel-device-plugins-for-kubernetes
    ),
)

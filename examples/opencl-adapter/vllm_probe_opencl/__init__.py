"""OpenCL devices for vllm-probe; the entry point of this package names `PLUGIN`."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="opencl",
    device_types=("opencl",),
    probe="vllm_probe_opencl.probe:probe",
    adapter="vllm_probe_opencl.adapter:OpenClAdapter",
    capabilities="vllm_probe_opencl:capabilities",
    requires=("an OpenCL driver registered in /etc/OpenCL/vendors",),
)

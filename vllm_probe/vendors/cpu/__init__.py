"""The processors of the machine itself."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="cpu",
    device_types=("cpu",),
    probe="vllm_probe.vendors.cpu.probe:probe",
    checks="vllm_probe.vendors.cpu.checks:CHECKS",
    adapter="vllm_probe.vendors.cpu.adapter:CpuAdapter",
)

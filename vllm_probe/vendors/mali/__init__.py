"""Arm Mali and Immortalis GPUs."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="mali",
    device_types=("mali",),
    probe="vllm_probe.vendors.mali.probe:probe",
    signs=("/dev/mali0", "/sys/class/drm/renderD*/device/driver"),
)

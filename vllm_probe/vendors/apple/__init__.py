"""Apple GPUs, under macOS and under Linux."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="apple",
    device_types=("apple", "mps"),
    probe="vllm_probe.vendors.apple.probe:probe",
    signs=("darwin aarch64", "darwin arm64", "/sys/class/drm/renderD*/device/driver"),
)

"""Qualcomm Adreno GPUs of phones, boards and laptops."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="adreno",
    device_types=("adreno",),
    probe="vllm_probe.vendors.adreno.probe:probe",
    signs=("/sys/class/kgsl/kgsl-3d0/gpu_model", "/dev/kgsl-3d0", "/sys/class/drm/renderD*/device/driver"),
)

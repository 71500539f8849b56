"""A device without hardware, for tests: it takes as long as a script says."""

from vllm_probe.core.plugin import API_VERSION, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="null",
    device_types=("null",),
    probe="vllm_probe.vendors.null.probe:probe",
    adapter="vllm_probe.vendors.null.adapter:NullAdapter",
)

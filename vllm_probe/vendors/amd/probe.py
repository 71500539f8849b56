"""Lists AMD GPUs and NPUs without a library."""

from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.layer0 import bus_devices, result
from vllm_probe.vendors.platforms import dxg


def probe(host: Host) -> ProbeResult:
    """Every AMD GPU and NPU of `host`."""
    return result([*bus_devices(host, PLUGIN), *dxg(host, PLUGIN.name)])

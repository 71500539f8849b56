"""Lists Cambricon MLUs without a library."""

from vllm_probe.vendors.cambricon import PLUGIN
from vllm_probe.vendors.layer0 import bus_probe

probe = bus_probe(PLUGIN)

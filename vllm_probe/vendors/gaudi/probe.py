"""Lists Gaudi accelerators without a library. Opening a node would take the device from others and reset it."""

from vllm_probe.vendors.gaudi import PLUGIN
from vllm_probe.vendors.layer0 import bus_probe

probe = bus_probe(PLUGIN)

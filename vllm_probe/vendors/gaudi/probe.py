"""Lists Gaudi accelerators without a library. Opening a node would take the device from others and reset it."""

from vllm_probe.vendors.gaudi import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

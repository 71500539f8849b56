"""Lists MetaX GPUs without a library."""

from vllm_probe.vendors.layer0 import bus_probe
from vllm_probe.vendors.metax import PLUGIN

probe = bus_probe(PLUGIN)

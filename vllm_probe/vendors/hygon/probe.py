"""Lists Hygon DCUs without a library."""

from vllm_probe.vendors.hygon import PLUGIN
from vllm_probe.vendors.layer0 import bus_probe

probe = bus_probe(PLUGIN)

"""Lists Ascend NPUs without DCMI or npu-smi."""

from vllm_probe.vendors.ascend import PLUGIN
from vllm_probe.vendors.layer0 import bus_probe

probe = bus_probe(PLUGIN)

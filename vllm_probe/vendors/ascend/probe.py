"""Lists Ascend NPUs without DCMI or npu-smi."""

from vllm_probe.vendors.ascend import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

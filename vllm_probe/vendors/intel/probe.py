"""Lists Intel GPUs and NPUs without a library."""

from vllm_probe.vendors.intel import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

"""Lists Cambricon MLUs without a library."""

from vllm_probe.vendors.cambricon import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

"""Lists MetaX GPUs without a library."""

from vllm_probe.vendors.metax import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

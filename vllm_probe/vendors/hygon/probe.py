"""Lists Hygon DCUs without a library."""

from vllm_probe.vendors.hygon import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

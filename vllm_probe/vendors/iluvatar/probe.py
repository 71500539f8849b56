"""Lists Iluvatar GPUs without a library."""

from vllm_probe.vendors.iluvatar import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

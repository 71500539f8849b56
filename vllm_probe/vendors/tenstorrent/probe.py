"""Lists Tenstorrent accelerators without a library."""

from vllm_probe.vendors.platforms import probe_of
from vllm_probe.vendors.tenstorrent import PLUGIN

probe = probe_of(PLUGIN)

"""Lists Google TPUs without libtpu; from v6e on they are bound to vfio-pci."""

from vllm_probe.vendors.platforms import probe_of
from vllm_probe.vendors.tpu import PLUGIN

probe = probe_of(PLUGIN)

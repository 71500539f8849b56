"""Lists Google TPUs without libtpu; from v6e on they are bound to vfio-pci."""

from vllm_probe.vendors.layer0 import bus_probe
from vllm_probe.vendors.tpu import PLUGIN

probe = bus_probe(PLUGIN)

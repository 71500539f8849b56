"""Lists AWS Neuron devices without a library."""

from vllm_probe.vendors.neuron import PLUGIN
from vllm_probe.vendors.platforms import probe_of

probe = probe_of(PLUGIN)

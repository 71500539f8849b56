"""What every torch backend does alike; a vendor overrides what its device does better."""

from vllm_probe.vendors.torchbase.accelerator import AcceleratorAdapter
from vllm_probe.vendors.torchbase.adapter import DTYPES, TorchAdapter

__all__ = ["DTYPES", "AcceleratorAdapter", "TorchAdapter"]

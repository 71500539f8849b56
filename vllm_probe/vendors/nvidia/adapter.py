"""NVIDIA GPUs through torch.cuda. Written from the documents named here; see docs/reference/vendors.md for what ran."""

import re

from vllm_probe.vendors.nvidia.cuda import copy_engines
from vllm_probe.vendors.torchbase import AcceleratorAdapter

_SINCE = {"fp16": 53, "int8": 75, "bf16": 80, "tf32": 80, "fp8_e4m3": 89}
"""Number format to the first compute capability whose tensor cores take it, fp16 to that of its arithmetic.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#features-and-technical-specifications; int8 as cuBLASLt
takes it, from Turing on.
"""


class NvidiaAdapter(AcceleratorAdapter):
    """A GPU that torch calls `cuda`."""

    torch_name = "cuda"
    index_names = ("cuda",)
    alignment_bytes = 256  # cudaMalloc: CUDA C++ Programming Guide, device memory accesses

    def _describe(self) -> None:
        super()._describe()
        self.copy_engines = copy_engines(self._host, self._index)

    def _formats(self) -> tuple[str, ...]:
        found = re.fullmatch(r"sm_(\d+)[a-z]?", self.device.arch or "")
        capability = int(found[1]) if found else min(_SINCE.values())
        return tuple(dtype for dtype, since in _SINCE.items() if capability >= since)

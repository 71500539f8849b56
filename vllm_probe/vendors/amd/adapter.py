"""AMD GPUs through ROCm, which torch calls `cuda`. Nothing of it has run on hardware yet."""

import torch

from vllm_probe.vendors.torchbase import AcceleratorAdapter

_FNUZ = ("gfx940", "gfx941", "gfx942")
_OCP = ("gfx950", "gfx12")
_INT8 = ("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
_NO_BF16 = ("gfx8", "gfx900", "gfx906", "gfx101", "gfx103")
"""Prefixes of architectures, by what they multiply.

fp8: https://rocm.docs.amd.com/en/latest/reference/precision-support.html (gfx940 to gfx942 have no negative zero and no
infinity, later ones the OCP format); matrix instructions:
https://github.com/ROCm/amd_matrix_instruction_calculator.
"""


class AmdAdapter(AcceleratorAdapter):
    """A GPU that torch calls `cuda` and counts as HIP does."""

    torch_name = "cuda"
    index_names = ("hip", "cuda")
    alignment_bytes = 256  # hipMalloc gives what cudaMalloc does

    def _formats(self) -> tuple[str, ...]:
        arch = self.device.arch or ""
        formats = {
            "fp16": True,
            "bf16": not arch.startswith(_NO_BF16),
            "int8": arch.startswith(_INT8),
            "fp8_e4m3": arch.startswith(_FNUZ + _OCP),
        }
        return tuple(dtype for dtype, has in formats.items() if has)

    def _lanes(self) -> int:
        """A wave of CDNA and GCN is 64 wide, one of RDNA 32: https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html."""
        return 64 if (self.device.arch or "").startswith("gfx9") else 32

    def _fp8(self) -> torch.dtype:
        return torch.float8_e4m3fnuz if (self.device.arch or "").startswith(_FNUZ) else torch.float8_e4m3fn

"""Intel GPUs through torch.xpu. Nothing of it has run on hardware yet."""

from vllm_probe.vendors.torchbase import AcceleratorAdapter


class IntelAdapter(AcceleratorAdapter):
    """A GPU that torch calls `xpu`; int8 and fp8 where this torch has an XPU kernel for them."""

    torch_name = "xpu"
    index_names = ("xpu", "level_zero")

    def _formats(self) -> tuple[str, ...]:
        """Xe-LPG, Xe-HPG and later: https://docs.pytorch.org/docs/stable/notes/get_start_xpu.html."""
        return ("fp16", "bf16", "int8", "fp8_e4m3")

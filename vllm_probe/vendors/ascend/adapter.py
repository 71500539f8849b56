"""Huawei Ascend NPUs through torch_npu. Nothing of it has run on hardware yet."""

from importlib import import_module

from vllm_probe.core.errors import MissingExtra
from vllm_probe.core.primitive import CompileHints
from vllm_probe.core.system import Host
from vllm_probe.vendors.torchbase import AcceleratorAdapter


class AscendAdapter(AcceleratorAdapter):
    """An NPU that torch calls `npu` once torch_npu is imported.

    No int8: `npu_quant_matmul` gives int8, fp16 or bf16 and not the sums
    (https://www.hiascend.com/document/detail/zh/Pytorch/700/apiref/apilist/ptaoplist_001249.html).
    """

    torch_name = "npu"
    index_names = ("npu",)
    alignment_bytes = 512
    """Global memory is read up to 30 % faster than at 32: optimisation guide of Ascend C, alignment of addresses."""

    def __init__(self, host: Host) -> None:
        """Imports torch_npu, which adds `torch.npu`.

        Raises:
            MissingExtra: it is not installed.
        """
        super().__init__(host)
        self._version = self._import()

    def _import(self) -> str:
        try:
            return str(import_module("torch_npu").__version__)
        except ModuleNotFoundError as error:
            hint = "install the torch_npu of your CANN version: https://github.com/Ascend/pytorch"
            raise MissingExtra("the adapter ascend needs torch_npu", hint=hint) from error

    def software(self) -> dict[str, str]:
        """The versions of torch and torch_npu."""
        return super().software() | {"torch_npu": self._version}

    def _toolchain(self, hints: CompileHints) -> str:  # noqa: ARG002
        return "torch_npu compiles whole graphs by torchair, and inductor has no Ascend backend of its own"

    def _describe(self) -> None:
        """There are no groups of lanes: a cube of 16 x 16 x 16, and vectors of 256 bytes."""
        super()._describe()
        self.native_group_width = None

    def _formats(self) -> tuple[str, ...]:
        """bf16 from the 910B on: https://www.hiascend.com/document/detail/en/canncommercial/80RC22."""
        return ("fp16", "bf16") if (self.device.arch or "").startswith(("910b", "910_93", "910c", "950")) else ("fp16",)

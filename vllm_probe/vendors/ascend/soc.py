"""Which chip a name means."""

import re
from typing import NamedTuple

_VARIANTS = re.compile(r"910B[1-4](?:C|-1)?|310P[1-7]|310B[1-4]|910(?:PremiumA|ProA|ProB|A)|310", re.IGNORECASE)
"""Names that say which variant it is: torch_npu/csrc/core/npu/NpuVariables.cpp of https://github.com/Ascend/pytorch.
A bare `910` or `910B` does not: first 910s call themselves 910B (https://github.com/vllm-project/vllm-ascend/issues/3010)
and the chips of Atlas A3 call themselves Ascend910."""
_A3 = re.compile(r"910_93[0-9]{2}")
_A5 = re.compile(r"950(?:PR|DT)(?:_[0-9a-z]{4})?", re.IGNORECASE)


class Soc(NamedTuple):
    """A chip.

    Attributes:
        name: as people call it.
        arch: our word for it.
        version: name of the chip in CANN, such as `Ascend910B3`.
    """

    name: str
    arch: str
    version: str


def soc_of(chip_name: str | None, npu_name: str | None = None) -> Soc | None:
    """The chip that DCMI or npu-smi calls `chip_name`, and `npu_name` beside it on Atlas A3 and later; null if vague.

    CANN's name is the chip's, and from A3 on both names joined: `npu-smi info -t board` in Huawei's guide to operators.
    """
    model = re.sub(r"(?i)^\s*ascend\s*", "", chip_name or "").strip()
    whole = f"{model}_{npu_name}" if re.fullmatch(r"[0-9][0-9a-z]{3}", npu_name or "") and "_" not in model else model
    if _A3.fullmatch(whole):
        return Soc("Huawei Ascend 910C", "910_93", f"Ascend{whole}")
    if _A5.fullmatch(whole):
        return Soc(f"Huawei Ascend {model.partition('_')[0]}", whole[:5].lower(), f"Ascend{whole}")
    if _VARIANTS.fullmatch(model):
        return Soc(f"Huawei Ascend {model}", model.lower(), f"Ascend{model}")
    return None

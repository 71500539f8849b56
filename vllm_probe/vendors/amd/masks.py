"""Numbers of GPUs in HIP, from the environment variables that hide some and order the rest.

ROCR_VISIBLE_DEVICES counts GPUs in KFD's order, then HIP_VISIBLE_DEVICES, or where it is not set
CUDA_VISIBLE_DEVICES, counts those that are left; what follows an entry that names none is ignored:
https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. GPU_DEVICE_ORDINAL does the same for OpenCL only:
HIP's runtime does not read it (`Device::init` in rocclr/device/rocm/rocdevice.cpp of https://github.com/ROCm/clr).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_probe.core.system import Host

ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Mask:
    """An environment variable that is set."""

    name: str
    value: str

    @property
    def hides_all(self) -> bool:
        """Whether it names no device at all."""
        return self.value in {"", "-1"}


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU or partition: its address, and `GPU-` with the 16 digits of its unique id, where it has one."""

    id: str
    uuid: str | None = None


def read_masks(host: Host) -> tuple[Mask, ...]:
    """The variables that count here, in the order in which they are applied."""
    values = {name: host.env(name) for name in (ROCR, *_HIP)}
    names = (ROCR, next((name for name in _HIP if values[name] is not None), _HIP[0]))
    return tuple(Mask(name, value) for name in names if (value := values[name]) is not None)


def apply(cards: Sequence[Card], masks: Sequence[Mask]) -> tuple[dict[str, int], dict[str, Mask]]:
    """Address to number in HIP of what is left, and address to the first variable that hides it of the rest."""
    left, hidden = list(cards), dict[str, Mask]()
    for mask in masks:
        named = _named(left, mask)
        hidden |= {card.id: mask for card in left if card not in named}
        left = named
    return {card.id: number for number, card in enumerate(left)}, hidden


def _named(cards: Sequence[Card], mask: Mask) -> list[Card]:
    found: list[Card] = []
    for token in (token.strip() for token in mask.value.split(",")):
        card = _meant(token, cards)
        if card is None or (card in found and mask.name == ROCR):
            break
        found += [] if card in found else [card]
    return found


def _meant(token: str, cards: Sequence[Card]) -> Card | None:
    if re.fullmatch(r"[0-9]{1,4}", token):
        return cards[int(token)] if int(token) < len(cards) else None
    wanted = [card for card in cards if token[:4].upper() == "GPU-" and (card.uuid or "").startswith(token.upper())]
    return wanted[0] if len(wanted) == 1 else None

"""Which implementations of the primitives an adapter has, and the refusal of names that it has not."""

from abc import abstractmethod
from typing import NoReturn

from vllm_probe.core.bringup import BringUp
from vllm_probe.core.errors import UnknownName
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.values import COMPUTE_DTYPES


class Offering(BringUp):
    """What one device offers, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._offered: set[tuple[Primitive, str]] = set()

    @abstractmethod
    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """Names of the implementations of `primitive` in `dtype`, the preferred one first; empty when it has none.

        The format is that of the operands: of weight and activations, of the rows that are quantized; a swap moves
        bytes, which are `int8`.
        """

    def _require_known(self, primitive: Primitive, implementation: str | None) -> None:
        """Refuses a name that `primitive` has in no format; a name that was found once is not looked for again."""
        if implementation is None or (primitive, implementation) in self._offered:
            return
        names = {name for dtype in COMPUTE_DTYPES for name in self.implementations(primitive, dtype)}
        if not names:
            self._missing(primitive)
        if implementation not in names:
            raise UnknownName(f"{primitive} has no implementation {implementation!r}", hint="see implementations()")
        self._offered.add((primitive, implementation))

    def _first(self, primitive: Primitive, dtype: str) -> str:
        names = self.implementations(primitive, dtype)
        if not names:
            raise UnknownName(f"{self.device.id} has no {primitive} in {dtype}", hint="ask supports() first")
        return names[0]

    def _missing(self, primitive: Primitive) -> NoReturn:
        raise UnknownName(f"{self.device.id} has no {primitive}", hint="ask supports() first")

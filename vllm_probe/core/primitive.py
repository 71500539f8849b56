"""What adapters compute, and the small records that their answers come in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from vllm_probe.core.values import FenceScope


class DeviceTensor(Protocol):
    """What everybody may know of an adapter's own array type."""

    @property
    def shape(self) -> Sequence[int]:
        """Sizes, rows first."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...


Tensor = TypeVar("Tensor", bound=DeviceTensor)
"""An adapter's own array type, opaque to everybody else."""

Linear: TypeAlias = Callable[[Tensor], Tensor]
"""A prepared linear: activations [rows, k] to [rows, n]."""


class Primitive(StrEnum):
    """Operations that an adapter may have several implementations of."""

    LINEAR = "linear"
    ATTENTION = "attention"
    ROPE = "rope"
    RMS_NORM = "rms_norm"
    QUANTIZE = "quantize"
    SWAP = "swap"

    @property
    def fence_scope(self) -> FenceScope:
        """Scope of the fence behind it: a swap is read by the other side, the others by the next call in order."""
        return "system" if self is Primitive.SWAP else "none"


class Event(Protocol):
    """A point in a queue of the device."""

    def wait(self) -> None:
        """Returns when everything queued before the point is done."""


@dataclass(frozen=True, slots=True)
class Done:
    """The event of an operation that was over when its call returned."""

    def wait(self) -> None:
        """Returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Whether a primitive runs in a number format.

    Attributes:
        ok: it runs.
        reason: why not, or at what cost.
    """

    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """Memory of the device now.

    Attributes:
        total_bytes: capacity.
        free_bytes: what can be allocated.
    """

    total_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What the device says of itself while it works; null is unknown.

    Attributes:
        clock_mhz: clock of the compute units now.
        temperature_c: hottest sensor.
        power_w: power drawn.
        held_down: what keeps the clock below its maximum (`thermal`, `power`, ...), null when nobody tells.
        quota_periods: periods in which a processor quota ran out, counted from an arbitrary start.
    """

    clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    held_down: tuple[str, ...] | None = None
    quota_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileHints:
    """What a compiler may know of the device, from its descriptor, and where it may keep its work.

    Attributes:
        matrix_instructions: matrix or dot-product instruction sets present.
        cache_bytes: last-level cache, null when unknown.
        group_width: lanes that execute together, null when unknown.
        mode: `default`, `reduce-overhead` or `max-autotune`.
        folder: private folder for compiled code, null to keep none.
        rows: positions of the arguments whose first size changes from call to call.
    """

    matrix_instructions: tuple[str, ...] = ()
    cache_bytes: int | None = None
    group_width: int | None = None
    mode: str = "default"
    folder: Path | None = None
    rows: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A function ready to be called, compiled or as it was.

    Attributes:
        function: takes and gives what the original does.
        backend: name of the compiler, null when there is none.
        reason: why this backend, or why none.
    """

    function: Callable[..., Any]
    backend: str | None = None
    reason: str = ""

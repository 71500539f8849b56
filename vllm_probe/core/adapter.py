"""HardwareAdapter: what one vendor implements so that bench and the runtime can use its device."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Generic, TypeAlias, TypeVar, cast

from vllm_probe.core.device import Device
from vllm_probe.core.errors import AdapterOutOfOrder
from vllm_probe.core.values import FenceScope

Tensor = TypeVar("Tensor")
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


class Stage(IntEnum):
    """How far an adapter has been brought up; each stage needs the one before."""

    NEW = 0
    DEVICE_SET = 1
    OPEN = 2


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


class HardwareAdapter(ABC, Generic[Tensor]):
    """One device, brought up in order: `set_device`, `open`, then everything else.

    Public methods check the order and call the `_hook` of the same name; a vendor overrides hooks and
    primitives, never the order. Number formats are capability words (`bf16`, `int8`).
    """

    memory_fence_scope: FenceScope = "none"
    """Widest fence that the device offers; it describes the device and weakens nothing."""

    alignment_bytes: int = 64
    """Alignment that allocations have at least."""

    def __init__(self) -> None:
        self._stage = Stage.NEW
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        """The device that was set.

        Raises:
            AdapterOutOfOrder: before `set_device`.
        """
        self._require(Stage.DEVICE_SET, "device")
        assert self._device is not None
        return self._device

    def set_device(self, device: Device) -> None:
        """Chooses the device of this process; it cannot be changed while open."""
        if self._stage is Stage.OPEN:
            raise AdapterOutOfOrder("set_device after open", hint="close the adapter first")
        self._device = device
        self._stage = Stage.DEVICE_SET

    def open(self) -> None:
        """Creates the device's context."""
        self._require(Stage.DEVICE_SET, "open")
        if self._stage is not Stage.OPEN:
            self._open()
            self._stage = Stage.OPEN

    def close(self) -> None:
        """Releases the context; allocations of this adapter are invalid afterwards."""
        if self._stage is Stage.OPEN:
            self._close()
            self._stage = Stage.DEVICE_SET

    def memory(self) -> MemoryReading:
        """Total and free memory of the device."""
        self._require(Stage.OPEN, "memory")
        return self._memory()

    def allocate(self, nbytes: int, alignment: int | None = None) -> Tensor:
        """`nbytes` of uninitialised device memory whose address is a multiple of `alignment`."""
        self._require(Stage.OPEN, "allocate")
        return self._allocate(nbytes, alignment or self.alignment_bytes)

    def random(self, shape: Sequence[int], dtype: str, seed: int) -> Tensor:
        """Seeded data: standard normal for floating formats, the full range for int8."""
        self._require(Stage.OPEN, "random")
        return self._random(tuple(shape), dtype, seed)

    def to_host(self, tensor: Tensor) -> list[Any]:
        """The values of `tensor` as nested lists, rows first."""
        self._require(Stage.OPEN, "to_host")
        return self._to_host(tensor)

    def prepare_linear(self, weight: Tensor, bias: Tensor | None, dtype: str, implementation: str) -> Linear[Tensor]:
        """An operator for `weight` [n, k] in `dtype`, packed as `implementation` wants it.

        The operator takes activations [rows, k] and gives [rows, n]: `dtype`, or int32 for int8. The weight may
        be released afterwards.
        """
        self._require(Stage.OPEN, "prepare_linear")
        return self._prepare_linear(weight, bias, dtype, implementation)

    def _to_host(self, tensor: Tensor) -> list[Any]:
        values: list[Any] = cast("Any", tensor).tolist()
        return values

    def _require(self, stage: Stage, call: str) -> None:
        if self._stage < stage:
            needed = {Stage.DEVICE_SET: "set_device", Stage.OPEN: "open"}[stage]
            raise AdapterOutOfOrder(f"{call} before {needed}", hint=f"call {needed}() first")

    @abstractmethod
    def supports(self, primitive: Primitive, dtype: str) -> Support:
        """Whether `primitive` runs in `dtype` on this device with what is installed."""

    @abstractmethod
    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """Names of the implementations of `primitive` in `dtype`, the preferred one first."""

    @abstractmethod
    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copies all of `source` over `target`, of the same shape and format."""

    @abstractmethod
    def read(self, source: Tensor) -> Tensor:
        """Reduces `source` to one value, reading every byte once."""

    @abstractmethod
    def triad(self, b: Tensor, c: Tensor, scale: float, out: Tensor) -> None:
        """Writes `b + scale * c` to `out`."""

    @abstractmethod
    def fence(self, scope: FenceScope) -> None:
        """Orders memory up to `scope`; no scope is weakened."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until everything queued on the device is done."""

    @abstractmethod
    def time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Seconds that `calls` take on the device, queued in order and synchronised once."""

    @abstractmethod
    def software(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _memory(self) -> MemoryReading: ...

    @abstractmethod
    def _allocate(self, nbytes: int, alignment: int) -> Tensor: ...

    @abstractmethod
    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Tensor: ...

    @abstractmethod
    def _prepare_linear(
        self, weight: Tensor, bias: Tensor | None, dtype: str, implementation: str
    ) -> Linear[Tensor]: ...

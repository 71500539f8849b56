"""HardwareAdapter: what one vendor implements so that bench and the runtime can use its device."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

from vllm_probe.core import arguments
from vllm_probe.core.bringup import Stage
from vllm_probe.core.operations import Operations
from vllm_probe.core.primitive import Event, MemoryReading, Telemetry, Tensor
from vllm_probe.core.values import COMPUTE_DTYPES, FenceScope


class HardwareAdapter(Operations[Tensor]):
    """One device, brought up in order: `set_device`, `open`, then everything else.

    Public methods check the order and what they are given, then call the `_hook` of the same name: a vendor overrides
    hooks, never the checks. Only the hooks that are abstract are needed.
    """

    memory_fence_scope: FenceScope = "none"
    """Widest fence that the device offers; it describes the device and weakens nothing."""

    alignment_bytes: int = 64
    """Alignment that allocations have at least."""

    held_formats: tuple[str, ...] = COMPUTE_DTYPES
    """Number formats that `random` and `from_host` make."""

    kernels: Mapping[str, str] = {}
    """What `read`, `copy`, `triad` and `stream` run, by name."""

    copy_queues: int = 1
    """Queues whose copies can run at the same time."""

    copy_engines: int | None = None
    """Engines that copy beside the compute units, null where nobody tells."""

    num_units: int | None = None
    """Compute units: multiprocessors, cores of a GPU; null leaves it to what the probe found."""

    native_group_width: int | None = None
    """Lanes that execute together: warp, wave, sub-group or vector; null leaves it to what the probe found."""

    supported_group_widths: tuple[int, ...] = ()
    """All widths that code can have, where there is more than the native one."""

    compile_folder: Path | None = None
    """Private folder for implementations that are compiled, which exist only where somebody set one."""

    def __init__(self) -> None:
        super().__init__()
        self._pinned: dict[int, Tensor] = {}

    @property
    def pinned_bytes(self) -> int:
        """Pinned host memory that is not released yet."""
        return sum(tensor.nbytes for tensor in self._pinned.values())

    def close(self) -> None:
        """Releases all pinned memory and the context; what was allocated is invalid afterwards."""
        try:
            for tensor in [*self._pinned.values()]:
                self.release(tensor)
        finally:
            super().close()

    def memory(self) -> MemoryReading:
        """Total and free memory of the device."""
        self._require(Stage.OPEN, "memory")
        return self._memory()

    def telemetry(self) -> Telemetry:
        """Clock, heat and limits now; other threads may call it while the device works."""
        self._require(Stage.OPEN, "telemetry")
        return self._telemetry()

    def allocate(self, nbytes: int, alignment: int | None = None) -> Tensor:
        """`nbytes` of uninitialised device memory whose address is a multiple of `alignment`, a power of two.

        Returns:
            int8 [nbytes].

        Raises:
            BadUsage: a size that is not whole or negative, or an alignment that is no power of two.
            MemoryError: there is not as much; the adapter stays usable.
        """
        self._require(Stage.OPEN, "allocate")
        return self._allocate(nbytes, self._checked(nbytes, alignment))

    def allocate_pinned(self, nbytes: int, alignment: int | None = None) -> Tensor:
        """As `allocate`, in host memory that the device reads and writes directly, until `release` or `close`."""
        self._require(Stage.OPEN, "allocate_pinned")
        tensor = self._allocate_host(nbytes, self._checked(nbytes, alignment), pinned=True)
        self._pinned[id(tensor)] = tensor
        return tensor

    def allocate_pageable(self, nbytes: int) -> Tensor:
        """As `allocate`, in ordinary host memory, for transfers that the device cannot make directly."""
        self._require(Stage.OPEN, "allocate_pageable")
        return self._allocate_host(nbytes, self._checked(nbytes, None), pinned=False)

    def release(self, tensor: Tensor) -> None:
        """Gives pinned memory back; `tensor` is invalid afterwards."""
        self._require(Stage.OPEN, "release")
        if self._pinned.pop(id(tensor), None) is not None:
            self._release(tensor)

    def address(self, tensor: Tensor) -> int | None:
        """Where `tensor` begins, null where the device has no addresses to show."""
        self._require(Stage.OPEN, "address")
        return self._address(tensor)

    def random(self, shape: Sequence[int], dtype: str, seed: int) -> Tensor:
        """Seeded data: standard normal for floating formats, the full range for int8.

        Raises:
            UnknownName: `dtype` is none of `held_formats`.
            BadUsage: a size that is not whole or negative.
        """
        self._require(Stage.OPEN, "random")
        arguments.check_format(dtype, self.held_formats)
        arguments.check_shape(shape)
        return self._random(tuple(shape), dtype, seed)

    def from_host(self, values: Sequence[Any], dtype: str) -> Tensor:
        """Nested lists of numbers, rows first, as a tensor in `dtype`.

        Raises:
            UnknownName: `dtype` is none of `held_formats`.
        """
        self._require(Stage.OPEN, "from_host")
        arguments.check_format(dtype, self.held_formats)
        return self._from_host(values, dtype)

    def to_host(self, tensor: Tensor) -> list[Any]:
        """The values of `tensor` as nested lists, rows first."""
        self._require(Stage.OPEN, "to_host")
        return self._to_host(tensor)

    def at(self, tensor: Tensor, places: Sequence[Sequence[int]]) -> list[Any]:
        """What `tensor` holds at `places`, each an index into its first dimensions or all: nested lists or numbers."""
        self._require(Stage.OPEN, "at")
        return self._at(tensor, places)

    def part(self, tensor: Tensor, offset: int, nbytes: int) -> Tensor | None:
        """The `nbytes` from `offset` on of a vector, as int8 in its own memory; null where none can be named.

        Raises:
            BadUsage: it does not lie within `tensor`.
        """
        self._require(Stage.OPEN, "part")
        arguments.check_part(tensor, offset, nbytes)
        return self._part(tensor, offset, nbytes)

    def copy(self, source: Tensor, target: Tensor, *, non_blocking: bool = False, queue: int = 0) -> Event:
        """Copies all of `source` over `target`, of the same size and format, wherever each of them is.

        `non_blocking` returns once the copy stands in `queue`, of which there are `copy_queues`; the event tells its
        end. Without it the copy is over, or in the one queue that everything else is in.

        Raises:
            BadUsage: `target` has another size or format, or there is no such queue.
        """
        self._require(Stage.OPEN, "copy")
        arguments.check_copy(source, target, queue, self.copy_queues)
        return self._copy(source, target, non_blocking=non_blocking, queue=queue)

    def read(self, source: Tensor) -> Tensor:
        """Reduces `source` to one value, reading every byte once."""
        self._require(Stage.OPEN, "read")
        return self._read(source)

    def triad(self, b: Tensor, c: Tensor, scale: float, out: Tensor) -> None:
        """Writes `b + scale * c` to `out`."""
        self._require(Stage.OPEN, "triad")
        self._triad(b, c, scale, out)

    def stream(self, source: Tensor, target: Tensor) -> bool:
        """Copies as `copy`, with stores that leave nothing in the caches; false where there are none, nothing done."""
        self._require(Stage.OPEN, "stream")
        return self._stream(source, target)

    def fence(self, scope: FenceScope) -> None:
        """Orders memory up to `scope`, at least; no scope is weakened.

        Raises:
            UnknownName: there is no such scope.
        """
        self._require(Stage.OPEN, "fence")
        arguments.check_scope(scope)
        self._fence(scope)

    def synchronize(self) -> None:
        """Waits until everything queued on the device is done."""
        self._require(Stage.OPEN, "synchronize")
        self._synchronize()

    def time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Seconds that `calls` take on the device, queued in order and synchronised once."""
        self._require(Stage.OPEN, "time_batch")
        return self._time_batch(calls)

    def is_compiled(self, implementation: str) -> bool:  # noqa: ARG002
        """Whether `implementation` is code that this adapter compiles, and compares with what it was compiled from."""
        return False

    def settle(self, timeout_s: float) -> bool:
        """Whether all that is being compiled is done within `timeout_s`; until then it runs uncompiled."""
        self._require(Stage.OPEN, "settle")
        return self._settle(timeout_s)

    def clock(self) -> float:
        """Seconds from an arbitrary start, by the clock that tells how long the host waits for the device."""
        self._require(Stage.OPEN, "clock")
        return self._clock()

    def processor_s(self) -> float:
        """Seconds that the processors of the host have spent on this process."""
        self._require(Stage.OPEN, "processor_s")
        return self._processor_s()

    @abstractmethod
    def software(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""

    @abstractmethod
    def _memory(self) -> MemoryReading: ...

    @abstractmethod
    def _allocate(self, nbytes: int, alignment: int) -> Tensor: ...

    @abstractmethod
    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> Tensor: ...

    @abstractmethod
    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Tensor: ...

    @abstractmethod
    def _from_host(self, values: Sequence[Any], dtype: str) -> Tensor: ...

    @abstractmethod
    def _copy(self, source: Tensor, target: Tensor, *, non_blocking: bool, queue: int) -> Event: ...

    @abstractmethod
    def _read(self, source: Tensor) -> Tensor: ...

    @abstractmethod
    def _triad(self, b: Tensor, c: Tensor, scale: float, out: Tensor) -> None: ...

    def _stream(self, source: Tensor, target: Tensor) -> bool:  # noqa: ARG002
        return False

    @abstractmethod
    def _synchronize(self) -> None: ...

    @abstractmethod
    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float: ...

    def _telemetry(self) -> Telemetry:
        return Telemetry()

    def _clock(self) -> float:
        return time.perf_counter()

    def _processor_s(self) -> float:
        return time.process_time()

    def _part(self, tensor: Tensor, offset: int, nbytes: int) -> Tensor | None:  # noqa: ARG002
        return None

    def _settle(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True

    def _address(self, tensor: Tensor) -> int | None:  # noqa: ARG002
        return None

    def _release(self, tensor: Tensor) -> None: ...

    def _checked(self, nbytes: int, alignment: int | None) -> int:
        """The alignment of an allocation, by default the adapter's."""
        wanted = self.alignment_bytes if alignment is None else alignment
        arguments.check_allocation(self.device.id, nbytes, wanted)
        return wanted

    def _at(self, tensor: Tensor, places: Sequence[Sequence[int]]) -> list[Any]:
        """Worth overriding where only what is asked for can be fetched."""
        values = self._to_host(tensor)
        return [reduce(getitem, place, values) for place in places]

    def _to_host(self, tensor: Tensor) -> list[Any]:
        values: list[Any] = cast("Any", tensor).tolist()
        return values

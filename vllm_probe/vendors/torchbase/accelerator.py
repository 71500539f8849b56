"""AcceleratorAdapter: what the torch backends of GPUs and NPUs do alike, over `torch.get_device_module`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch.nn import functional

from vllm_probe.core.bringup import Stage
from vllm_probe.core.errors import DeviceUnavailable
from vllm_probe.core.primitive import CompileHints, Done, Event, Linear, MemoryReading, Primitive, Support
from vllm_probe.vendors.torchbase.adapter import TorchAdapter
from vllm_probe.vendors.torchbase.compiling import Toolchain
from vllm_probe.vendors.torchbase.linear import has_kernel

_GATE_CYCLES, _MOST_CYCLES = 1 << 20, 1 << 27
"""How long the device is held while calls are queued: from half a millisecond to a tenth of a second at 1 to 2 GHz."""

_TILED = ("fp32", "bf16", "fp16", "int8")
_GROUPS = (1, 2, 4, 8, 16)
"""Number formats and groups to a tile of the Triton kernel; 4 groups are Triton's own default."""

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The event of something queued on the device.

    Attributes:
        event: what the backend recorded.
    """

    event: Any

    def wait(self) -> None:
        """Returns when the device has come to it."""
        self.event.synchronize()


class AcceleratorAdapter(TorchAdapter):
    """A device with streams, events and memory of its own. A vendor is a record of class attributes and `_formats`.

    It is timed by the events of one stream. Where the backend has a spinning kernel, it holds the stream while calls
    are queued, so that the time of launching is not in the measurement.
    """

    memory_fence_scope = "system"
    copy_queues = 8
    held_formats = (*TorchAdapter.held_formats, "tf32", "fp8_e4m3")
    """Streams; how many of them are worth using is for a measurement to tell."""

    torch_name: ClassVar[str]
    """What torch calls this kind of device: `cuda` (ROCm too), `xpu`, `npu`."""

    index_names: ClassVar[tuple[str, ...]]
    """Keys of `Device.indices` that count devices as torch does, after environment masks."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self._index = 0
        self._gate_cycles = _GATE_CYCLES
        self._streams: list[Any] = []

    @property
    def torch_device(self) -> str:  # type: ignore[override]  # a device type alone names the only device
        """The device in torch's words, such as `cuda:1`."""
        return f"{self.torch_name}:{self._index}"

    @cached_property
    def backend(self) -> Any:
        """The module of torch for this kind of device; the one seam through which it is reached."""
        return torch.get_device_module(self.torch_name)

    def _open(self) -> None:
        """Creates the context on the device that has this one's address, else its number.

        Raises:
            DeviceUnavailable: torch does not see it, or cannot initialise it; the text of torch is kept.
        """
        try:
            self._index = self._find()
            self.backend.set_device(self._index)
            self._synchronize()
        except (RuntimeError, AssertionError) as error:
            message = f"{self.device.id}: {str(error).partition(chr(10))[0]}"
            raise DeviceUnavailable(message, hint="run `vllm-probe doctor`") from error
        self._precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        self._streams = [self.backend.Stream(device=self._index) for _ in range(self.copy_queues)]
        self._describe()

    def _describe(self) -> None:
        """States what torch tells: `multi_processor_count` of CUDA and ROCm, Xe-cores and sub-groups of XPU."""
        told = self.backend.get_device_properties(self._index)
        names = ("multi_processor_count", "gpu_subslice_count")
        self.num_units = next((count for name in names if (count := getattr(told, name, None))), None)
        self.native_group_width = self._lanes()
        self.supported_group_widths = tuple(sorted(getattr(told, "sub_group_sizes", ())))

    def _close(self) -> None:
        torch.set_float32_matmul_precision(self._precision)
        self._streams.clear()
        self.backend.empty_cache()

    def _find(self) -> int:
        """Torch's number of this device: the one at its address, else its number; parts of a card share an address."""
        count, here = self.backend.device_count(), _ADDRESS.match(self.device.id)
        addresses = [self._address_of(index) for index in range(count)]
        wanted = tuple(int(part, 16) for part in here.groups()) if here else None
        if wanted and addresses.count(wanted) == 1:
            return addresses.index(wanted)
        known = [self.device.indices[name] for name in self.index_names if name in self.device.indices]
        if known and known[0] < count:
            return known[0]
        if count == 1 and (wanted is None or addresses == [None]):
            return 0
        message = f"torch does not see {self.device.id} among its {count} {self.torch_name} devices"
        raise DeviceUnavailable(message, hint="run `vllm-probe doctor`: a mask, a driver or a build of torch hides it")

    def _address_of(self, index: int) -> tuple[int, ...] | None:
        """PCI domain, bus and device of torch's device `index`, null where this torch does not tell."""
        properties = self.backend.get_device_properties(index)
        numbers = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
        address = tuple(number for number in numbers if number is not None)
        return address if len(address) == 3 else None

    def software(self) -> dict[str, str]:
        """The versions of torch and of the toolkit that it was built with."""
        toolkits = {name: getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")}
        return super().software() | {name: str(version) for name, version in toolkits.items() if version}

    def _memory(self) -> MemoryReading:
        free, total = self.backend.mem_get_info(self._index)
        return MemoryReading(total_bytes=total, free_bytes=free)

    def _synchronize(self) -> None:
        self.backend.synchronize(self._index)

    def _copy(self, source: torch.Tensor, target: torch.Tensor, *, non_blocking: bool, queue: int) -> Event:
        """In a stream of its own when `non_blocking`, behind what is queued now."""
        if not non_blocking:
            target.copy_(source)
            return Done()
        stream, done = self._streams[queue % len(self._streams)], self.backend.Event()
        stream.wait_stream(self.backend.current_stream(self._index))
        with self.backend.stream(stream):
            target.copy_(source, non_blocking=True)
            done.record(stream)
        for tensor in (source, target):
            if tensor.device.type != "cpu":
                tensor.record_stream(stream)  # its memory is not given to others before the copy is over
        return Recorded(done)

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Seconds between two events. A gate that opened before all calls were queued is longer the next time."""
        begin, end = (self.backend.Event(enable_timing=True) for _ in range(2))
        hold = getattr(self.backend, "_sleep", None)
        with self.backend.device(self._index):
            if hold:
                hold(self._gate_cycles)
            begin.record()
            for call in calls:
                call()
            late = bool(begin.query())
            end.record()
        end.synchronize()
        if hold and late:
            self._gate_cycles = min(2 * self._gate_cycles, _MOST_CYCLES)
        return float(begin.elapsed_time(end)) / 1e3

    def _toolchain(self, hints: CompileHints) -> Toolchain | str:  # noqa: ARG002 - Triton finds out by itself
        """Triton, which inductor generates for GPUs."""
        try:
            return Toolchain(name=f"triton {version('triton')}")
        except PackageNotFoundError:
            return f"inductor needs triton on {self.torch_name} and it is not installed"

    def _formats(self) -> tuple[str, ...]:
        """Number formats that the matrix units of this architecture compute in, besides fp32."""
        raise NotImplementedError

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """As torch, with what this architecture multiplies: `scaled_mm` in fp8, `tf32` in tf32.

        `triton`, where it is installed, is a plain tile of our own whose number of lanes can be chosen.
        """
        if primitive is not Primitive.LINEAR or dtype == "fp32":
            return super().implementations(primitive, dtype)
        if dtype not in self._formats():
            return ()
        names = {"tf32": ("tf32",), "fp8_e4m3": ("scaled_mm",)}.get(dtype) or super().implementations(primitive, dtype)
        return (*names, "triton") if dtype in _TILED and find_spec("triton") else names

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        support = super()._supports(primitive, dtype, shape)
        if primitive is not Primitive.LINEAR:
            return support
        if not support.ok:
            return Support(ok=False, reason=f"{self.device.arch or self.device.id} multiplies no {dtype} through torch")
        operator = {"int8": "_int_mm", "fp8_e4m3": "_scaled_mm"}.get(dtype)
        if operator and not has_kernel(operator, self.torch_name.upper()):
            return Support(ok=False, reason=f"this torch has no {operator} on {self.torch_name}")
        if dtype == "tf32" and self._stage is Stage.OPEN and not self._rounds_to_tf32:
            return Support(ok=False, reason="asked for tf32, torch computed exactly what fp32 gives")
        return _fits(dtype, shape) if shape else support

    def _format(self, dtype: str) -> torch.dtype:
        if dtype == "tf32":
            return torch.float32
        return self._fp8() if dtype == "fp8_e4m3" else super()._format(dtype)

    def _fp8(self) -> torch.dtype:
        """The e4m3 of this architecture: that of the OCP standard unless a vendor says otherwise."""
        return torch.float8_e4m3fn

    def _prepare_linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: str, implementation: str
    ) -> Linear[torch.Tensor]:
        if implementation == "tf32":
            return _tf32(weight, bias)
        if implementation == "triton":
            return self._prepare_wide(weight, bias, dtype, implementation, _GROUPS[2] * self._lanes())
        if implementation == "scaled_mm":
            return _scaled(weight.to(self.torch_device, self._fp8()), bias)
        return super()._prepare_linear(weight, bias, dtype, implementation)

    def _lanes(self) -> int:
        """Lanes of one warp, wave or sub-group."""
        return 32

    def _group_widths(self, implementation: str) -> tuple[int, ...]:
        return tuple(groups * self._lanes() for groups in _GROUPS) if implementation == "triton" else ()

    def _prepare_wide(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: str,
        implementation: str,  # noqa: ARG002 - one has widths
        group_width: int,
    ) -> Linear[torch.Tensor]:
        tiled = import_module("vllm_probe.vendors.torchbase.tiles").tiled
        weight = weight.to(self.torch_device, self._format(dtype))
        added = None if bias is None else bias.to(weight.device, torch.int32 if dtype == "int8" else weight.dtype)
        linear: Linear[torch.Tensor] = tiled(weight, added, group_width // self._lanes())
        return linear

    @cached_property
    def _rounds_to_tf32(self) -> bool:
        """Whether tf32 differs from fp32 in a product of 256 terms, as its 10 bits of fraction must."""
        rows, weight = (self._random((256, 256), "fp32", seed) for seed in (1, 2))
        return not torch.equal(_tf32(weight, None)(rows), functional.linear(rows, weight))


def _fits(dtype: str, shape: tuple[int, ...]) -> Support:
    """Limits of cuBLASLt in torch: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/Blas.cpp."""
    rows, k, n = shape
    if dtype == "int8" and (rows <= 16 or k % 8 or n % 8):
        return Support(ok=False, reason=f"int8 needs more than 16 rows and k and n in multiples of 8, not {[*shape]}")
    if dtype == "fp8_e4m3" and (k % 16 or n % 16):
        return Support(ok=False, reason=f"fp8 needs k and n in multiples of 16, not {[*shape]}")
    return Support(ok=True)


def _tf32(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear[torch.Tensor]:
    def linear(rows: torch.Tensor) -> torch.Tensor:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return functional.linear(rows, weight, bias)
        finally:
            torch.set_float32_matmul_precision(before)

    return linear


def _scaled(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear[torch.Tensor]:
    """bf16 from fp8 rows and `weight`, both at a scale of one."""
    columns, multiply = weight.t(), torch._scaled_mm  # noqa: SLF001 - has no public name
    one = torch.ones((), device=weight.device)
    added = None if bias is None else bias.to(weight.device, torch.bfloat16)
    return lambda rows: multiply(rows, columns, scale_a=one, scale_b=one, bias=added, out_dtype=torch.bfloat16)

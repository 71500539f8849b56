"""OpenClAdapter: one OpenCL device as bench, the mapper and the conformance suite use it."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.errors import DeviceUnavailable, UnknownName
from vllm_probe.core.primitive import Done, Event, Linear, MemoryReading, Primitive, Support
from vllm_probe.core.system import Host
from vllm_probe.core.values import FenceScope
from vllm_probe_opencl.devices import all_devices
from vllm_probe_opencl.kernels import Kernels, lane_memory
from vllm_probe_opencl.linear import WIDTHS, Linears, group_widths
from vllm_probe_opencl.memory import Allocator, PinnedBlock, aligned, enqueue_block, enqueue_copy, fetch, part
from vllm_probe_opencl.tensor import FORMATS, ClTensor, HostArray

_FORMATS = {
    Primitive.LINEAR: ("fp32", "fp16", "int8"),
    Primitive.RMS_NORM: ("fp32", "fp16"),
    Primitive.ROPE: ("fp32", "fp16"),
    Primitive.QUANTIZE: ("fp32", "fp16"),
    Primitive.SWAP: ("int8",),
}
_BLOCK = 1 << 20


class OpenClAdapter(HardwareAdapter[ClTensor]):
    """A device of `all_devices()`. Everything runs in order in the first queue; other queues hold copies only."""

    memory_fence_scope = "device"
    copy_queues = 4
    held_formats = ("fp32", "fp16", "int8")

    def __init__(self, host: Host) -> None:
        super().__init__()

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """Linear: `vector` (tiles in registers, first on CPUs), `local` (tiles in local memory); others `kernel`."""
        if dtype not in _FORMATS.get(primitive, ()):
            return ()
        if primitive is Primitive.LINEAR:
            return ("vector", "local") if self.device.kind == "cpu" else ("local", "vector")
        return ("copies",) if primitive is Primitive.SWAP else ("kernel",)

    def software(self) -> dict[str, str]:
        """The versions of pyopencl and of the driver."""
        return {"pyopencl": cl.VERSION_TEXT, "driver": self.device.driver or "unknown"}

    def _open(self) -> None:
        devices, number = all_devices(), self.device.indices["opencl"]
        if number >= len(devices):
            raise DeviceUnavailable(f"{self.device.id} is gone", hint="run `vllm-probe detect`")
        self._cl = devices[number]
        context = cl.Context([self._cl])
        self._queues = [cl.CommandQueue(context) for _ in range(self.copy_queues)]
        self._queue = self._queues[0]
        self._kernels = Kernels(self._queue)
        self._allocator = Allocator(self._queue, svm=self.device.details["svm"])
        self._linears = Linears(self._kernels, self._allocator, self.device)
        self._lanes = 1 if self.device.kind == "cpu" else min(128, self._cl.max_work_group_size)
        self.alignment_bytes = self._cl.mem_base_addr_align // 8
        self.num_units = self._cl.max_compute_units
        self.native_group_width = self._native_width()
        self.supported_group_widths = tuple(self.device.details["sub_group_lanes"])

    def _native_width(self) -> int | None:
        """fp32 lanes of the vectors of a processor, of others what the compiler makes work-groups multiples of."""
        if self.device.kind == "cpu":
            return self._cl.native_vector_width_float or None
        return self._kernels.preferred_multiple("memory.triad", "fp32")

    def _close(self) -> None:
        self._synchronize()
        self._allocator.free()
        del self._linears, self._kernels, self._allocator, self._queue, self._queues

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        support = super()._supports(primitive, dtype, shape)
        return Support(ok=True, reason="fp16 is computed in fp32") if support.ok and dtype == "fp16" else support

    def _group_widths(self, implementation: str) -> tuple[int, ...]:
        return group_widths(self.device, implementation) if implementation in WIDTHS else ()

    def _memory(self) -> MemoryReading:
        return MemoryReading(total_bytes=self._cl.global_mem_size, free_bytes=None)

    def _allocate(self, nbytes: int, alignment: int) -> ClTensor:
        return self._allocator.allocate(nbytes, alignment)

    def _allocate_host(self, nbytes: int, alignment: int, *, pinned: bool) -> ClTensor:
        if not pinned:
            return ClTensor((nbytes,), "int8", aligned(np.empty(nbytes + alignment, np.int8), nbytes, alignment))
        block = PinnedBlock(self._queue, nbytes + alignment)
        return ClTensor((nbytes,), "int8", aligned(block.bytes, nbytes, alignment), block)

    def _release(self, tensor: ClTensor) -> None:
        tensor.owner.release()

    def _address(self, tensor: ClTensor) -> int | None:
        if isinstance(tensor.memory, np.ndarray):
            return int(tensor.memory.ctypes.data)
        return int(tensor.memory.svm_ptr) if isinstance(tensor.memory, cl.SVM) else None

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> ClTensor:
        """Values repeat after 2**20 elements."""
        generator, size = np.random.default_rng(seed), min(math.prod(shape), _BLOCK)
        if dtype == "int8":
            block = generator.integers(-128, 128, size, np.int8)
        else:
            block = generator.standard_normal(size, np.float32).astype(FORMATS[dtype])
        return self._to_device(np.resize(block, shape), dtype)

    def _from_host(self, values: Sequence[Any], dtype: str) -> ClTensor:
        return self._to_device(np.array(values, FORMATS[dtype]), dtype)

    def _to_device(self, array: HostArray, dtype: str) -> ClTensor:
        tensor = self._allocator.empty(array.shape, dtype)
        enqueue_copy(self._queue, ClTensor(array.shape, dtype, array), tensor, waits=True)
        return tensor

    def _to_host(self, tensor: ClTensor) -> list[Any]:
        array = np.empty(tensor.shape, FORMATS[tensor.dtype])
        self._copy(tensor, ClTensor(tensor.shape, tensor.dtype, array), non_blocking=False, queue=0)
        values: list[Any] = array.tolist()
        return values

    def _at(self, tensor: ClTensor, places: Sequence[Sequence[int]]) -> list[Any]:
        strides = [math.prod(tensor.shape[i + 1 :]) for i in range(len(tensor.shape))]
        found = []
        for place in places:
            array = np.empty(tensor.shape[len(place) :], FORMATS[tensor.dtype])
            begin = sum(i * stride for i, stride in zip(place, strides, strict=False)) * array.itemsize
            fetch(self._queue, tensor, begin, array.reshape(-1))
            found.append(array.tolist())
        return found

    def _part(self, tensor: ClTensor, offset: int, nbytes: int) -> ClTensor | None:
        return part(tensor, offset, nbytes)

    def _copy(self, source: ClTensor, target: ClTensor, *, non_blocking: bool, queue: int) -> Event:
        if source.on_host and target.on_host:
            self._synchronize()
            target.memory.view(np.int8)[...] = source.memory.view(np.int8)
            return Done()
        event: Event = enqueue_copy(self._queues[queue], source, target, waits=not non_blocking)
        return event

    def _read(self, source: ClTensor) -> ClTensor:
        count = math.prod(source.shape)
        groups = self._cl.max_compute_units * 16
        length = max(-(-count // groups // 16) * 16, 16)
        partial, total = (self._allocator.empty((size,), "fp32") for size in (groups, 1))
        for values, sums, size, each in ((source, partial, count, length), (partial, total, groups, groups)):
            sizes = np.uint64(size), np.uint64(each), lane_memory(self._lanes)
            self._kernels.run("memory.sum", values.dtype, (math.prod(sums.shape),), self._lanes, values, sums, *sizes)
        return total

    def _triad(self, b: ClTensor, c: ClTensor, scale: float, out: ClTensor) -> None:
        count = math.prod(out.shape)
        groups = -(-count // (16 * self._lanes))
        sizes = np.float32(scale), out, np.uint64(count)
        self._kernels.run("memory.triad", out.dtype, (groups,), self._lanes, b, c, *sizes)

    def _prepare_linear(
        self, weight: ClTensor, bias: ClTensor | None, dtype: str, implementation: str
    ) -> Linear[ClTensor]:
        if implementation not in WIDTHS:
            raise UnknownName(f"there is no linear {implementation!r} in {dtype}", hint="see implementations()")
        return self._linears.prepare(weight, bias, implementation)

    def _prepare_wide(
        self, weight: ClTensor, bias: ClTensor | None, dtype: str, implementation: str, group_width: int
    ) -> Linear[ClTensor]:
        return self._linears.prepare(weight, bias, implementation, group_width)

    def _rms_norm(self, rows: ClTensor, weight: ClTensor, epsilon: float, implementation: str | None) -> ClTensor:
        out, n = self._allocator.empty(rows.shape, rows.dtype), rows.shape[-1]
        sizes = np.int32(n), np.int32(math.prod(weight.shape) // n), np.float32(epsilon), lane_memory(self._lanes)
        self._on_rows("rms_norm", rows, math.prod(rows.shape) // n, weight, out, *sizes)
        return out

    def _rope(self, heads: ClTensor, cosines: ClTensor, sines: ClTensor, implementation: str | None) -> ClTensor:
        out, (tokens, num_heads, head_dim) = self._allocator.empty(heads.shape, heads.dtype), heads.shape
        sizes = np.int32(head_dim // 2), np.int32(num_heads)
        self._on_rows("rope", heads, tokens * num_heads, cosines, sines, out, *sizes)
        return out

    def _quantize(self, rows: ClTensor, implementation: str | None) -> tuple[ClTensor, ClTensor]:
        num_rows, n = rows.shape
        out, scales = self._allocator.empty(rows.shape, "int8"), self._allocator.empty((num_rows,), "fp32")
        self._on_rows("quantize", rows, num_rows, out, scales, np.int32(n), lane_memory(self._lanes))
        return out, scales

    def _on_rows(self, name: str, rows: ClTensor, num_rows: int, *arguments: Any) -> None:
        self._kernels.run(f"rowwise.{name}", rows.dtype, (num_rows,), self._lanes, rows, *arguments)

    def _swap(
        self,
        pool: ClTensor,
        blocks: Sequence[int],
        host: ClTensor,
        block_bytes: int,
        to_device: bool,
        implementation: str | None,
    ) -> None:
        for index, block in enumerate(blocks):
            there = host.memory[index * block_bytes : (index + 1) * block_bytes]
            enqueue_block(self._queue, pool, block * block_bytes, there, to_device=to_device)

    def _fence(self, scope: FenceScope) -> None:
        """Up to `device` every queue waits for what stands in all of them; `system` waits for their end."""
        if scope == "system":
            self._synchronize()
        elif scope != "none":
            marks = [cl.enqueue_marker(queue) for queue in self._queues]
            for queue in self._queues:
                cl.enqueue_barrier(queue, wait_for=marks)

    def _synchronize(self) -> None:
        for queue in self._queues:
            queue.finish()

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        """Wall seconds from an idle device to an idle device."""
        self._synchronize()
        begin = time.perf_counter()
        for call in calls:
            call()
        self._synchronize()
        return time.perf_counter() - begin

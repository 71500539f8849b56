"""Where tensors live: device memory from a pool, pinned host memory from the driver, and copies between them."""

import ctypes

import numpy as np
import pyopencl as cl
from pyopencl.tools import ImmediateAllocator, MemoryPool, SVMAllocator, SVMPool

from vllm_probe_opencl.tensor import ClTensor, HostArray, size_bytes


class Allocator:
    """Allocates on the device: shared virtual memory, whose addresses host and device agree on, or else buffers.

    Buffers have no address, so that only the driver knows how they are aligned. What is freed is kept and given again.
    """

    def __init__(self, queue: cl.CommandQueue, *, svm: bool) -> None:
        self._context, self._svm = queue.context, svm
        flags = cl.svm_mem_flags.READ_WRITE
        self._pool = (
            SVMPool(SVMAllocator(queue.context, flags=flags, queue=queue))
            if svm
            else MemoryPool(ImmediateAllocator(queue))
        )

    def empty(self, shape: tuple[int, ...], dtype: str) -> ClTensor:
        """An uninitialised tensor; raises as `allocate`."""
        tensor = self.allocate(size_bytes(shape, dtype), 1)
        return ClTensor(shape, dtype, tensor.memory, tensor.owner)

    def allocate(self, nbytes: int, alignment: int) -> ClTensor:
        """`nbytes` at a multiple of `alignment`.

        Raises:
            MemoryError: the device has not that much.
        """
        most = nbytes + alignment - 1 if self._svm else nbytes
        require(self._context, most)
        try:
            block = self._pool(most)
        except cl.MemoryError as error:
            raise MemoryError(f"{nbytes} bytes: {error}") from error
        memory = _pointer(-(-block.svm_ptr // alignment) * alignment, nbytes) if self._svm else block
        return ClTensor((nbytes,), "int8", memory, block)

    def free(self) -> None:
        """Gives what is kept back to the driver."""
        self._pool.free_held()


class PinnedBlock:
    """Host memory that the driver allocated, so that the device can transfer without a copy in between."""

    def __init__(self, queue: cl.CommandQueue, nbytes: int) -> None:
        require(queue.context, nbytes)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, nbytes)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        self.bytes, _ = cl.enqueue_map_buffer(queue, self._buffer, access, 0, (nbytes,), np.int8)
        self._queue = queue

    def release(self) -> None:
        """Gives it back; its bytes are invalid afterwards."""
        self.bytes.base.release(self._queue)
        self._queue.finish()
        self._buffer.release()


def require(context: cl.Context, nbytes: int) -> None:
    """Refuses more than an allocation may have; some drivers give a null pointer instead.

    Raises:
        MemoryError: it is more.
    """
    if nbytes > (most := context.devices[0].max_mem_alloc_size):
        raise MemoryError(f"{nbytes} bytes, an allocation may have {most}")


def aligned(block: HostArray, nbytes: int, alignment: int) -> HostArray:
    """The `nbytes` of `block` that begin at its first multiple of `alignment`."""
    skip = -block.ctypes.data % alignment
    return block[skip : skip + nbytes]


def enqueue_copy(queue: cl.CommandQueue, source: ClTensor, target: ClTensor, *, waits: bool) -> cl.Event:
    """Queues a copy of all of `source` over `target`, at least one of them on the device; `waits` for a host's end."""
    if all(isinstance(tensor.memory, cl.MemoryObjectHolder) for tensor in (source, target)):
        return cl.enqueue_copy(queue, target.memory, source.memory, byte_count=source.nbytes)
    blocking = waits and (source.on_host or target.on_host)
    return cl.enqueue_copy(queue, target.memory, source.memory, is_blocking=blocking)


def enqueue_block(queue: cl.CommandQueue, tensor: ClTensor, begin: int, host: HostArray, *, to_device: bool) -> None:
    """Queues a copy between `host` and as many bytes of `tensor` from byte `begin` on."""
    block = part(tensor, begin, host.nbytes)
    there, offset = (tensor.memory, begin) if block is None else (block.memory, 0)
    if to_device:
        cl.enqueue_copy(queue, there, host, is_blocking=False, dst_offset=offset)
    else:
        cl.enqueue_copy(queue, host, there, is_blocking=False, src_offset=offset)


def fetch(queue: cl.CommandQueue, tensor: ClTensor, begin: int, host: HostArray) -> None:
    """Waits for as many bytes of `tensor` as `host` has, from byte `begin` on."""
    if tensor.on_host:
        queue.finish()
        host.view(np.int8)[...] = tensor.memory.view(np.int8).reshape(-1)[begin : begin + host.nbytes]
    else:
        enqueue_block(queue, tensor, begin, host, to_device=False)
        queue.finish()


def part(tensor: ClTensor, begin: int, nbytes: int) -> ClTensor | None:
    """The bytes of `tensor` from `begin` on, in its memory; null for a buffer, which cannot be divided anywhere."""
    if tensor.on_host:
        return ClTensor((nbytes,), "int8", tensor.memory[begin : begin + nbytes], tensor.owner)
    if isinstance(tensor.memory, cl.SVM):
        return ClTensor((nbytes,), "int8", _pointer(tensor.memory.svm_ptr + begin, nbytes), tensor.owner)
    return None


def _pointer(address: int, nbytes: int) -> cl.SVM:
    return cl.SVM((ctypes.c_char * nbytes).from_address(address))

"""Where tensors live: shared virtual memory, which has addresses; buffers, which have none; pinned and plain memory."""

import ctypes
from abc import ABC, abstractmethod

import numpy as np
import pyopencl as cl
from pyopencl.tools import ImmediateAllocator, MemoryPool, SVMAllocator, SVMPool

from vllm_probe_opencl.tensor import ClTensor, HostArray, size_bytes


class Allocator(ABC):
    """Allocates tensors on the device; what is freed is kept and given again, so that no call waits for the driver."""

    def __init__(self, context: cl.Context) -> None:
        self._context = context

    def empty(self, shape: tuple[int, ...], dtype: str) -> ClTensor:
        """An uninitialised tensor.

        Raises:
            MemoryError: the device has not that much.
        """
        tensor = self.allocate(size_bytes(shape, dtype), 1)
        return ClTensor(shape, dtype, tensor.memory, tensor.owner)

    def allocate(self, nbytes: int, alignment: int) -> ClTensor:
        """`nbytes` at a multiple of `alignment`.

        Raises:
            MemoryError: the device has not that much.
        """
        require(self._context, nbytes)
        try:
            return self._allocate(max(nbytes, 1), alignment)
        except cl.MemoryError as error:
            raise MemoryError(f"{nbytes} bytes: {error}") from error

    @abstractmethod
    def copy_block(
        self, queue: cl.CommandQueue, tensor: ClTensor, begin: int, host: HostArray, *, to_device: bool
    ) -> None:
        """Queues a copy between `host` and as many bytes of `tensor` from byte `begin` on."""

    @abstractmethod
    def free(self) -> None:
        """Gives what is kept back to the driver."""

    @abstractmethod
    def _allocate(self, nbytes: int, alignment: int) -> ClTensor: ...


class SvmAllocator(Allocator):
    """Shared virtual memory: the address of a tensor on the device is the one that the host sees."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        super().__init__(context)
        self._pool = SVMPool(SVMAllocator(context, flags=cl.svm_mem_flags.READ_WRITE, queue=queue))

    def copy_block(
        self, queue: cl.CommandQueue, tensor: ClTensor, begin: int, host: HostArray, *, to_device: bool
    ) -> None:
        """Through a pointer into the allocation."""
        block = _pointer(tensor.memory.svm_ptr + begin, host.nbytes)
        source, target = (host, block) if to_device else (block, host)
        cl.enqueue_copy(queue, target, source, is_blocking=False)

    def free(self) -> None:
        """Empties the pool."""
        self._pool.free_held()

    def _allocate(self, nbytes: int, alignment: int) -> ClTensor:
        block = self._pool(nbytes + alignment - 1)
        address = -(-block.svm_ptr // alignment) * alignment
        return ClTensor((nbytes,), "int8", _pointer(address, nbytes), block)


class BufferAllocator(Allocator):
    """Buffers, for devices of OpenCL 1: they have no address, so that the driver alone knows how they are aligned."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        super().__init__(context)
        self._pool = MemoryPool(ImmediateAllocator(queue))

    def copy_block(
        self, queue: cl.CommandQueue, tensor: ClTensor, begin: int, host: HostArray, *, to_device: bool
    ) -> None:
        """With an offset into the buffer."""
        if to_device:
            cl.enqueue_copy(queue, tensor.memory, host, is_blocking=False, dst_offset=begin)
        else:
            cl.enqueue_copy(queue, host, tensor.memory, is_blocking=False, src_offset=begin)

    def free(self) -> None:
        """Empties the pool."""
        self._pool.free_held()

    def _allocate(self, nbytes: int, alignment: int) -> ClTensor:  # noqa: ARG002 - see above
        block = self._pool(nbytes)
        return ClTensor((nbytes,), "int8", block, block)


class PinnedBlock:
    """Host memory that the driver allocated, so that the device can transfer without a copy in between."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, nbytes: int) -> None:
        require(context, nbytes)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._buffer = cl.Buffer(context, flags, nbytes)
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


def _pointer(address: int, nbytes: int) -> cl.SVM:
    return cl.SVM((ctypes.c_char * nbytes).from_address(address))

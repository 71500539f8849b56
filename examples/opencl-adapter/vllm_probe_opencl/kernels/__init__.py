"""Programs of this package: the .cl files beside, compiled for one device as they are needed."""

from functools import cache
from importlib.resources import files
from typing import Any

import pyopencl as cl

from vllm_probe_opencl.tensor import ClTensor

_FLOAT_BYTES = 4


class Kernels:
    """Compiles for the device of one queue and launches there."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._kernel = cache(self._compiled)

    def run(self, kernel: str, dtype: str, groups: tuple[int, ...], lanes: int, *arguments: Any) -> None:
        """Queues `groups` work-groups of `lanes` work-items along the first dimension.

        `kernel` is `program.name` for operands in `dtype`, with `:N` behind it for sub-groups of N lanes. `arguments`
        are tensors, numbers of the types that it declares, local memory, null for a null pointer.
        """
        shape, group = (groups[0] * lanes, *groups[1:]), (lanes, *(1 for _ in groups[1:]))
        memory = [argument.memory if isinstance(argument, ClTensor) else argument for argument in arguments]
        self._kernel(kernel, dtype)(self._queue, shape, group, *memory)

    def preferred_multiple(self, kernel: str, dtype: str) -> int:
        """Work-items of which the device runs `kernel` in whole groups."""
        info = cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE
        return int(self._kernel(kernel, dtype).get_work_group_info(info, self._queue.device))

    def _compiled(self, kernel: str, dtype: str) -> cl.Kernel:
        program, _, name = kernel.partition(".")
        name, _, sub_group = name.partition(":")
        text = "\n".join((files(__package__) / f"{part}.cl").read_text("utf-8") for part in ("format", program))
        options = [f"-DFORMAT_{dtype}", *([f"-DSUB_GROUP={sub_group}"] if sub_group else [])]
        try:
            return cl.Kernel(cl.Program(self._queue.context, text).build(options), name)
        except cl.RuntimeError as error:
            raise RuntimeError(f"{kernel} in {dtype} does not compile: {_first_error(str(error))}") from error


def _first_error(log: str) -> str:
    """The line of a build log that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "no reason given")


def lane_memory(lanes: int) -> cl.LocalMemory:
    """One float of local memory for each lane."""
    return cl.LocalMemory(lanes * _FLOAT_BYTES)

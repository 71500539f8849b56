"""Arrays of the adapter, and the number formats that they come in."""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

FORMATS: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8, "int32": np.int32}
"""Word to the type of an element; `int32` is what products of int8 come in."""

HostArray: TypeAlias = "np.ndarray[Any, Any]"
"""Host memory: of the driver, pinned, or of the process."""


def size_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array of that shape and format."""
    return math.prod(shape) * int(np.dtype(FORMATS[dtype]).itemsize)


@dataclass(slots=True, eq=False)
class ClTensor:
    """An array in device or host memory.

    Attributes:
        shape: sizes, rows first.
        dtype: one of `FORMATS`.
        memory: where its elements are, one after another: a `HostArray`, or on the device a `cl.SVM`, which has an
            address, or a buffer of pyopencl, which has none.
        owner: what keeps that memory allocated, null where `memory` does.
    """

    shape: tuple[int, ...]
    dtype: str
    memory: Any
    owner: Any = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return size_bytes(self.shape, self.dtype)

    @property
    def on_host(self) -> bool:
        """Whether it is host memory, which kernels do not take."""
        return isinstance(self.memory, np.ndarray)

"""Linear: the weight packed once, then one of two kernels, launched in groups as wide as is asked for."""

import numpy as np

from vllm_probe.core.device import Device
from vllm_probe.core.primitive import Linear
from vllm_probe_opencl.kernels import Kernels
from vllm_probe_opencl.memory import Allocator
from vllm_probe_opencl.tensor import ClTensor

WIDTHS = {"vector": (1, 16), "local": (4, 64)}
"""Implementation to its narrowest and widest work-group: tiles in the registers of a work-item, which wants no company,
or in local memory that a group shares."""

_OWN = {"vector": 1, "local": 16}
_COLUMNS, _ROWS, _DEPTH, _WIDE = 32, 8, 16, 8  # as in linear.cl


def group_widths(device: Device, implementation: str) -> tuple[int, ...]:
    """Sub-groups where the compiler can be told one, else the powers of two that a work-group may have."""
    if device.details["sub_group_lanes"]:
        return tuple(device.details["sub_group_lanes"])
    narrowest, widest = WIDTHS[implementation]
    most = min(widest, device.details["group_lanes"])
    return tuple(2**power for power in range(most.bit_length()) if 2**power >= narrowest)


class Linears:
    """Prepares linears for one device."""

    def __init__(self, kernels: Kernels, allocator: Allocator, device: Device) -> None:
        self._kernels, self._allocator, self._device = kernels, allocator, device

    def prepare(
        self, weight: ClTensor, bias: ClTensor | None, implementation: str, group_width: int | None = None
    ) -> Linear[ClTensor]:
        """An operator for x * weight^T + bias in the weight's format; a null width is the implementation's own."""
        n, k = weight.shape
        packed, padded_k = self._pack(weight)
        kernel, lanes = f"linear.{implementation}_tile", group_width or _OWN[implementation]
        if group_width and self._device.details["sub_group_lanes"]:
            kernel += f":{group_width}"

        def linear(rows: ClTensor) -> ClTensor:
            m = rows.shape[0]
            out = self._allocator.empty((m, n), "int32" if rows.dtype == "int8" else rows.dtype)
            tiles, panels = -(-m // _ROWS), -(-n // _COLUMNS)
            groups = (-(-tiles // lanes), panels) if implementation == "vector" else (-(-n // (_WIDE * lanes)), tiles)
            sizes = map(np.int32, (m, n, k, padded_k))
            self._kernels.run(kernel, rows.dtype, groups, lanes, rows, packed, bias, out, *sizes)
            return out

        return linear

    def _pack(self, weight: ClTensor) -> tuple[ClTensor, int]:
        """The weight in panels, and k rounded up to whole tiles."""
        n, k = weight.shape
        padded_n, padded_k = -(-n // _COLUMNS) * _COLUMNS, -(-k // _DEPTH) * _DEPTH
        packed = self._allocator.empty((padded_n, padded_k), weight.dtype)
        sizes = map(np.int32, (n, k, padded_k))
        self._kernels.run("linear.pack", weight.dtype, (padded_k, padded_n), 1, weight, packed, *sizes)
        return packed, padded_k

"""The CPU through torch: oneDNN weights packed once, threads as the device's budget says."""

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.primitive import CompileHints, Linear, MemoryReading, Primitive, Support, Telemetry
from vllm_probe.core.system import Host
from vllm_probe.host.stats import parse_cpu_list
from vllm_probe.vendors.cpu.lanes import CAPABILITIES, LIMITS, lanes_of
from vllm_probe.vendors.cpu.limits import free_memory, read_limits
from vllm_probe.vendors.cpu.sensors import Sensors
from vllm_probe.vendors.cpu.streaming import StreamingCopy
from vllm_probe.vendors.torchbase import DTYPES, TorchAdapter
from vllm_probe.vendors.torchbase.compiling import Toolchain

_PREPACKED = "onednn_prepacked"
_COMPILER_TIMEOUT_S = 5.0
_NATIVE = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
    "int8": {"avx512_vnni", "avx_vnni", "amx_int8"},
}
"""Number format to the instruction sets that compute in it; fp32 needs none of them."""

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1  # malloc.h; mallopt(3)
_STEPS = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 1 << 30}
"""The first at the largest value that glibc takes, so that it reuses what one step frees in the next.

It gives it back and faults it in again otherwise. Measured on MiniLM in bf16 at 1024 tokens: 60,000 page faults and
40 % of the processor time fewer per 4096 tokens."""
_LOADING = {_M_MMAP_THRESHOLD: 1 << 17}
"""glibc's default, fixed: each weight in pages of its own, so that those that are packed and freed leave no holes.

Measured on Qwen3-Embedding-0.6B in bf16: holes of 150 to 240 MiB beside 1136 MiB of weights without it."""


class CpuAdapter(TorchAdapter):
    """All processors of the thread budget as one device.

    `fence` and `synchronize` have nothing to do: torch's operators return after their threads have joined, which
    is a full barrier, oneDNN and libc end streaming stores with a store fence, and host memory is coherent for every
    processor and every device that reads it, so what an operator wrote is visible up to `system` scope.
    """

    torch_device = "cpu"
    memory_fence_scope = "system"
    kernels = MappingProxyType({**TorchAdapter.kernels, "stream": "movntps"})

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        """As torch, with what a format costs that these processors do not compute in."""
        support = super()._supports(primitive, dtype, shape)
        if not support.ok or self._computes(dtype):
            return support
        if dtype == "int8":
            return Support(ok=False, reason="no int8 dot products (VNNI): torch would use a scalar loop")
        return Support(ok=True, reason=f"no {dtype} arithmetic: converted to fp32 and back, slower than fp32")

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        """As torch, and before `aten` `onednn_prepacked`, which does not reorder the weight in every call.

        Attention prefers `bmm` in bf16 where these processors multiply it: torch's fused kernel multiplies in fp32.
        Rope and quantize prefer `blocked`: their operands are larger than a cache.
        """
        names = super().implementations(primitive, dtype)
        if "blocked" in names:
            return ("blocked", *(name for name in names if name != "blocked"))
        if primitive is Primitive.ATTENTION and dtype == "bf16" and self._computes(dtype):
            return tuple(sorted(names))
        return (_PREPACKED, *names) if primitive is Primitive.LINEAR and "aten" in names and _packs(dtype) else names

    def _computes(self, dtype: str) -> bool:
        return dtype not in _NATIVE or bool(_NATIVE[dtype] & set(self.device.details.get("isa") or ()))

    def _toolchain(self, hints: CompileHints) -> Toolchain | str:
        """The C++ compiler; without matrix instructions inductor's own product is slower than that of oneDNN."""
        name = self._host.env("CXX") or "g++"
        path = self._host.which(name)
        if path is None:
            return f"inductor needs a C++ compiler and there is no {name} on PATH"
        version = self._host.run((path, "--version"), _COMPILER_TIMEOUT_S).stdout.partition("\n")[0]
        options: dict[str, Any] = {"cpp.cxx": (path,), "cpp.dynamic_threads": True}
        if not any("amx" in word for word in hints.matrix_instructions):
            options["max_autotune_gemm_backends"] = "ATEN"
        return Toolchain(name=version or path, options=options)

    def software(self) -> dict[str, str]:
        """The versions of torch and of the oneDNN in it."""
        found = re.search(r"MKL-DNN v([0-9.]+)", torch.__config__.show())
        return super().software() | ({"onednn": found[1]} if found else {})

    def _open(self) -> None:
        self._threads_before = torch.get_num_threads()
        _set_malloc(self._host, _STEPS)
        torch.set_num_threads(self.device.details.get("threads") or self._threads_before)
        self._streaming = StreamingCopy(self._host, torch.get_num_threads())
        self._sensors = Sensors(self._host, parse_cpu_list(self.device.details.get("affinity") or ""))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Keeps weights apart from what is freed while they are packed, and gives the rest of that back."""
        _set_malloc(self._host, _LOADING)
        try:
            yield
        finally:
            _set_malloc(self._host, _STEPS, trims=True)

    def _close(self) -> None:
        self._streaming.close()
        torch.set_num_threads(self._threads_before)

    def _memory(self) -> MemoryReading:
        stats, limits = self._host.stats(), read_limits(self._host)
        return MemoryReading(total_bytes=stats.memory_total_bytes, free_bytes=free_memory(stats, limits)[0])

    def _stream(self, source: torch.Tensor, target: torch.Tensor) -> bool:
        plain = source.is_contiguous() and target.is_contiguous() and source.nbytes == target.nbytes
        return plain and self._streaming.copy(target.data_ptr(), source.data_ptr(), source.nbytes)

    def _process_widths(self) -> tuple[int, ...]:
        return lanes_of(self.device.details.get("isa") or ())

    def _limit_width(self, lanes: int) -> bool:
        for name, value in LIMITS.get(lanes, {}).items():
            self._host.set_env(name, value)
        return lanes not in CAPABILITIES or bool(torch.backends.cpu.get_cpu_capability() == CAPABILITIES[lanes])

    def _telemetry(self) -> Telemetry:
        return self._sensors.read()

    def _prepare_linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: str, implementation: str
    ) -> Linear[torch.Tensor]:
        if implementation != _PREPACKED:
            return super()._prepare_linear(weight, bias, dtype, implementation)
        format_ = DTYPES[dtype]
        return _packed_linear(weight.to(format_), None if bias is None else bias.to(format_))


def _set_malloc(host: Host, options: dict[int, int], *, trims: bool = False) -> None:
    """Sets `options` of glibc's allocator, which then gives back what is free where it `trims`; elsewhere nothing."""
    try:
        libc = host.library("libc.so.6")
        for option, limit in options.items():
            libc.call("mallopt", ctypes.c_int(option), ctypes.c_int(limit))
        if trims:
            libc.call("malloc_trim", ctypes.c_size_t(0))
    except LibraryUnavailable:
        return


def _packed_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear[torch.Tensor]:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)  # noqa: SLF001 - registered operators
    multiply = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    return lambda rows: multiply(rows, packed, bias, "none", [], "")


@cache
def _packs(dtype: str) -> bool:
    """Whether this build of torch packs and multiplies `dtype` with oneDNN on these processors."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        _packed_linear(torch.zeros(16, 16, dtype=DTYPES[dtype]), None)(torch.zeros(1, 16, dtype=DTYPES[dtype]))
    except RuntimeError:
        return False
    return True

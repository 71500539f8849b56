"""Each way of being wrong: the hooks that make it, the check that is about it and the reason that the check gives."""

import math
import random
import sys
from collections.abc import Callable
from typing import Any

from tests.vendors.primitive_faults import PRIMITIVE_FAULTS
from tests.vendors.scripted import Complete
from tests.vendors.transfer_faults import TRANSFER_FAULTS
from vllm_probe.core.primitive import Compiled, Done, MemoryReading, Support
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor

Hooks = dict[str, Callable[..., Any]]


def _shifted(self: NullAdapter, nbytes: int, alignment: int) -> NullTensor:
    tensor = NullAdapter._allocate(self, nbytes, alignment)
    tensor.address += 1
    return tensor


def _ending_in_zeros(shape: tuple[int, ...], seed: int) -> list[Any]:
    drawn = random.Random(seed)
    numbers = [drawn.random() if place < 1000 else 0.0 for place in range(math.prod(shape))]
    return [numbers[at : at + shape[-1]] for at in range(0, len(numbers), shape[-1])] if shape[1:] else numbers


def _beyond(columns: int, value: float) -> Callable[..., Any]:
    def linear(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
        right = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

        def wrong(rows: Any) -> NullTensor:
            result: NullTensor = right(rows)
            if rows.shape[1] > columns:
                result.value = [value] * len(result.elements)
            return result

        return wrong

    return linear


def _in_one_buffer(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
    right, kept = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation), list[NullTensor]()

    def overwriting(rows: Any) -> NullTensor:
        result: NullTensor = right(rows)
        for earlier in kept:
            earlier.value = result.value
        kept.append(result)
        return result

    return overwriting


def times(factor: float) -> Callable[..., Any]:
    def linear(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
        right = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

        def wrong(rows: Any) -> NullTensor:
            result = right(rows)
            return NullTensor(result.shape, result.dtype, [value * factor for value in result.elements])

        return wrong

    return linear


def _forgetting_the_last_row(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
    right = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

    def wrong(rows: Any) -> NullTensor:
        result = right(rows)
        return NullTensor(result.shape, result.dtype, [*result.elements[: -weight.shape[0]]] + [0.0] * weight.shape[0])

    return wrong


def _scribbling(self: NullAdapter, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
    right = NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

    def wrong(rows: Any) -> NullTensor:
        result = right(rows)
        rows.value = 0.0
        return result

    return wrong


def _missing_the_end(self: NullAdapter, source: Any, target: Any, **_: Any) -> Done:
    target.value = [*source.elements[:-1], 99.0]
    return Done()


def _with(values: Callable[[list[float]], list[float]], name: str) -> Callable[..., Any]:
    """The hook `name` of `Complete` with its result changed."""

    def hook(self: Complete, *arguments: Any) -> NullTensor:
        result = getattr(Complete, name)(self, *arguments)
        return NullTensor(result.shape, result.dtype, values(result.elements))

    return hook


def _acausal(self: Complete, *operands: Any) -> NullTensor:
    q, k, v, lengths, _, name = operands
    return Complete._attention(self, q, k, v, lengths, False, name)


def _across_sequences(self: Complete, *operands: Any) -> NullTensor:
    q, k, v, lengths, causal, name = operands
    return Complete._attention(self, q, k, v, [sum(lengths)], causal, name)


def _truncating(self: Complete, rows: Any, name: str | None) -> Any:
    _, scales = Complete._quantize(self, rows, name)
    lines = self.to_host(rows)
    values = [float(int(x / s)) for line, s in zip(lines, scales.elements, strict=True) for x in line]
    return NullTensor(rows.shape, "int8", values), scales


def _ignoring_the_list(self: Complete, pool: Any, blocks: Any, host: Any, *rest: Any) -> None:
    Complete._swap(self, pool, range(len(blocks)), host, *rest)


FAULTS: dict[str, tuple[Hooks | dict[str, Any], str, str]] = {
    "a public method that does not check the order": (
        {"memory": lambda self: MemoryReading(total_bytes=None, free_bytes=None)},
        "out of order",
        "memory before set_device does not raise",
    ),
    "another error than AdapterOutOfOrder": (
        {"synchronize": lambda self: self.nothing},
        "out of order",
        "synchronize before set_device raises AttributeError",
    ),
    "an alignment that is no power of two": ({"alignment_bytes": 48}, "description: fences", "alignment_bytes is 48"),
    "a scope of its own": ({"memory_fence_scope": "galaxy"}, "description: fences", "'galaxy' is no fence scope"),
    "no queue": (
        {"copy_queues": property(lambda self: 0, lambda self, value: None)},
        "description: fences",
        "copy_queues is 0",
    ),
    "no software": ({"software": lambda self: {}}, "description: fences", "software.. is empty"),
    "more free than there is": (
        {"_memory": lambda self: MemoryReading(total_bytes=1, free_bytes=2)},
        "description: memory",
        "2 of 1 bytes free",
    ),
    "zero for unknown": (
        {"_memory": lambda self: MemoryReading(total_bytes=0, free_bytes=None)},
        "description: memory",
        "total of 0 bytes, unknown is null",
    ),
    "addresses that are not aligned": ({"_allocate": _shifted}, "allocation: sizes", r"bytes at \d+ lie at 0x"),
    "allocations that overlap": (
        {"_allocate": lambda self, nbytes, alignment: NullTensor((nbytes,), "int8", address=1 << 20)},
        "allocation: sizes",
        "overlap",
    ),
    "allocations of another size": (
        {"_allocate": lambda self, nbytes, alignment: NullTensor((nbytes + 1,), "int8")},
        "allocation: sizes",
        r"(\d+) bytes asked for, \d+ given",
    ),
    "pinned memory that nobody counts": (
        {"allocate_pinned": lambda self, n, alignment=None: self._allocate(n, alignment or 64)},
        "allocation: pinned",
        "pinned_bytes counts 0 of",
    ),
    "pinned memory that is not given back": (
        {"release": lambda self, tensor: None},
        "allocation: pinned",
        r"counts \d+ bytes after release",
    ),
    "another error than MemoryError": (
        {"_allocate_host": lambda self, n, alignment, pinned: self._spend("allocate", 0.0) or 1 / (n < 1 << 50)},
        "allocation: MemoryError",
        "allocate_pinned of 2.60 bytes raises ZeroDivisionError",
    ),
    "memory without end": (
        {"_allocate": lambda self, nbytes, alignment: NullTensor((nbytes,), "int8")},
        "allocation: MemoryError",
        "allocate of 2.60 bytes succeeds",
    ),
    "values that change on their way": (
        {"_to_host": lambda self, tensor: [0.0] * tensor.shape[0]},
        "values keep their places",
        "comes back as",
    ),
    "a copy that does nothing": (
        {"_copy": lambda self, source, target, **_: Done()},
        "copies between",
        "from the device to pinned memory, 1 bytes: 1 of 1 bytes are wrong",
    ),
    "a copy without its end": ({"_copy": _missing_the_end}, "copies with events", "bytes are wrong, the first at"),
    "no event": ({"_copy": lambda self, source, target, **_: None}, "copies with events", "AttributeError"),
    "writes that a fence does not show": (
        {"_copy": lambda self, source, target, **_: Done()},
        "fences: device",
        "behind the fence 40.. of 4096 bytes are wrong",
    ),
    "a fence that some scopes lack": (
        {"_fence": lambda self, scope: {"none": 0, "device": 1}[scope]},
        "fences: workgroup",
        "raised KeyError",
    ),
    "random data without a seed": (
        {"_random": lambda self, shape, dtype, seed: NullTensor(shape, dtype, random.random())},
        "random data",
        "differs with the same seed",
    ),
    "random data that ignores its seed": (
        {"_random": lambda self, shape, dtype, seed: NullTensor(shape, dtype, 1.0)},
        "random data",
        "ignores its seed",
    ),
    "random data that runs dry": (
        {"_random": lambda self, shape, dtype, seed: self.from_host(_ending_in_zeros(shape, seed), dtype)},
        "random data",
        "more alike than the first",
    ),
    "a wrong triad": ({"_triad": lambda self, b, c, scale, out: None}, "triad", "off by"),
    "a read that reads nothing": (
        {"_read": lambda self, source: NullTensor((), "fp32", 1.0)},
        "memory operations: read",
        "does not notice",
    ),
    "a read of the first and last value": (
        {"_read": lambda self, source: NullTensor((), "fp32", source.elements[0] + source.elements[-1])},
        "memory operations: read",
        "does not notice that value 1666",
    ),
    "support without an implementation": (
        {"_supports": lambda self, primitive, dtype, shape: Support(ok=True)},
        "supports()",
        "supports linear in tf32 without an implementation",
    ),
    "no reason": (
        {"_supports": lambda self, primitive, dtype, shape: Support(ok=dtype in {"fp32", "int8"})},
        "supports()",
        "supports linear in int8 without|gives no reason",
    ),
    "a linear that is off": ({"_prepare_linear": times(1.001)}, "linear: fp32", r"48, 64\]\^T: off by 0.001, 0.0001"),
    "a linear that is wrong where it is long": (
        {"_prepare_linear": _beyond(1000, 0)},
        "linear: fp32",
        r"\[3, 1101\] x \[40, 1101\]\^T: off by",
    ),
    "a linear that gives the same memory each time": (
        {"_prepare_linear": _in_one_buffer},
        "linear: fp32",
        "off by",
    ),
    "a norm without its epsilon": (
        {"_rms_norm": lambda self, x, weight, _, name: Complete._rms_norm(self, x, weight, 0.0, name)},
        "rms_norm: fp32",
        "raised ZeroDivisionError|not finite",
    ),
    "an adapter that ends the process": ({"_rope": lambda self, *_: sys.exit(7)}, "rope", "raised SystemExit: 7"),
    "a linear that gives NaN": ({"_prepare_linear": times(float("nan"))}, "linear: fp32", "values are not finite"),
    "a tail that is forgotten": ({"_prepare_linear": _forgetting_the_last_row}, "linear: fp32", "off by"),
    "a linear that writes to its operand": ({"_prepare_linear": _scribbling}, "linear: fp32", "changes operand 0"),
    "a norm without its weight": (
        {"_rms_norm": _with(lambda x: [1.0] * len(x), "_rms_norm")},
        "rms_norm: fp32",
        "off by",
    ),
    "a rotation of the other half": ({"_rope": _with(lambda x: x[::-1], "_rope")}, "rope", "off by"),
    "attention that sees what comes later": ({"_attention": _acausal}, "attention", "causal: off by"),
    "attention across sequences": ({"_attention": _across_sequences}, "attention", r"\[5, 1, 12, 3\].*off by"),
    "attention that raises": ({"_attention": lambda self, *_: 1 / 0}, "attention", "raised ZeroDivisionError"),
    "quantizing by cutting off": ({"_quantize": _truncating}, "quantize", "off by 0.9.* steps, half of one"),
    "a swap of other blocks": ({"_swap": _ignoring_the_list}, "swap", "is not what the blocks held"),
    "a swap that does nothing": ({"_swap": lambda self, *_: None}, "swap", "is not what"),
    "a compiler that is wrong": (
        {"_compile_model": lambda self, fn, hints: Compiled(function=lambda x: x, backend="magic")},
        "compile_model",
        "magic: gives",
    ),
    "no compiler and no reason": (
        {"_compile_model": lambda self, fn, hints: Compiled(function=fn)},
        "compile_model",
        "gives no reason",
    ),
    "a close that closes nothing": ({"close": lambda self: None}, "reopens", "after close does not raise"),
    **PRIMITIVE_FAULTS,
    **TRANSFER_FAULTS,
}

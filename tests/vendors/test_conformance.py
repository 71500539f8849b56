"""The conformance suite: ours pass it, and each way of being wrong fails the check that is about it."""

import math
import random
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional

from vllm_probe.core.errors import AdapterOutOfOrder
from vllm_probe.core.primitive import Compiled, Done, MemoryReading, Primitive, Support
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.conformance import Result, gate, reference, run_suite
from vllm_probe.vendors.conformance.numerics import TOLERANCE
from vllm_probe.vendors.conformance.outcome import Outcome, Subject, attempt
from vllm_probe.vendors.conformance.suite import SAMPLES, all_checks
from vllm_probe.vendors.cpu import probe as cpu
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import probe

HOST = ReplayHost(Scene(facts=Facts()))
DEVICE = probe(HOST).devices[0]
Hooks = dict[str, Callable[..., Any]]


class Complete(NullAdapter):
    """The scripted device with the primitives that it lacks, worked out in plain Python."""

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        computed = {Primitive.LINEAR, Primitive.RMS_NORM, Primitive.ROPE, Primitive.ATTENTION, Primitive.QUANTIZE}
        return ("scripted",) if dtype == ("fp32" if primitive in computed else "int8") else ()

    def _rms_norm(self, rows: Any, weight: Any, epsilon: float, implementation: str | None) -> NullTensor:
        n = rows.shape[-1]
        lines = [rows.elements[i : i + n] for i in range(0, len(rows.elements), n)]
        weights = [weight.elements[i : i + n] for i in range(0, len(weight.elements), n)]
        return NullTensor(rows.shape, rows.dtype, reference.rms_norm(lines, weights, epsilon))

    def _rope(self, heads: Any, cosines: Any, sines: Any, implementation: str | None) -> NullTensor:
        values = reference.rope(*map(self.to_host, (heads, cosines, sines)))
        return NullTensor(heads.shape, heads.dtype, values)

    def _attention(
        self, query: Any, key: Any, value: Any, lengths: Any, causal: bool, implementation: str | None
    ) -> NullTensor:
        q, k, v = map(self.to_host, (query, key, value))
        values = reference.attention(q, k, v, lengths, range(len(q)), causal=causal)
        return NullTensor(query.shape, query.dtype, values)

    def _quantize(self, rows: Any, implementation: str | None) -> tuple[NullTensor, NullTensor]:
        lines = self.to_host(rows)
        scales = reference.scales(lines)
        values = [float(round(x / scale)) for line, scale in zip(lines, scales, strict=True) for x in line]
        return NullTensor(rows.shape, "int8", values), NullTensor((len(lines),), "fp32", scales)

    def _swap(
        self, pool: Any, blocks: Any, host: Any, block_bytes: int, to_device: bool, implementation: str | None
    ) -> None:
        inside, outside = pool.elements, host.elements
        for i, block in enumerate(blocks):
            there = slice(block * block_bytes, (block + 1) * block_bytes)
            here = slice(i * block_bytes, (i + 1) * block_bytes)
            if to_device:
                inside[there] = outside[here]
            else:
                outside[here] = inside[there]
        pool.value, host.value = inside, outside


def broken(**hooks: Any) -> type[Complete]:
    return type("Broken", (Complete,), hooks)


def outcome(adapter_class: type[Complete], check: str) -> Outcome:
    """How the check whose name contains `check` ends."""
    adapter = adapter_class(HOST)
    adapter.set_device(DEVICE)
    adapter.open()
    (found,) = [each for each in all_checks(adapter) if check in each.name]
    return attempt(found, Subject(lambda: adapter_class(HOST), DEVICE, adapter, 200))


@cache
def results_of(adapter_class: type[Complete]) -> tuple[Result, ...]:
    return run_suite(lambda: adapter_class(HOST), DEVICE, samples=20)


def test_the_cpu_adapter_passes_with_a_thousand_allocations() -> None:
    assert SAMPLES == 1000
    host = LocalHost()
    results = run_suite(lambda: CpuAdapter(host), cpu.probe(host).devices[0])
    assert [(result.name, result.reason) for result in results if result.ok is False] == []
    names = " ".join(result.name for result in results if result.ok)
    assert all(f"{primitive}:" in names for primitive in (Primitive.LINEAR, Primitive.ATTENTION, Primitive.ROPE))


def test_the_scripted_adapter_passes_and_what_it_lacks_is_skipped_with_the_reason() -> None:
    results = run_suite(lambda: NullAdapter(HOST), DEVICE, samples=50)
    assert [result for result in results if result.ok is False] == []
    assert {(result.name, result.reason) for result in results if result.ok is None} == {
        *((name, "the adapter has none") for name in ("attention", "rope", "rms_norm", "quantize", "swap")),
        ("compile_model: the same values, or a reason", "the adapter of null0 names no compiler"),
    }


def test_an_adapter_with_every_primitive_passes() -> None:
    assert {result.ok for result in results_of(Complete) if "compile" not in result.name} == {True}


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


def _times(factor: float) -> Callable[..., Any]:
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


def _skipping_a_call(self: NullAdapter, calls: Any) -> float:
    return NullAdapter._time_batch(self, calls[:-1])


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
    "a linear that is off": ({"_prepare_linear": _times(1.001)}, "linear: fp32", r"48, 64\]\^T: off by 0.001, 0.0001"),
    "a linear that is wrong where it is long": (
        {"_prepare_linear": _beyond(1000, 0)},
        "linear: fp32",
        r"\[3, 1030\] x \[40, 1030\]\^T: off by",
    ),
    "a linear that gives the same memory each time": (
        {"_prepare_linear": _in_one_buffer},
        "linear: fp32",
        "off by",
    ),
    "a norm without its epsilon": (
        {"_rms_norm": lambda self, x, weight, _, name: Complete._rms_norm(self, x, weight, 0.0, name)},
        "rms_norm",
        "raised ZeroDivisionError|not finite",
    ),
    "an adapter that ends the process": ({"_rope": lambda self, *_: sys.exit(7)}, "rope", "raised SystemExit: 7"),
    "a linear that gives NaN": ({"_prepare_linear": _times(float("nan"))}, "linear: fp32", "values are not finite"),
    "a tail that is forgotten": ({"_prepare_linear": _forgetting_the_last_row}, "linear: fp32", "off by"),
    "a linear that writes to its operand": ({"_prepare_linear": _scribbling}, "linear: fp32", "changes operand 0"),
    "a norm without its weight": ({"_rms_norm": _with(lambda x: [1.0] * len(x), "_rms_norm")}, "rms_norm", "off by"),
    "a rotation of the other half": ({"_rope": _with(lambda x: x[::-1], "_rope")}, "rope", "off by"),
    "attention that sees what comes later": ({"_attention": _acausal}, "attention", "causal: off by"),
    "attention across sequences": ({"_attention": _across_sequences}, "attention", r"\[5, 1, 12, 3\].*off by"),
    "attention that raises": ({"_attention": lambda self, *_: 1 / 0}, "attention", "raised ZeroDivisionError"),
    "quantizing by cutting off": ({"_quantize": _truncating}, "quantize", "off by 0.9.* steps, half of one"),
    "a swap of other blocks": ({"_swap": _ignoring_the_list}, "swap", "is not what the blocks held"),
    "a swap that does nothing": ({"_swap": lambda self, *_: None}, "swap", "is not what"),
    "no time": ({"_time_batch": lambda self, calls: [call() for call in calls] and 0.0}, "time_batch", "take 0 s"),
    "time that does not grow": (
        {"_time_batch": lambda self, calls: float(bool([call() for call in calls]))},
        "time_batch",
        "4 copies of 1 MiB take 1 s, 32 of them 1 s",
    ),
    "a call that is left out": ({"_time_batch": _skipping_a_call}, "time_batch", "every call once"),
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
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_check_that_is_about_it(fault: str) -> None:
    hooks, check, reason = FAULTS[fault]
    assert outcome(Complete, check).ok in {True, None}
    found = outcome(broken(**hooks), check)
    assert found.ok is False
    assert re.search(reason, found.reason), found.reason


def test_one_failing_check_does_not_stop_the_others() -> None:
    results = results_of(broken(_rope=lambda self, *_: 1 / 0, _triad=lambda self, *_: 1 / 0))
    failed = {result.name: result.reason for result in results if result.ok is False}
    assert failed == {
        "memory operations: triad": "raised ZeroDivisionError: division by zero",
        "rope: fp32 scripted": "heads [1, 1, 16]: raised ZeroDivisionError: division by zero",
    }
    assert len(results) == len(results_of(Complete))


def test_an_adapter_that_does_not_open_is_one_failed_check() -> None:
    (result,) = results_of(broken(_open=lambda self: 1 / 0))
    assert (result.name, result.ok) == ("bring-up: opens", False)


def test_an_adapter_that_does_not_close_has_its_other_results_all_the_same() -> None:
    results = results_of(broken(_close=lambda self: 1 / 0))
    failed = [result.name for result in results if result.ok is False]
    assert failed == ["bring-up: closes and reopens", "bring-up: closes"]
    assert len(results) == len(results_of(Complete))


def test_an_adapter_that_cannot_say_what_it_has_is_a_failed_check() -> None:
    results = results_of(broken(_group_widths=lambda self, name: 1 / 0))
    assert [result.name for result in results if result.ok is False] == ["primitives: what there is"]


def test_every_width_of_a_linear_is_checked() -> None:
    def wide(self: Complete, weight: Any, bias: Any, dtype: str, implementation: str, group_width: int) -> Any:
        return _times(1.0 if group_width == 8 else 1.5)(self, weight, bias, dtype, implementation)

    results = results_of(broken(_group_widths=lambda self, name: (8, 16), _prepare_wide=wide))
    wides = {result.name: result.ok for result in results if "lanes" in result.name}
    assert wides == {"linear: fp32 scripted, 8 lanes wide": True, "linear: fp32 scripted, 16 lanes wide": False}


def test_what_an_adapter_says_it_cannot_run_is_skipped() -> None:
    found = outcome(
        broken(_supports=lambda self, primitive, dtype, shape: Support(ok=False, reason="no such unit")), "linear: fp32"
    )
    assert found == Outcome(None, "no such unit")


def test_shapes_that_an_adapter_does_not_support_are_not_asked_of_it() -> None:
    def even(self: Complete, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        return Support(ok=all(size % 8 == 0 for size in shape), reason="multiples of 8 only")

    def picky(self: Complete, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
        assert weight.shape[0] % 8 == 0
        return NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

    adapter = broken(_supports=even, _prepare_linear=picky)(HOST)
    adapter.set_device(DEVICE)
    adapter.open()
    assert gate(adapter, Primitive.LINEAR, "fp32", "scripted") is None
    nothing = broken(_supports=lambda self, *_: Support(ok=False, reason="nothing"))(HOST)
    nothing.set_device(DEVICE)
    nothing.open()
    assert gate(nothing, Primitive.LINEAR, "fp32", "scripted") == "supports none of the shapes that are checked"


def test_the_gate_needs_an_open_adapter() -> None:
    adapter = Complete(HOST)
    with pytest.raises(AdapterOutOfOrder):
        gate(adapter, Primitive.LINEAR, "fp32", "scripted")


def test_tolerances_tell_formats_apart() -> None:
    """Rounding to bf16 passes as bf16 and not as fp16, rounding to fp16 not as fp32."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    off = {d: float(((x.to(d).float() - x).abs() / x.abs().clamp(min=1)).max()) for d in (torch.bfloat16, torch.half)}
    assert TOLERANCE["fp32"] < off[torch.half] < TOLERANCE["fp16"]
    assert TOLERANCE["int8"] < off[torch.bfloat16] < TOLERANCE["bf16"]


def test_the_reference_agrees_with_torch_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(6, heads, 4, dtype=torch.float64, generator=generator) for heads in (4, 2, 2))
    for causal in (False, True):
        want = torch.cat(
            [
                functional.scaled_dot_product_attention(
                    q[rows].transpose(0, 1),
                    k[rows].transpose(0, 1),
                    v[rows].transpose(0, 1),
                    is_causal=causal,
                    enable_gqa=True,
                ).transpose(0, 1)
                for rows in (slice(0, 4), slice(4, 6))
            ]
        )
        got = reference.attention(q.tolist(), k.tolist(), v.tolist(), [4, 2], range(6), causal=causal)
        assert got == pytest.approx(want.flatten().tolist())
    late = reference.attention(q[4:].tolist(), k.tolist(), v.tolist(), [6], range(2), causal=True)
    whole = reference.attention(q.tolist(), k.tolist(), v.tolist(), [6], range(6), causal=True)
    assert late == whole[-len(late) :]
    rows, weight = q[:, 0], k[0, 0]
    want = functional.rms_norm(rows, (4,), weight, 1e-6)
    assert reference.rms_norm(rows.tolist(), [weight.tolist()], 1e-6) == pytest.approx(want.flatten().tolist())
    angles = torch.randn(6, 2, dtype=torch.float64, generator=generator)
    turned = torch.complex(q[..., :2], q[..., 2:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    want = torch.cat((turned.real, turned.imag), -1)
    got = reference.rope(q.tolist(), angles.cos().tolist(), angles.sin().tolist())
    assert got == pytest.approx(want.flatten().tolist())
    want = functional.linear(rows, k[:, 0], v[:, 0, 0])
    points = [(i, j) for i in range(6) for j in range(6)]
    got = reference.linear(rows.tolist(), k[:, 0].tolist(), v[:, 0, 0].tolist(), points)
    assert got == pytest.approx(want.flatten().tolist())
    assert reference.scales([[1.0, -2.54], [0.0, 0.0]]) == [pytest.approx(0.02), 1.0]


def test_a_check_that_does_not_end_fails_and_those_behind_it_are_skipped() -> None:
    end = threading.Event()

    def hang(self: Any, *operands: Any) -> Any:
        end.wait()

    kind = broken(_rms_norm=hang)
    results = run_suite(lambda: kind(HOST), DEVICE, samples=1, limit_s=2.0)
    end.set()
    hung = next(result for result in results if result.ok is False)
    assert (hung.name, hung.reason) == ("rms_norm: fp32 scripted", "did not end in 2 s")
    behind = results[results.index(hung) + 1 :]
    assert {(result.ok, result.reason) for result in behind} == {(None, "rms_norm: fp32 scripted did not end in 2 s")}
    assert behind[-1].name == "bring-up: closes"
    assert all(result.ok is not False for result in results[: results.index(hung)])


def test_an_adapter_that_does_not_open_in_time_fails_alone() -> None:
    end = threading.Event()
    kind = broken(_open=lambda self: end.wait())
    (opening,) = run_suite(lambda: kind(HOST), DEVICE, samples=1, limit_s=0.2)
    end.set()
    assert (opening.name, opening.ok, opening.reason) == ("bring-up: opens", False, "did not end in 0.2 s")


def test_what_the_constructor_raises_is_raised() -> None:
    def make() -> NullAdapter:
        raise AdapterOutOfOrder("no", hint="never")

    with pytest.raises(AdapterOutOfOrder):
        run_suite(make, DEVICE, samples=1)


def test_an_adapter_that_takes_any_size_and_alignment_fails() -> None:
    def anything(self: Any, nbytes: int, alignment: int | None = None) -> NullTensor:
        return NullTensor((nbytes,), "int8", address=64)

    found = outcome(broken(allocate=anything), "allocation: BadUsage for sizes and alignments that cannot be")
    assert found == (False, "allocate of -1 bytes at multiples of 64 does not raise BadUsage")


def test_an_address_that_is_none_is_not_aligned() -> None:
    def nowhere(self: Any, nbytes: int, alignment: int) -> NullTensor:
        tensor = NullAdapter._allocate(self, nbytes, alignment)
        return replace(tensor, address=0) if alignment > 4096 else tensor

    found = outcome(broken(_allocate=nowhere), "allocation: an alignment that is larger than the memory")
    assert found == (False, "100 bytes at multiples of 2^40 lie at 0x0")

"""Primitives against the reference, and what stands around them: support, widths, compilation."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from vllm_probe.core.errors import UnknownName
from vllm_probe.core.primitive import CompileHints, Primitive
from vllm_probe.core.values import COMPUTE_DTYPES
from vllm_probe.vendors.conformance import reference, timing
from vllm_probe.vendors.conformance.cases import gate
from vllm_probe.vendors.conformance.computing import points_of
from vllm_probe.vendors.conformance.numerics import Operands, difference, flat, operand, values
from vllm_probe.vendors.conformance.outcome import (
    PASSED,
    Adapter,
    Check,
    Outcome,
    Subject,
    failed,
    first_failure,
    skipped,
    unless,
)

WEIGHT_ONLY_ERROR = {"int8": 0.06, "int4": 0.5}
"""Largest error allowed of a linear whose weight is rounded, in root mean squares of the result.

A normal weight of 64 columns reaches 2.5 deviations, so a step of int8 is 0.02 and one of int4 0.33 of them; the
error of a product of evenly spread roundings is step / sqrt(12), and the largest of a few thousand is 4 times that.
"""

_WEIGHT_ONLY = ((5, 64, 48), (257, 128, 16), (3, 1152, 48), (33, 128, 80))
"""Rows, k and n, of which a kernel may take multiples only."""

_SETTLE_S = 45.0
"""How long a compiler may take, within the limit of a check."""


def primitive_checks(adapter: Adapter) -> Iterator[Check]:
    """One check per implementation of each primitive in each format, per width and per format of narrow weights."""
    for primitive in Primitive:
        formats = ("int8",) if primitive is Primitive.SWAP else COMPUTE_DTYPES  # a swap moves bytes
        offered = [(d, name) for d in formats for name in adapter.implementations(primitive, d)]
        if not offered:
            yield Check(f"{primitive}", lambda _: skipped("the adapter has none"))
        for dtype, name in offered:
            yield Check(f"{primitive}: {dtype} {name}", partial(_right, primitive, dtype, name, None))
            if primitive is Primitive.LINEAR:
                for width in adapter.group_widths(name):
                    run = partial(_right, primitive, dtype, name, width)
                    yield Check(f"{primitive}: {dtype} {name}, {width} lanes wide", run)
    for dtype in adapter.weight_only_formats():
        yield Check(f"{Primitive.LINEAR}: bf16 over an {dtype} weight", partial(_weight_only, dtype))


def _right(primitive: Primitive, dtype: str, name: str, width: int | None, subject: Subject) -> Outcome:
    support = subject.adapter.supports(primitive, dtype)
    if not support.ok:
        return skipped(support.reason)
    wrong = gate(subject.adapter, primitive, dtype, name, group_width=width)
    return failed(wrong) if wrong else PASSED


def _weight_only(dtype: str, subject: Subject) -> Outcome:
    """At every shape that the kernel takes."""
    outcomes = [partial(_narrow, subject.adapter, dtype, sizes) for sizes in _WEIGHT_ONLY]
    refused = list[Outcome]()
    for run in outcomes:
        outcome = run()
        if outcome.ok is False:
            return outcome
        if outcome.ok is None:
            refused.append(outcome)
    return refused[0] if len(refused) == len(outcomes) else PASSED


def _narrow(adapter: Adapter, dtype: str, sizes: tuple[int, int, int]) -> Outcome:
    m, k, n = sizes
    operands = Operands(adapter, "bf16")
    (x, rows), (w, weight) = (operands.put(operand(shape, "bf16", i)) for i, shape in enumerate(((m, k), (n, k))))
    try:
        operator = adapter.prepare_weight_only(w, dtype)
    except UnknownName as error:
        return skipped(str(error))
    points = points_of(m, n)
    want, allowed = reference.linear(rows, weight, None, points), WEIGHT_ONLY_ERROR[dtype]
    result = operands.kept(operator, x)
    wrong = operands.judge(result, (m, n), want, lambda host: [host[i][j] for i, j in points], allowed)
    return failed(f"[{m}, {k}] x [{n}, {k}]^T: {wrong}") if wrong else PASSED


def _support(subject: Subject) -> Outcome:
    adapter = subject.adapter

    def outcomes() -> Iterator[Outcome]:
        for primitive in Primitive:
            for dtype in COMPUTE_DTYPES:
                support, names = adapter.supports(primitive, dtype), adapter.implementations(primitive, dtype)
                what = f"{primitive} in {dtype}"
                yield from unless(bool(names) or not support.ok, f"supports {what} without an implementation")
                yield from unless(support.ok or bool(support.reason), f"gives no reason for not supporting {what}")
                yield from unless(len({*names}) == len(names), f"names an implementation of {what} twice")

    return first_failure(outcomes())


def _unknown(subject: Subject) -> Outcome:
    """A name that does not exist is refused, and so is a primitive that the adapter has not."""
    for name, call in _misnamed(subject.adapter):
        try:
            call()
        except UnknownName:
            continue
        except Exception as error:  # noqa: BLE001 - isolation point: what else it raises is the finding
            return failed(f"{name} raises {type(error).__name__}, not UnknownName")
        return failed(f"{name} does not raise UnknownName")
    return PASSED


def _misnamed(adapter: Adapter) -> Iterator[tuple[str, Callable[[], object]]]:
    """A call of each primitive that is right but for a name, in the first format that the adapter has it in."""

    def put(primitive: Primitive, *shape: int) -> Any:
        offered = [dtype for dtype in COMPUTE_DTYPES if adapter.implementations(primitive, dtype)]
        dtype = "int8" if primitive is Primitive.SWAP else (*offered, "fp32")[0]
        return adapter.from_host(values(shape, dtype, 1), dtype)

    weight = adapter.from_host([[1.0]], "fp32")
    yield "prepare_linear with an unknown format", lambda: adapter.prepare_linear(weight, None, "?")
    yield "prepare_weight_only with an unknown format", lambda: adapter.prepare_weight_only(weight, "?")
    heads, rows = put(Primitive.ATTENTION, 2, 1, 16), put(Primitive.RMS_NORM, 2, 16)
    turned, angles = put(Primitive.ROPE, 2, 1, 16), put(Primitive.ROPE, 2, 8)
    quantized, pool = put(Primitive.QUANTIZE, 2, 16), put(Primitive.SWAP, 64)
    calls: dict[str, Callable[..., object]] = {
        "prepare_linear": partial(adapter.prepare_linear, weight, None, "fp32"),
        "attention": partial(adapter.attention, heads, heads, heads, [2], causal=True),
        "rms_norm": partial(adapter.rms_norm, rows, put(Primitive.RMS_NORM, 16), 1e-6),
        "rope": partial(adapter.rope, turned, angles, angles),
        "quantize": partial(adapter.quantize, quantized),
        "swap": partial(adapter.swap, pool, [0], pool, block_bytes=64, to_device=True),
    }
    for name, call in calls.items():
        yield f"{name} with an unknown implementation", partial(call, implementation="?")


def _compiled(subject: Subject) -> Outcome:
    """Before it is compiled, which may last, and after that again and again.

    Of several linears it is the plainest, which a compiler can most likely take apart.
    """
    adapter = subject.adapter
    offered = [d for d in COMPUTE_DTYPES if adapter.supports(Primitive.LINEAR, d).ok]
    if not offered:
        return skipped("there is no linear to compile")
    dtype = offered[0]
    plainest = adapter.implementations(Primitive.LINEAR, dtype)[-1]
    linear = adapter.prepare_linear(adapter.from_host(values((8, 16), dtype, 1), dtype), None, dtype, plainest)
    rows = [adapter.from_host(values((4, 16), dtype, seed), dtype) for seed in (2, 3, 2)]

    def model(rows: Any) -> Any:
        return linear(rows)

    wants = [[*flat(adapter.to_host(linear(x)))] for x in rows]
    compiled = adapter.compile_model(model, CompileHints())

    def wrong(when: str) -> str | None:
        results = [
            compiled.function(x) for x in rows
        ]  # all of them before a look at the first: none may be overwritten
        faults = [
            difference([*flat(adapter.to_host(result))], want, dtype)
            for result, want in zip(results, wants, strict=True)
        ]
        fault = next((fault for fault in faults if fault), None)
        return fault and f"{compiled.backend or 'the function that was given back'}{when}: {fault}"

    if fault := wrong(""):
        return failed(fault)
    if compiled.backend is None:
        return skipped(compiled.reason) if compiled.reason else failed("gives no reason why nothing is compiled")
    if not adapter.settle(_SETTLE_S):
        return skipped(f"{compiled.backend} has not compiled a linear within {_SETTLE_S:g} s")
    fault = wrong(" once compiled")
    return failed(fault) if fault else PASSED


AROUND = (
    Check("primitives: supports() agrees with implementations()", _support),
    Check("primitives: unknown names raise UnknownName", _unknown),
)
AFTER = (
    *timing.CHECKS,
    Check("compile_model: the same values, or a reason", _compiled),
)

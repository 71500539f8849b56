"""Primitives against the reference, and what stands around them: support, widths, timing, compilation."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

from vllm_probe.core.errors import UnknownName
from vllm_probe.core.primitive import CompileHints, Primitive
from vllm_probe.core.values import COMPUTE_DTYPES
from vllm_probe.vendors.conformance import reference
from vllm_probe.vendors.conformance.numerics import difference, flat, gate, values
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
error of a product of evenly spread roundings is step / sqrt(12), and the largest of a few hundred is 3.5 times that.
"""

_ROUNDS, _FEW, _MANY = 40, 4, 32


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
    adapter, (m, k, n) = subject.adapter, (5, 64, 48)
    x, w = (adapter.from_host(values(shape, "bf16", seed), "bf16") for seed, shape in enumerate(((m, k), (n, k))))
    rows, weight = adapter.to_host(x), adapter.to_host(w)
    try:
        operator = adapter.prepare_weight_only(w, dtype)
    except UnknownName as error:
        return skipped(str(error))
    want = reference.linear(rows, weight, None, [(i, j) for i in range(m) for j in range(n)])
    wrong = difference([*flat(adapter.to_host(operator(x)))], want, "bf16", WEIGHT_ONLY_ERROR[dtype])
    return failed(wrong) if wrong else PASSED


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
    adapter = subject.adapter
    weight = adapter.from_host([[1.0]], "fp32")
    calls: dict[str, Callable[[], object]] = {
        "prepare_linear with an unknown implementation": lambda: adapter.prepare_linear(weight, None, "fp32", "?"),
        "prepare_linear with an unknown format": lambda: adapter.prepare_linear(weight, None, "?"),
    }
    for name, call in calls.items():
        try:
            call()
        except UnknownName:
            continue
        except Exception as error:  # noqa: BLE001 - isolation point: what else it raises is the finding
            return failed(f"{name} raises {type(error).__name__}, not UnknownName")
        return failed(f"{name} does not raise UnknownName")
    return PASSED


def _timing(subject: Subject) -> Outcome:
    """The least of interleaved rounds, because other work on the machine only adds time; as many as it takes."""
    adapter, done = subject.adapter, list[int]()
    source, target = (adapter.allocate(1 << 20) for _ in range(2))

    def copy(number: int) -> None:
        adapter.copy(source, target)
        done.append(number)

    least = dict.fromkeys((_FEW, _MANY), inf)
    for _ in range(_ROUNDS):
        for count in least:
            done.clear()
            least[count] = min(least[count], adapter.time_batch([partial(copy, number) for number in range(count)]))
            if done != [*range(count)]:
                return failed("time_batch does not make every call once, in order")
        if 0 < 2 * least[_FEW] < least[_MANY]:
            return PASSED
    return failed(f"{_FEW} copies of 1 MiB take {least[_FEW]:.2g} s, {_MANY} of them {least[_MANY]:.2g} s")


def _compiled(subject: Subject) -> Outcome:
    adapter = subject.adapter
    offered = [d for d in COMPUTE_DTYPES if adapter.supports(Primitive.LINEAR, d).ok]
    if not offered:
        return skipped("there is no linear to compile")
    dtype = offered[0]
    linear = adapter.prepare_linear(adapter.from_host(values((8, 16), dtype, 1), dtype), None, dtype)
    x = adapter.from_host(values((4, 16), dtype, 2), dtype)

    def model(rows: Any) -> Any:
        return linear(rows)

    want = [*flat(adapter.to_host(linear(x)))]
    compiled = adapter.compile_model(model, CompileHints())
    wrong = difference([*flat(adapter.to_host(compiled.function(x)))], want, dtype)
    if wrong:
        return failed(f"{compiled.backend or 'the function that was given back'}: {wrong}")
    if compiled.backend is None:
        return skipped(compiled.reason) if compiled.reason else failed("gives no reason why nothing is compiled")
    return PASSED


AROUND = (
    Check("primitives: supports() agrees with implementations()", _support),
    Check("primitives: unknown names raise UnknownName", _unknown),
)
AFTER = (
    Check("time_batch: every call once, more take longer", _timing),
    Check("compile_model: the same values, or a reason", _compiled),
)

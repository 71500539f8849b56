"""Section of the primitives: every implementation that is right, in turn, and the one that won."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from vllm_probe.bench import spot
from vllm_probe.bench.contest import Decided, decide
from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Case, Reading, Work, absent
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability, Status
from vllm_probe.core.primitive import Primitive
from vllm_probe.vendors.conformance import gate
from vllm_probe.vendors.mapper import Choice

_HEADS, _KV_HEADS, _HEAD_DIM = 16, 8, 128
"""Of Qwen3-Embedding-0.6B: https://huggingface.co/Qwen/Qwen3-Embedding-0.6B/blob/main/config.json."""

_SHAPES = 4
"""Shapes that an implementation must be right at before it is timed; `adapter check` tries all."""

_NARROW_FIRST = ("bf16", "fp16", "fp32")
_TOKENS = 1024
_LENGTHS = (32, 128, 512)
_BLOCKS, _BLOCK_BYTES = 64, 256 << 10
_EPSILON = 1e-6

Timed = tuple[Callable[[], Any], Callable[[Any], None]]
"""What is timed, and what raises `ArithmeticError` where its result is wrong."""


class PrimitivesSection(Section):
    """`/primitives` without linear, which the matrix products choose.

    Attributes:
        choices: implementation by primitive and number format.
    """

    name = "primitives"

    def __init__(self, adapter: HardwareAdapter[Any], plan: BenchPlan) -> None:
        super().__init__(adapter, plan)
        self.choices: dict[tuple[Primitive, str], Decided] = {}
        self._pairs = [
            (primitive, dtype)
            for primitive in Primitive
            if primitive is not Primitive.LINEAR
            for dtype in _formats(adapter, primitive, every=self.name in plan.named)
        ]

    def total(self) -> int:
        """Every implementation of every pair, of attention at every length."""
        return sum(len(self._cases(*pair)) for pair in self._pairs)

    def batches(self) -> Iterator[Sequence[Case]]:
        """With the curves, after which they come where time is short."""
        yield ()
        yield [case for pair in self._pairs if pair not in self.choices for case in self._cases(*pair)]

    def write(self, sheet: Sheet) -> None:
        """The choice of each pair whose implementations have all had their turn."""
        found = {pair: self.choices.get(pair) or self._choice(*pair) for pair in self._pairs}
        chosen = {primitive for (primitive, _), choice in found.items() if choice}
        for primitive in Primitive:
            if primitive is not Primitive.LINEAR and primitive not in chosen:
                sheet.put(f"/primitives/{primitive}", {}, self._gap(primitive).measurement)
        for (primitive, dtype), decided in found.items():
            if decided:
                value = {key: item for key, item in asdict(decided.choice).items() if item}
                sheet.put(f"/primitives/{primitive}/{dtype}", value, decided.about)

    def restore(self, partial: Capability) -> None:
        """Choices that were made."""
        for primitive, dtype in self._pairs:
            found = partial.primitives.get(primitive, {}).get(dtype)
            about = partial.measurements.get(f"/primitives/{primitive}/{dtype}")
            if found and about:
                self.choices[primitive, dtype] = Decided(codec.from_json(Choice, found), about)

    def _gap(self, primitive: Primitive) -> Reading:
        ours = [pair for pair in self._pairs if pair[0] is primitive]
        if not ours:
            return absent("unsupported", f"the adapter has no {primitive} in a format that this device computes in")
        found = {case.key: self.readings.get(case.key) for case in self._cases(*ours[0])}
        failed = {key[0]: each.measurement for key, each in found.items() if each and each.value is None}
        if any(reading is None for reading in found.values()) or not failed:
            return self.pending
        status: Status = "skipped" if all(about.status == "skipped" for about in failed.values()) else "error"
        return absent(status, "; ".join(f"{name}: {about.reason}" for name, about in failed.items()))

    def _choice(self, primitive: Primitive, dtype: str) -> Decided | None:
        """Of what was measured: times by implementation, summed over the shapes."""
        by_name: dict[str, list[Reading]] = {name: [] for name in self.adapter.implementations(primitive, dtype)}
        for case in self._cases(primitive, dtype):
            if (reading := self.readings.get(case.key)) is None:
                return None
            by_name[case.key[0].split()[-1]].append(reading)
        return decide([*by_name], by_name, _METHODS[primitive])

    def _cases(self, primitive: Primitive, dtype: str) -> list[Case]:
        points = _LENGTHS if primitive is Primitive.ATTENTION else (0,)
        return [
            Case(
                key=(f"{primitive} {dtype} {name}", point),
                title=f"{primitive} {dtype} {name}" + (f" {point} tokens" if point else ""),
                unit="us",
                prepare=partial(self._prepare, primitive, dtype, name, point),
                optional=True,
                share=0.25,
            )
            for name in self.adapter.implementations(primitive, dtype)
            for point in points
        ]

    def _prepare(self, primitive: Primitive, dtype: str, name: str, point: int, divisor: int) -> Work | Reading:
        compiled = self.adapter.is_compiled(name)
        if (
            not compiled
            and point in {0, _LENGTHS[0]}
            and (reason := gate(self.adapter, primitive, dtype, name, most=_SHAPES))
        ):
            return absent("error", reason)
        shrink = self.plan.shrink(dtype) if primitive is Primitive.ATTENTION else 1
        call, check = _WORK[primitive](self.adapter, dtype, name, point, _TOKENS // divisor // shrink)
        call()
        if compiled and not self.adapter.settle(self.plan.compile_s):
            return absent("skipped", f"not compiled within {self.plan.compile_s:g} s; `--only primitives` waits longer")
        check(call())
        return Work(calls=(call,), amount=None, method=_METHODS[primitive], implementation=name)


def _formats(adapter: HardwareAdapter[Any], primitive: Primitive, *, every: bool) -> tuple[str, ...]:
    """Formats that run and are not converted at a cost, narrow ones first; unless `every`, the one to compute in."""
    if primitive is Primitive.SWAP:
        return ("int8",) if adapter.supports(primitive, "int8").ok else ()
    support = {dtype: adapter.supports(primitive, dtype) for dtype in _NARROW_FIRST}
    found = tuple(dtype for dtype, each in support.items() if each.ok and not each.reason)
    return found if every else found[:1]


def _attention(adapter: HardwareAdapter[Any], dtype: str, name: str, length: int, tokens: int) -> Timed:
    shapes = ((tokens, heads, _HEAD_DIM) for heads in (_HEADS, _KV_HEADS, _KV_HEADS))
    query, key, value = operands = [adapter.random(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    length = min(length, tokens)
    lengths = [length] * (tokens // length)
    run = partial(adapter.attention, query, key, value, lengths, causal=True, implementation=name)
    return run, partial(spot.require_attention, adapter, dtype, operands, length)


def _rope(adapter: HardwareAdapter[Any], dtype: str, name: str, _: int, tokens: int) -> Timed:
    heads = adapter.random((tokens, _HEADS + _KV_HEADS, _HEAD_DIM), dtype, 0)
    operands = (heads, *(adapter.random((tokens, _HEAD_DIM // 2), dtype, seed) for seed in (1, 2)))
    return partial(adapter.rope, *operands, implementation=name), partial(spot.require_rope, adapter, dtype, operands)


def _rms_norm(adapter: HardwareAdapter[Any], dtype: str, name: str, _: int, tokens: int) -> Timed:
    width = _HEADS * _HEAD_DIM // 2
    operands = adapter.random((tokens, width), dtype, 0), adapter.random((width,), dtype, 1)
    run = partial(adapter.rms_norm, *operands, _EPSILON, implementation=name)
    return run, partial(spot.require_rms_norm, adapter, dtype, operands, _EPSILON)


def _quantize(adapter: HardwareAdapter[Any], dtype: str, name: str, _: int, tokens: int) -> Timed:
    rows = adapter.random((tokens, _HEADS * _HEAD_DIM), dtype, 0)
    return partial(adapter.quantize, rows, implementation=name), partial(spot.require_quantized, adapter, rows)


def _swap(adapter: HardwareAdapter[Any], dtype: str, name: str, _: int, tokens: int) -> Timed:  # noqa: ARG001 - as the others
    count = _BLOCKS * tokens // _TOKENS
    pool = adapter.random((2 * count * _BLOCK_BYTES,), "int8", 0)
    host = adapter.allocate_pinned(count * _BLOCK_BYTES)
    blocks = [*range(0, 2 * count, 2)]

    def check(_: object) -> None:
        adapter.synchronize()
        spot.require_values(adapter, host, lambda places: adapter.at(pool, [_inside(place) for (place,) in places]))

    run = partial(adapter.swap, pool, blocks, host, block_bytes=_BLOCK_BYTES, to_device=False, implementation=name)
    return run, check


def _inside(place: int) -> tuple[int]:
    """Where a byte comes from of every second block."""
    return (place + place // _BLOCK_BYTES * _BLOCK_BYTES,)


_WORK: dict[Primitive, Callable[[HardwareAdapter[Any], str, str, int, int], Timed]] = {
    Primitive.ATTENTION: _attention,
    Primitive.ROPE: _rope,
    Primitive.RMS_NORM: _rms_norm,
    Primitive.QUANTIZE: _quantize,
    Primitive.SWAP: _swap,
}
_METHODS = {
    Primitive.ATTENTION: f"{_TOKENS} tokens in sequences of {', '.join(map(str, _LENGTHS))}, causal, {_HEADS} heads of "
    f"{_HEAD_DIM} over {_KV_HEADS}; seconds summed",
    Primitive.ROPE: f"[{_TOKENS}, {_HEADS + _KV_HEADS}, {_HEAD_DIM}]",
    Primitive.RMS_NORM: f"[{_TOKENS}, {_HEADS * _HEAD_DIM // 2}]",
    Primitive.QUANTIZE: f"[{_TOKENS}, {_HEADS * _HEAD_DIM}]",
    Primitive.SWAP: f"every second of {2 * _BLOCKS} blocks of {_BLOCK_BYTES >> 10} KiB to the host",
}

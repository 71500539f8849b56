"""The numerics gate: whether an implementation of a primitive agrees with the reference at shapes that are not tidy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from vllm_probe.core.primitive import Primitive
from vllm_probe.vendors.conformance import computing
from vllm_probe.vendors.conformance.outcome import Adapter, describe

_LINEARS = (
    *((1, 64, 48), (5, 33, 7), (33, 130, 65), (32, 256, 256), (70, 512, 24)),
    *((3, 1101, 40), (2, 48, 1031), (2, 4099, 8), (1031, 16, 8), (257, 64, 16)),
)
"""Those behind the first five are large in one size only, so that the reference, in plain Python, stays quick."""

_EPSILON = 1e-6
_NORMS = (
    *(((1, 128), (128,), 1.0, _EPSILON), ((7, 33), (33,), 1.0, _EPSILON), ((5, 3, 16), (3, 16), 1.0, _EPSILON)),
    *(((257, 24), (24,), 1.0, _EPSILON), ((2, 1024), (1024,), 1.0, _EPSILON), ((2, 4099), (4099,), 1.0, _EPSILON)),
    *(((3, 130), (130,), 300.0, _EPSILON), ((3, 130), (130,), 0.01, _EPSILON), ((3, 130), (130,), 0.01, 1e-5)),
)
"""Shapes of rows and weight, what the rows are multiplied by, epsilon; fp16 does not hold the square of 300, and rows
of a hundredth, whose squares are 1e-4, show which epsilon was added to them."""

_HEADS = ((1, 1, 16), (5, 3, 64), (33, 2, 10), (2, 9, 128), (257, 2, 16))
_ROWS = (((1, 64), 1.0), ((5, 33), 1.0), ((3, 1100), 1.0), ((4, 130), 300.0), ((257, 24), 1.0))
"""Shapes of what is quantized, and what it is multiplied by."""

_ATTENTIONS = (
    ((1,), 1, 1, 16, False),
    ((7,), 2, 2, 64, False),
    ((5, 1, 12, 3), 4, 2, 16, False),
    ((3, 3, 3), 6, 1, 32, False),
    ((9, 300), 2, 1, 16, False),
    ((3, 5), 2, 1, 128, False),
    ((40, 9), 4, 2, 16, True),
)
"""Lengths of the sequences, heads, key heads, head dimension, whether scores are beyond what exp reaches."""

_CHUNKS = ((5, 12), (40, 300))
"""Last tokens of a causal sequence whose attention is computed, and its length."""

_SWAPS = ((64, 8, (5, 0, 2)), (4096, 8, (5, 0, 2)), (48, 101, tuple(29 * i % 101 for i in range(70))))
"""Bytes of a block, blocks of the pool, those that are moved."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a primitive.

    Attributes:
        name: its shape, for people.
        shape: what `supports` is asked about.
        fault: why the implementation is wrong here, null when it is right.
    """

    name: str
    shape: tuple[int, ...]
    fault: Callable[[Adapter, str], str | None]


def gate(
    adapter: Adapter,
    primitive: Primitive,
    dtype: str,
    implementation: str,
    *,
    group_width: int | None = None,
    most: int | None = None,
) -> str | None:
    """Why `implementation` may not be used for `primitive` in `dtype`, with the number; null when it is right.

    Runs it at every shape of the suite that the adapter says it supports, or at `most` of them, from tidy to untidy. A
    linear can be launched with a group width.
    """
    cases = [c for c in _cases(primitive, dtype, group_width) if adapter.supports(primitive, dtype, c.shape).ok]
    if most and len(cases) > most:
        cases = [cases[i * (len(cases) - 1) // (most - 1)] for i in range(most)]
    if not cases:
        return "supports none of the shapes that are checked"
    for case in cases:
        try:
            fault = case.fault(adapter, implementation)
        except Exception as error:  # noqa: BLE001 - isolation point: the other implementations are still tried
            fault = describe(error)
        if fault:
            return f"{case.name}: {fault}"
    return None


def _cases(primitive: Primitive, dtype: str, group_width: int | None) -> Iterator[Case]:
    match primitive:
        case Primitive.LINEAR:
            yield from _linears(dtype, group_width)
        case Primitive.ATTENTION:
            yield from _attentions(dtype)
        case Primitive.RMS_NORM:
            for sizes in _NORMS:
                shape, _, scale, epsilon = sizes
                name = f"rows {[*shape]}{_times(scale)}" + f", epsilon {epsilon:g}" * (epsilon != _EPSILON)
                yield Case(name, shape, partial(computing.rms_norm, sizes, dtype))
        case Primitive.ROPE:
            for heads in _HEADS:
                yield Case(f"heads {[*heads]}", heads, partial(computing.rope, heads, dtype))
        case Primitive.QUANTIZE:
            for rows, scale in _ROWS:
                run = partial(computing.quantize, rows, scale, dtype)
                yield Case(f"rows {[*rows]}{_times(scale)}", rows, run)
        case Primitive.SWAP:
            for block_bytes, count, blocks in _SWAPS:
                name = f"{len(blocks)} of {count} blocks of {block_bytes} bytes"
                yield Case(name, (count * block_bytes,), partial(computing.swap, block_bytes, count, blocks))


def _times(scale: float) -> str:
    return f" times {scale:g}" if scale != 1.0 else ""


def _linears(dtype: str, group_width: int | None) -> Iterator[Case]:
    for (m, k, n), biased in product(_LINEARS, (False,) if dtype == "int8" else (False, True)):
        name = f"[{m}, {k}] x [{n}, {k}]^T" + " + bias" * biased
        yield Case(name, (m, k, n), partial(computing.linear, (m, k, n), dtype, biased, group_width))


def _attentions(dtype: str) -> Iterator[Case]:
    for (lengths, heads, kv_heads, depth, is_loud), causal in product(_ATTENTIONS, (False, True)):
        name = f"lengths {[*lengths]}, {heads}/{kv_heads} heads of {depth}"
        name += ", large scores" * is_loud + ", causal" * causal
        sizes = (sum(lengths), lengths, heads, kv_heads, depth)
        yield Case(name, (sum(lengths), heads, depth), partial(computing.attention, sizes, dtype, causal, is_loud))
    for tokens, length in _CHUNKS:
        run = partial(computing.attention, (tokens, (length,), 4, 2, 16), dtype, True, False)
        yield Case(f"the last {tokens} of {length} tokens, 4/2 heads of 16, causal", (tokens, 4, 16), run)

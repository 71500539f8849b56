"""A sound device on which values are trusted fully, and what must hold of one that is not."""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from tests.unit.bench.fake import STAMP
from tests.unit.bench.scripted import play
from vllm_probe.bench.expectations import Expectations
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.run import run_bench
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability, Measurement
from vllm_probe.core.primitive import Event, Linear
from vllm_probe.core.progress import silent
from vllm_probe.core.provenance import unfounded
from vllm_probe.core.schema import violations
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script

MIB = 1 << 20
_PRIME = 0xFFFFFFFB
SCRIPT = Script(rates_gflops={"bf16": ((1, 200.0),)}, bandwidth_gb_s=100.0, launch_us=0.01)
GEMM, READ, TRIAD = "/compute_units/bf16/throughput_gflops", "/memory/read_gb_s", "/memory/triad_gb_s"
TRUTH = {GEMM: 200.0, READ: 100.0, TRIAD: 100.0}
PARTS = frozenset({"gemm", "memory"})


class Numbers:
    """Numbers that exist when somebody looks: of a seed, or a function of place; what is written goes over them."""

    def __init__(self, make: Callable[[int], float], total: float) -> None:
        self._make, self._total = make, total
        self.written: dict[int, float] = {}

    @classmethod
    def drawn(cls, seed: int) -> "Numbers":
        return cls(lambda place: (place + 1) * (2 * seed + 3) * 0x9E3779B1 % _PRIME / (_PRIME // 2) - 1, seed + 0.5)

    def __getitem__(self, place: int) -> float:
        return self.written[place] if place in self.written else self._make(place)

    def sum(self, seen: Callable[[int], bool] = lambda place: True) -> float:
        """Of those places that are `seen`; as if the first sum was of what is not written."""
        return self._total + math.fsum(v - self._make(place) for place, v in self.written.items() if seen(place))

    def copied(self) -> "Numbers":
        copy = Numbers(self._make, self._total)
        copy.written |= self.written
        return copy


def _nested(numbers: Numbers, shape: tuple[int, ...], place: tuple[int, ...]) -> Any:
    """What stands at `place`: lists where it has fewer dimensions than `shape`."""
    if len(place) < len(shape):
        return [_nested(numbers, shape, (*place, i)) for i in range(shape[len(place)])]
    return numbers[reduce(lambda flat, pair: flat * pair[1] + pair[0], zip(place, shape, strict=True), 0)]


def numbers_in(tensor: NullTensor) -> Any:
    """By place, as they are now."""
    value: Any = tensor.value
    return value.copied() if isinstance(value, Numbers) else tensor.elements


def hold(tensor: NullTensor, numbers: Any) -> None:
    """Lets `tensor` hold them, which is no list of floats."""
    tensor.value = numbers


class Part(NullTensor):
    """Four bytes of a vector."""

    owner: Numbers
    place: int


class Sound(NullAdapter):
    """Has different numbers in every place of every array."""

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> NullTensor:
        tensor = super()._random(shape, dtype, seed)
        hold(tensor, self.drawn(shape, dtype, seed))
        return tensor

    def drawn(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """What an array holds."""
        return Numbers.drawn(seed)

    def _at(self, tensor: NullTensor, places: Sequence[Sequence[int]]) -> list[Any]:
        if not isinstance(tensor.value, Numbers):
            return super()._at(tensor, places)
        return [_nested(tensor.value, tensor.shape, tuple(place)) for place in places]

    def _to_host(self, tensor: NullTensor) -> list[Any]:
        if not isinstance(tensor.value, Numbers):
            return super()._to_host(tensor)
        return [_nested(tensor.value, tensor.shape, (place,)) for place in range(tensor.shape[0])]

    def _part(self, tensor: NullTensor, offset: int, nbytes: int) -> NullTensor | None:
        if not isinstance(tensor.value, Numbers):
            return super()._part(tensor, offset, nbytes)
        part = Part((nbytes,), "int8", address=tensor.address + offset)
        part.owner, part.place = tensor.value, offset // 4
        return part

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        done = super()._copy(source, target, non_blocking=non_blocking, queue=queue)
        if isinstance(target, Part):
            (target.owner.written[target.place],) = struct.unpack("=f", bytes(int(v) & 255 for v in source.elements))
        elif isinstance(source.value, Numbers):
            hold(target, source.value.copied())
        return done

    def _read(self, source: NullTensor) -> NullTensor:
        if not isinstance(source.value, Numbers):
            return super()._read(source)
        self._move("read", source.nbytes)
        return NullTensor((), source.dtype, source.value.sum())

    def _triad(self, b: NullTensor, c: NullTensor, scale: float, out: NullTensor) -> None:
        if not isinstance(b.value, Numbers) or not isinstance(c.value, Numbers):
            return super()._triad(b, c, scale, out)
        x, y = b.value.copied(), c.value.copied()
        self._move("triad", b.nbytes + c.nbytes + out.nbytes)
        hold(out, Numbers(lambda place: x[place] + scale * y[place], x.sum() + scale * y.sum()))
        return None

    def _prepare_linear(
        self, weight: NullTensor, bias: NullTensor | None, dtype: str, implementation: str
    ) -> Linear[NullTensor]:
        computed = super()._prepare_linear(weight, bias, dtype, implementation)
        timed = super()._prepare_linear(replace(weight, value=0), None, dtype, implementation)
        (n, k), w, added = weight.shape, numbers_in(weight), numbers_in(bias) if bias else [0.0] * weight.shape[0]

        def linear(rows: NullTensor) -> NullTensor:
            if not any(isinstance(each.value, Numbers) for each in (rows, weight)):
                return computed(rows)
            out, x = timed(replace(rows, value=0)), numbers_in(rows)
            hold(out, Numbers(lambda i: sum(x[i // n * k + j] * w[i % n * k + j] for j in range(k)) + added[i % n], 0))
            return out

        return linear


def sheet() -> Capability:
    """Peaks of the scripted device at 2 GHz: a quarter and a tenth over what it reaches."""
    about = {"source": "datasheet", "status": "measured", "clock_mhz": 2000.0}
    return codec.from_json(
        Capability,
        {
            "device_type": "null",
            "compute_units": {"bf16": {"throughput_gflops": 250.0}},
            "memory": {"bandwidth_gb_s": 110.0},
            "dma": {},
            "measurements": {GEMM: about},
        },
    )


def started(kind: type[NullAdapter] = Sound, script: Script = SCRIPT, **device: Any) -> NullAdapter:
    return play(script, kind, **({"details": {"caches": {"l2": MIB}}} | device))


def plan_of(adapter: NullAdapter, parts: frozenset[str] = PARTS, **changes: Any) -> BenchPlan:
    known = Expectations(device=adapter.device, datasheet=sheet())
    plan = make_plan(adapter.device, quick=True, only=parts, expectations=known)
    changed: dict[str, Any] = {"rows": (256,), "most_rounds": 4} | changes
    return replace(plan, **changed)


def bench(adapter: NullAdapter, plan: BenchPlan | None = None) -> Capability:
    document = run_bench(adapter, plan or plan_of(adapter), STAMP, save=lambda document: None, progress=silent)
    assert violations("capability", codec.to_json(document)) == ()
    assert unfounded(codec.to_json(document)) == ()
    return document


def value_at(document: Capability, pointer: str) -> Any:
    value: Any = codec.to_json(document)
    for key in pointer.split("/")[1:]:
        value = value[key]
    return value


def doubted(document: Capability, *pointers: str) -> list[Measurement]:
    """What stands about the values, none of which is trusted fully and is wrong."""
    for pointer, truth in TRUTH.items():
        if document.measurements[pointer].confidence == "high":
            assert value_at(document, pointer) == pytest.approx(truth, rel=0.03), pointer
    abouts = [document.measurements[pointer] for pointer in pointers]
    assert all(about.confidence != "high" for about in abouts)
    assert all(about.reason for about in abouts)
    return abouts

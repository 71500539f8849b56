"""Wrong values that look right: only a second look at the data, the timer or the result tells."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.bench.faulty import (
    GEMM,
    PARTS,
    READ,
    SCRIPT,
    TRIAD,
    Numbers,
    Sound,
    bench,
    doubted,
    hold,
    numbers_in,
    plan_of,
    started,
    value_at,
)
from vllm_probe.bench.plan import make_plan
from vllm_probe.core.primitive import Linear, Telemetry
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script

_WIDTH = 4096
BURST, SUSTAINED = "/thermal/burst_gflops", "/thermal/sustained_gflops"


class Multiplying(Sound):
    """Lets a fault at the products of random operands."""

    def _prepare_linear(
        self, weight: NullTensor, bias: NullTensor | None, dtype: str, implementation: str
    ) -> Linear[NullTensor]:
        right = super()._prepare_linear(weight, bias, dtype, implementation)
        return self.faulty(right, weight) if isinstance(weight.value, Numbers) else right

    def faulty(self, right: Linear[NullTensor], weight: NullTensor) -> Linear[NullTensor]:
        return right


class Partial(Multiplying):
    """Its timer counts a share of the time of products, all of everything else."""

    share = 0.78
    multiplied = False

    def faulty(self, right: Linear[NullTensor], weight: NullTensor) -> Linear[NullTensor]:
        def linear(rows: NullTensor) -> NullTensor:
            self.multiplied = True
            return right(rows)

        return linear

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.multiplied = False
        seconds = super()._time_batch(calls)
        return seconds * self.share if self.multiplied else seconds


class Half(Partial):
    share = 0.5


@pytest.mark.parametrize(("kind", "truth"), [(Partial, 190.0), (Half, 120.0)])
def test_a_timer_that_is_wrong_over_products_only(kind: type[NullAdapter], truth: float) -> None:
    adapter = started(kind, replace(SCRIPT, rates_gflops={"bf16": ((1, truth),)}))
    document = bench(adapter, plan_of(adapter, PARTS | {"thermal"}))
    abouts = [document.measurements[pointer] for pointer in (GEMM, BURST, SUSTAINED)]
    assert [(about.status, about.confidence) for about in abouts] == [("suspect", "low")] * 3
    assert all("its timer speaks of" in (about.reason or "") for about in abouts)
    assert document.measurements[READ].confidence == "high"


class Gated(Sound):
    """Is held while calls are queued, which the host waits for and the timer does not count."""

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.clock_s += 0.02
        return super()._time_batch(calls)


def test_a_device_that_is_held_while_calls_are_queued_is_trusted_fully() -> None:
    document = bench(started(Gated))
    assert {document.measurements[pointer].confidence for pointer in (GEMM, READ, TRIAD)} == {"high"}


class Skipping(Sound):
    """Reads the first 60 % of every array."""

    seen = 0.6

    def _read(self, source: NullTensor) -> NullTensor:
        if not isinstance(source.value, Numbers):
            return super()._read(source)
        end = self.seen * source.shape[0]
        self._move("read", int(self.seen * source.nbytes))
        return NullTensor((), source.dtype, source.value.sum(lambda place: place < end))


class EverySecond(Skipping):
    """Reads every second value."""

    seen = 0.5

    def _read(self, source: NullTensor) -> NullTensor:
        self._move("read", source.nbytes // 2)
        return NullTensor((), source.dtype, numbers_in(source).sum(lambda place: place % 2 == 0))


@pytest.mark.parametrize("kind", [Skipping, EverySecond])
def test_reading_a_part_of_an_array(kind: type[Skipping]) -> None:
    document = bench(started(kind, replace(SCRIPT, bandwidth_gb_s=62.0)))
    for pointer in (READ, "/memory/cached_read_gb_s"):
        assert value_at(document, pointer) is None
        assert document.measurements[pointer].status == "error"
        assert "does not notice" in document.unknown[pointer]
    assert value_at(document, TRIAD) == pytest.approx(62, rel=0.01)


class Whole(Sound):
    """Names no parts of its memory."""

    def _part(self, tensor: NullTensor, offset: int, nbytes: int) -> None:
        return None


class Apart(Sound):
    """Gives parts that are copies."""

    def _part(self, tensor: NullTensor, offset: int, nbytes: int) -> NullTensor:
        return NullTensor((nbytes,), "int8", 0)


@pytest.mark.parametrize("kind", [Whole, Apart])
def test_reading_where_no_value_can_be_changed(kind: type[NullAdapter]) -> None:
    (about,) = doubted(bench(started(kind)), READ)
    assert (about.confidence, about.reason) == ("medium", "whether reading takes every value could not be looked at")


class AllAlike(Sound):
    """Holds zeros in matrices, with which it is a fifth faster."""

    def drawn(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        return self.alike(shape, super().drawn(shape, dtype, seed))

    def alike(self, shape: tuple[int, ...], numbers: Numbers) -> Any:
        return Numbers(lambda place: 0.0, 0.0) if len(shape) > 1 else numbers


class LargeAlike(AllAlike):
    """Holds zeros in what is large."""

    def alike(self, shape: tuple[int, ...], numbers: Numbers) -> Any:
        return Numbers(lambda place: 0.0, 0.0) if shape[0] * shape[-1] > 100_000 else numbers


class TailAlike(AllAlike):
    """Runs out of random numbers after the first thousand rows or values."""

    def alike(self, shape: tuple[int, ...], numbers: Numbers) -> Any:
        width = shape[1] if len(shape) > 1 else 1
        return Numbers(lambda place: numbers[place] if place < 1000 * width else 0.0, 0.5)


class LastAlike(AllAlike):
    """Holds zeros in all weights but the first."""

    def drawn(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        return Numbers(lambda place: 0.0, 0.0) if len(shape) > 1 and seed > 1 else Numbers.drawn(seed)


@pytest.mark.parametrize(
    ("kind", "pointers"),
    [
        (AllAlike, (GEMM,)),
        (LastAlike, (GEMM,)),
        (LargeAlike, (GEMM, READ, TRIAD, "/memory/cached_read_gb_s")),
        (TailAlike, (GEMM, READ, TRIAD, "/memory/cached_read_gb_s")),
    ],
)
def test_data_that_is_alike_where_it_is_timed(kind: type[NullAdapter], pointers: tuple[str, ...]) -> None:
    document = bench(started(kind, replace(SCRIPT, rates_gflops={"bf16": ((1, 240.0),)})))
    for pointer in pointers:
        about = document.measurements[pointer]
        assert about.confidence != "high"
        assert "alike" in (about.reason or "")


class Remembering(Multiplying):
    """Multiplies once, and gives the same result for the same array from then on."""

    def faulty(self, right: Linear[NullTensor], weight: NullTensor) -> Linear[NullTensor]:
        known: dict[int, tuple[NullTensor, NullTensor]] = {}

        def linear(rows: NullTensor) -> NullTensor:
            if id(rows) not in known:
                known[id(rows)] = rows, right(rows)
            self.clock_s += 2e-4
            return known[id(rows)][1]

        return linear


@pytest.mark.parametrize("has_sheet", [True, False])
def test_a_product_that_is_remembered(has_sheet: bool) -> None:
    adapter = started(Remembering)
    plan = replace(make_plan(adapter.device, quick=True, only=PARTS), rows=(256,), most_rounds=4)
    document = bench(adapter, plan_of(adapter) if has_sheet else plan)
    assert value_at(document, GEMM) is None
    assert document.measurements[GEMM].status == "error"


class HalfOfLarge(Multiplying):
    """Does a half of all products but those with the first weight, in half of the time."""

    prepared = 0

    def faulty(self, right: Linear[NullTensor], weight: NullTensor) -> Linear[NullTensor]:
        width = weight.shape[0]
        self.prepared += width == _WIDTH
        is_first = self.prepared == 1

        def linear(rows: NullTensor) -> NullTensor:
            begin, out = self.clock_s, right(rows)
            if width < _WIDTH or is_first:
                return out
            self.clock_s = (begin + self.clock_s) / 2
            product = numbers_in(out)
            hold(out, Numbers(lambda place: product[place] if place % width < width // 2 else 0.0, 0.0))
            return out

        return linear


def test_half_of_the_work_over_other_weights_than_the_first() -> None:
    document = bench(started(HalfOfLarge, replace(SCRIPT, rates_gflops={"bf16": ((1, 127.0),)})))
    assert value_at(document, GEMM) is None
    assert "the timed result" in document.unknown[GEMM]


class Stale(Sound):
    """Adds once, and leaves what is in the target from then on."""

    added = 0

    def _triad(self, b: NullTensor, c: NullTensor, scale: float, out: NullTensor) -> None:
        self.added += 1
        if self.added < 20:
            return super()._triad(b, c, scale, out)
        self._move("triad", 3 * out.nbytes)
        return None


def test_a_triad_that_stops_to_write() -> None:
    document = bench(started(Stale))
    assert value_at(document, TRIAD) is None
    assert "the timed result" in document.unknown[TRIAD]


class InHertz(Sound):
    """Tells its clock in Hz."""

    def _telemetry(self) -> Telemetry:
        return Telemetry(clock_mhz=2e9)


def test_a_clock_in_another_unit_is_no_clock() -> None:
    adapter = started(InHertz, Script(rates_gflops={"bf16": ((1, 200.0),)}))
    document = bench(adapter, plan_of(adapter, PARTS | {"thermal"}))
    for pointer in (GEMM, READ, BURST, SUSTAINED):
        about = document.measurements[pointer]
        assert (about.clock_mhz, about.lowest_clock_mhz) == (None, None)

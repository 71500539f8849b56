import math
from collections.abc import Callable, Sequence

import pytest

from tests.unit.bench.fake import FakeAdapter, cpu
from tests.unit.bench.scripted import at, play, run, short, written
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.launch import LaunchSection
from vllm_probe.core.primitive import Event
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import Script


def section(script: Script, kind: type[NullAdapter] = NullAdapter) -> LaunchSection:
    adapter = play(script, kind)
    return LaunchSection(adapter, short(adapter))


class Queued(NullAdapter):
    """Issues in 2 us, and waits 30 us for the end."""

    pending = False

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        self.pending = True
        return super()._copy(source, target, non_blocking=non_blocking, queue=queue)

    def _synchronize(self) -> None:
        self.clock_s += 30e-6 if self.pending else 0.0
        self.pending = False


def test_a_round_trip_is_waited_for_and_an_issue_is_not() -> None:
    sheet = run(section(Script(launch_us=2.0), Queued))
    assert at(sheet, "/execution/issue_us")[0] == pytest.approx(2, rel=0.01)
    assert at(sheet, "/execution/launch_overhead_us")[0] == pytest.approx(32, rel=0.01)
    assert at(sheet, "/execution/allocation_us")[0] == pytest.approx(2, rel=0.01)


class Stepped(NullAdapter):
    """Copies at half the rate from an address that is no multiple of 64."""

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        crooked = source.address % 64 and source.nbytes > 1 << 10
        return [
            super(Stepped, self)._copy(source, target, non_blocking=False, queue=0) for _ in range(1 + bool(crooked))
        ][-1]


def test_the_smallest_step_with_the_full_rate_is_found() -> None:
    value, about = at(run(section(Script(), Stepped)), "/memory/full_rate_alignment_bytes")
    assert (value, about.status) == (64, "measured")
    assert "4: 49.81" in (about.reason or "")


def test_where_every_address_is_as_good_four_bytes_are_enough() -> None:
    assert at(run(section(Script())), "/memory/full_rate_alignment_bytes")[0] == 4


class Restless(NullAdapter):
    """Every third batch takes twice as long."""

    turn = 0

    def _time_batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.turn += 1
        return super()._time_batch(calls) * (1 if self.turn % 3 else 2)


def test_rounds_that_differ_leave_the_step_in_doubt() -> None:
    about = at(run(section(Script(), Restless)), "/memory/full_rate_alignment_bytes")[1]
    assert (about.status, about.confidence) == ("noisy", "low")


class Aligned(NullAdapter):
    """Begins every allocation at a multiple of 256."""

    def _allocate(self, nbytes: int, alignment: int) -> NullTensor:
        return super()._allocate(nbytes, max(alignment, 256))


def test_the_observed_alignment_divides_all_addresses() -> None:
    assert at(run(section(Script(), Aligned)), "/memory/observed_alignment_bytes")[0] == 256
    addresses = [play(Script(), Aligned).allocate(size, 1).address for size in (1, 2, 3)]
    assert math.gcd(*addresses) % 256 == 0


def test_a_device_without_addresses_or_parts_says_so() -> None:
    adapter = FakeAdapter(cpu())
    sheet = run(LaunchSection(adapter, short(play(Script()))))
    for name in ("observed_alignment_bytes", "full_rate_alignment_bytes"):
        assert at(sheet, f"/memory/{name}")[1].status == "unsupported"


def test_what_was_measured_is_taken_up_again() -> None:
    before = section(Script())
    run(before)
    after = LaunchSection(before.adapter, before.plan)
    after.restore(read_back(document(before)))
    assert after.readings.keys() == before.readings.keys()
    assert at(written(after), "/execution/issue_us")[0] == pytest.approx(5, rel=0.01)

from collections.abc import Sequence

import pytest

from tests.unit.bench.fake import MIB, FakeAdapter, Values, cpu
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.bench.weight_only import ROWS, WeightOnlySection
from vllm_probe.core import codec
from vllm_probe.core.primitive import Linear
from vllm_probe.core.schema import violations
from vllm_probe.vendors.conformance import reference


def dot(x: Values, weight: Values, at: Sequence[int]) -> float:
    return reference.dot(x.at(at[:1]), weight.at(at[1:]))


class Narrow(FakeAdapter):
    """Keeps weights in int4 only, at 300 GFLOP/s."""

    exactness = 1.1

    def _weight_only_formats(self) -> tuple[str, ...]:
        return ("int4",)

    def _prepare_weight_only(self, weight: Values, dtype: str) -> Linear[Values]:
        def linear(x: Values) -> Values:
            self._work(f"{dtype} weight {x.shape[0]}", 2.0 * x.shape[0] * x.shape[1] * weight.shape[0] / 300)
            return Values((x.shape[0], weight.shape[0]), list, lambda at: self.exactness * dot(x, weight, at))

        return linear


def plan() -> BenchPlan:
    return make_plan(cpu(), quick=False, only=frozenset())


def measured(adapter: Narrow) -> WeightOnlySection:
    section = WeightOnlySection(adapter, plan())
    for batch in section.batches():
        for case, reading in Stopwatch(adapter, section.plan).run(batch, lambda case: None):
            section.readings[case.key] = reading
    return section


def test_a_point_has_rows_weight_bytes_and_operations_of_one_time() -> None:
    made = document(measured(Narrow()))
    curve = made.weight_only["int4"].curve
    assert [rows for rows, _, _ in curve] == list(ROWS)
    assert [rate for _, _, rate in curve] == pytest.approx([300] * 4)
    assert [weights for _, weights, _ in curve] == pytest.approx([300 * 0.5 / (2 * rows) for rows in ROWS])
    about = made.measurements["/weight_only/int4/curve"]
    assert (about.status, about.unit) == ("measured", "rows, GB/s of weights, GFLOP/s")
    assert about.samples == sum(made.measurements[f"/weight_only/int4/curve/{i}"].samples or 0 for i in range(4))
    assert violations("capability", codec.to_json(made)) == ()


def test_a_format_without_a_kernel_is_unsupported() -> None:
    made = document(measured(Narrow()))
    assert made.measurements["/weight_only/int8/curve"].status == "unsupported"
    assert made.unknown["/weight_only/int8/curve"] == "the adapter has no linear over an int8 weight"


def test_before_its_turn_it_says_so() -> None:
    assert document(WeightOnlySection(Narrow(), plan())).unknown["/weight_only/int4/curve"] == "not run yet"


def test_weights_are_kept_once_for_all_rows_and_turn_beyond_three_times_the_cache() -> None:
    adapter = Narrow()
    drawn: list[str] = []
    adapter.before = lambda operation: drawn.append(operation) if operation == "random bf16 4096 1024" else None
    section = WeightOnlySection(adapter, plan())
    works = [case.prepare(1) for batch in section.batches() for case in batch]
    assert len(drawn) * 2 * MIB >= 3 * section.plan.cache_bytes
    assert all(getattr(work, "doubts", None) == () for work in works)


def test_a_failing_row_count_leaves_the_others_and_its_reason() -> None:
    adapter = Narrow()

    def explode(operation: str) -> None:
        if operation == "int4 weight 64":
            raise ValueError("no such kernel")

    adapter.before = explode
    made = document(measured(adapter))
    assert [rows for rows, _, _ in made.weight_only["int4"].curve] == [1, 16, 256]
    assert made.measurements["/weight_only/int4/curve"].reason == "64 rows: ValueError: no such kernel"


def test_points_are_read_back_from_a_written_document() -> None:
    before, after = measured(Narrow()), WeightOnlySection(Narrow(), plan())
    after.restore(read_back(document(before)))
    assert codec.dumps(document(after)) == codec.dumps(document(before))


def test_a_kernel_that_gives_something_else_has_no_rate() -> None:
    adapter = Narrow()
    adapter.exactness = 3.0
    made = document(measured(adapter))
    assert made.measurements["/weight_only/int4/curve"].status == "error"
    assert "is allowed in bf16" in made.unknown["/weight_only/int4/curve"]


class Remembering(Narrow):
    """Multiplies an array once."""

    def _prepare_weight_only(self, weight: Values, dtype: str) -> Linear[Values]:
        right, known = super()._prepare_weight_only(weight, dtype), {}

        def linear(x: Values) -> Values:
            if id(x) not in known:
                known[id(x)] = x, right(Values(x.shape, list, x.at))
            self._now += 1e-4
            return known[id(x)][1]

        return linear


def test_a_product_that_is_remembered_has_no_rate() -> None:
    made = document(measured(Remembering()))
    assert made.weight_only["int4"].curve == ()
    assert "the timed result" in made.unknown["/weight_only/int4/curve"]


class Alike(Narrow):
    """Draws the same value for all of a matrix."""

    def _random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Values:
        row = [1.0] * shape[-1]
        return Values(shape, list, lambda at: row if len(at) == 1 else 1.0)


def test_operands_that_are_alike_are_said() -> None:
    about = document(measured(Alike())).measurements["/weight_only/int4/curve/0"]
    assert about.confidence != "high"
    assert "alike" in (about.reason or "")

from dataclasses import replace

import pytest

from tests.unit.bench.fake import MIB, FakeAdapter, cpu, prepared
from vllm_probe.bench.contest import Decided
from vllm_probe.bench.gemm import LinearFormat
from vllm_probe.bench.plan import make_plan
from vllm_probe.core.capability import Measurement
from vllm_probe.vendors.mapper import Choice

PLAN = make_plan(cpu(), quick=True, only=frozenset())


def choose(adapter: FakeAdapter, dtype: str = "bf16", earlier: Choice | None = None) -> Choice:
    choices = {dtype: Decided(earlier, Measurement(source="measured", status="measured"))} if earlier else {}
    LinearFormat(adapter, PLAN, dtype, choices).case(32).prepare(1)
    return choices[dtype].choice


def test_the_fastest_implementation_wins_and_its_lead_is_kept() -> None:
    choice = choose(FakeAdapter())
    assert (choice.implementation, choice.second, choice.refused) == ("packed", "plain", {})
    assert choice.ratio == pytest.approx(1.25)


def test_a_single_implementation_has_no_second() -> None:
    assert choose(FakeAdapter(), "fp32") == Choice(implementation="plain")


def test_a_fast_implementation_that_is_wrong_is_refused_with_its_error() -> None:
    adapter = FakeAdapter()
    adapter.wrong = {("bf16", "packed"): 16.0}
    choice = choose(adapter)
    assert choice.implementation == "plain"
    assert "is allowed in bf16" in choice.refused["packed"]


def test_int8_must_be_exact() -> None:
    adapter = FakeAdapter()
    adapter.wrong = {("int8", "plain"): 1.0}
    with pytest.raises(ArithmeticError, match=r"plain: .* 0 is allowed in int8"):
        choose(adapter, "int8")


def test_an_implementation_that_raises_leaves_the_other() -> None:
    adapter = FakeAdapter()

    def explode(operation: str) -> None:
        if "packed" in operation:
            raise NotImplementedError("no such kernel")

    adapter.before = explode
    assert "NotImplementedError: no such kernel" in choose(adapter).refused["packed"]


def test_an_earlier_choice_is_kept_without_a_contest() -> None:
    adapter = FakeAdapter()
    earlier = Choice(implementation="plain", second="packed", ratio=1.5)
    assert choose(adapter, earlier=earlier) == earlier
    assert not any("packed" in operation for operation in adapter.ran)


def test_weights_take_turns_beyond_three_times_the_cache() -> None:
    work = prepared(LinearFormat(FakeAdapter(), PLAN, "int8", {}).case(32))
    assert len(work.calls) * 4 * MIB >= 3 * 8 * MIB
    assert work.doubts == ()
    assert work.amount == 2 * 32 * 1024 * 4096


def test_too_few_weights_are_a_doubt() -> None:
    form = LinearFormat(FakeAdapter(), replace(PLAN, operand_bytes=8 * MIB), "int8", {})
    assert prepared(form.case(32)).doubts == ("weights may be partly cached",)


def test_weights_are_prepared_once_for_all_row_counts() -> None:
    adapter = FakeAdapter()
    drawn: list[str] = []
    adapter.before = lambda operation: drawn.append(operation) if operation == "random fp16 4096 1024" else None
    form = LinearFormat(adapter, PLAN, "fp16", {})
    for rows in (32, 64):
        form.case(rows).prepare(1)
    assert len(drawn) == 24 // 8 + 1

import pytest

from tests.unit.bench.fake import STAMP, FakeAdapter, cpu
from vllm_probe.bench.plan import make_plan
from vllm_probe.bench.primitives import PrimitivesSection
from vllm_probe.bench.run import run_bench
from vllm_probe.core.capability import Capability
from vllm_probe.core.progress import silent

PLAN = make_plan(cpu(), quick=False, only=frozenset({"primitives"}))


def bench(adapter: FakeAdapter, resume_from: Capability | None = None) -> Capability:
    return run_bench(adapter, PLAN, STAMP, resume_from=resume_from, save=lambda document: None, progress=silent)


def test_the_fastest_implementation_of_each_format_is_written_down_with_its_lead() -> None:
    rope = bench(FakeAdapter()).primitives["rope"]
    won = {"implementation": "fast", "second": "slow", "ratio": pytest.approx(4.0)}
    assert rope == {"fp32": won, "bf16": won}


def test_unless_asked_for_by_name_only_the_format_to_compute_in_is_tried() -> None:
    plan = make_plan(cpu(), quick=False, only=frozenset())
    section = PrimitivesSection(FakeAdapter(), plan)
    assert {case.key[0] for case in [*section.batches()][1]} == {"rope bf16 slow", "rope bf16 fast"}
    assert plan.compile_s < PLAN.compile_s


def test_a_fast_implementation_that_is_wrong_is_not_even_timed() -> None:
    adapter = FakeAdapter()
    adapter.wrong = {("rope", "fast"): 1.0}
    choice = bench(adapter).primitives["rope"]["fp32"]
    assert choice["implementation"] == "slow"
    assert "is allowed in fp32" in choice["refused"]["fast"]
    assert adapter.ran.count("rope fast") < 10


def test_one_that_raises_leaves_the_other() -> None:
    adapter = FakeAdapter()

    def explode(operation: str) -> None:
        if operation == "rope fast":
            raise RuntimeError("out of registers")

    adapter.before = explode
    choice = bench(adapter).primitives["rope"]["bf16"]
    assert choice["implementation"] == "slow"
    assert "out of registers" in choice["refused"]["fast"]


def test_what_the_adapter_lacks_is_unsupported_and_what_it_was_not_asked_for_is_skipped() -> None:
    document = bench(FakeAdapter())
    assert document.measurements["/primitives/attention"].status == "unsupported"
    quick = make_plan(cpu(), quick=True, only=frozenset())
    document = run_bench(FakeAdapter(), quick, STAMP, save=lambda document: None, progress=silent)
    assert document.unknown["/primitives/rope"] == "--quick leaves primitives out"


def test_a_choice_that_was_made_is_not_made_again() -> None:
    again = FakeAdapter()
    first = bench(FakeAdapter())
    assert bench(again, resume_from=first).primitives == first.primitives
    assert not [name for name in again.ran if name.startswith("rope")]


def test_a_primitive_with_a_choice_is_not_among_the_unknown() -> None:
    document = bench(FakeAdapter())
    assert document.primitives["rope"]
    assert "/primitives/rope" not in document.unknown
    assert "/primitives/rope" not in document.measurements
    assert document.unknown["/primitives/attention"]

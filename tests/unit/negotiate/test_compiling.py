"""What is compiled and recorded as graphs, by what bench saw and by what is pinned."""

from tests.unit.negotiate.cases import (
    CPU,
    EMBEDDING,
    H100,
    QWEN3_8B,
    config,
    decision,
    descriptor,
)


def test_the_bundled_runtime_compiles_where_bench_saw_a_gain() -> None:
    rope = {"bf16": {"implementation": "inductor", "second": "blocked", "ratio": 2.5}}
    document = descriptor(CPU, primitives={"rope": rope})
    found = config(EMBEDDING, document)
    assert (found.compile.enabled, found.compile.mode, found.compile.backend) == (True, "default", "inductor")
    assert found.compile.reason == "bench saw a gain: rope 2.5 times as fast"
    assert found.primitives["rope"] == "inductor"
    eager = config(EMBEDDING, document, pins={"enforce_eager": True})
    assert (eager.compile.enabled, eager.primitives["rope"]) == (False, "blocked")
    assert config(EMBEDDING, CPU).compile.reason == "bench saw no gain"
    untried = descriptor({key: value for key, value in CPU.items() if key != "primitives"})
    assert config(EMBEDDING, untried).compile.reason == "no bench tried it"


def test_what_bench_could_not_tell_is_no_winner() -> None:
    disturbed = {"source": "measured", "status": "throttled", "confidence": "low", "reason": "busy"}
    clear = {"implementation": "inductor", "second": "blocked", "ratio": 2.5}
    document = descriptor(
        CPU,
        primitives={"attention": {"bf16": {"implementation": "bmm"}}, "rope": {"bf16": clear}},
        measurements={"/primitives/attention/bf16": disturbed, "/primitives/rope/bf16": disturbed},
    )
    found = config(EMBEDDING, document)
    (rule,) = [decision.rule for decision in found.decisions if decision.key == "primitives"]
    assert rule.endswith("; attention as the adapter prefers, since bench could not tell which is faster")
    assert found.primitives["attention"] == "bmm"


def test_graphs_are_recorded_where_launches_take_over_a_fifth_of_a_step() -> None:
    won = {"rope": {"bf16": {"implementation": "inductor", "second": "rope", "ratio": 2.5}}}
    small = config(EMBEDDING, H100 | {"primitives": won}, input_len=64).compile
    assert (small.enabled, small.mode) == (True, "reduce-overhead")
    assert "of a step, which recorded graphs save" in small.reason
    large = config(EMBEDDING, H100 | {"primitives": won}, input_len=32_000).compile
    assert (large.enabled, large.mode) == (True, "default")


def test_eager_execution_has_no_graphs_and_no_compiler() -> None:
    eager = config(QWEN3_8B, H100, engine="vllm", pins={"enforce_eager": True})
    assert (eager.compile.enabled, eager.budget.graph_bytes) == (False, 0)
    assert decision(eager, "compile").pinned
    compiled = config(QWEN3_8B, H100, engine="vllm")
    assert (compiled.compile.enabled, compiled.compile.mode, compiled.compile.backend) == (True, "default", "inductor")
    assert compiled.budget.graph_bytes > 0

from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.mapper import Trial, choose

trials = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        Trial,
        error=st.none() | st.floats(0, 1) | st.just(float("nan")),
        seconds=st.none() | st.floats(1e-9, 1e3),
    ),
)


def test_the_fastest_accurate_implementation_wins() -> None:
    measured = {
        "packed": Trial(error=2e-3, seconds=2.0),
        "plain": Trial(error=1e-3, seconds=3.0),
        "wild": Trial(error=0.2, seconds=1.0),
    }
    found = choose(("plain", "packed", "wild", "new"), measured, 1e-2)
    assert found.name == "packed"
    assert found.rejected == {
        "plain": "1.50 times the time of packed",
        "wild": "relative error 2.0e-01 is above 1.0e-02",
        "new": "not timed",
    }


def test_without_timings_the_adapters_order_holds_and_the_numerics_gate_still_runs() -> None:
    assert choose(("a", "b"), {}, 1e-2).name == "a"
    assert choose(("a", "b"), {"a": Trial(error=0.5)}, 1e-2).name == "b"
    assert choose(("a", "b"), {"a": Trial(error=0.5), "b": Trial(error=float("nan"))}, 1e-2).name is None


@given(trials)
def test_the_choice_is_never_inaccurate_nor_slower_than_another_that_is_accurate(measured: dict[str, Trial]) -> None:
    found = choose("abcd", measured, 0.5)
    accurate = {name for name in "abcd" if (error := measured.get(name, Trial()).error) is None or error <= 0.5}
    assert (found.name in accurate) if accurate else found.name is None
    assert set(found.rejected) == set("abcd") - {found.name}
    times = [measured[name].seconds for name in accurate if name in measured]
    best = min((seconds for seconds in times if seconds is not None), default=None)
    assert best is None or measured[found.name or ""].seconds == best

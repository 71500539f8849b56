"""The backlog: order, chunks of long prompts, turns with short ones."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.runtime.sched.backlog import Backlog, Limits
from vllm_probe.runtime.sched.request import Prompt, Request, StepPlan

CHUNK = 10
LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=20, max_waiting_tokens=1000, chunk_tokens=CHUNK)
Span = tuple[int, int]


def request(*lengths: int) -> Request:
    return Request(prompts=tuple(tuple(range(length)) for length in lengths))


def backlog(*requests: Request, limits: Limits = LIMITS) -> Backlog:
    made = Backlog(limits)
    for item in requests:
        made.add(item)
    return made


def drain(made: Backlog) -> list[StepPlan]:
    plans = []
    while made:
        plans.append(made.take())
    return plans


def spans(plans: list[StepPlan]) -> list[list[Span]]:
    return [[(chunk.begin, chunk.end) for chunk in plan.chunks] for plan in plans]


def test_a_long_prompt_runs_in_chunks() -> None:
    (first, *_, last) = plans = drain(backlog(request(25)))
    assert spans(plans) == [[(0, 10)], [(10, 20)], [(20, 25)]]
    assert (first.chunks[0].token_ids, last.chunks[0].token_ids) == (tuple(range(10)), tuple(range(20, 25)))
    assert [plan.chunks[0].is_last for plan in plans] == [False, False, True]


@pytest.mark.parametrize(("length", "wanted"), [(9, [[(0, 9)]]), (10, [[(0, 10)]]), (11, [[(0, 10)], [(10, 11)]])])
def test_a_prompt_of_the_size_of_a_chunk_is_not_cut(length: int, wanted: list[list[Span]]) -> None:
    assert spans(drain(backlog(request(length)))) == wanted


def test_without_a_chunk_size_nothing_is_cut() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=20, max_waiting_tokens=1000)
    assert spans(drain(backlog(request(25), request(3), limits=limits))) == [[(0, 25)], [(0, 3)]]


def test_short_prompts_run_between_the_chunks_of_a_long_one() -> None:
    made = backlog(request(30))
    made.take()
    made.add(request(4, 5, 6))
    assert spans(drain(made)) == [[(0, 4), (0, 5)], [(10, 20)], [(0, 6)], [(20, 30)]]


def test_without_a_long_prompt_a_step_is_larger_than_a_chunk() -> None:
    assert spans(drain(backlog(request(4, 5, 6)))) == [[(0, 4), (0, 5), (0, 6)]]


def test_long_prompts_run_one_after_the_other() -> None:
    first, second = request(15), request(15)
    owners = [plan.chunks[0].prompt.request for plan in drain(backlog(first, second))]
    assert owners == [first, first, second, second]


def test_a_request_of_more_than_a_step_lets_those_that_came_later_take_their_turns() -> None:
    large, second, small = request(*[10] * 8), request(*[10] * 3), request(5)
    owners = [[chunk.prompt.request for chunk in plan.chunks] for plan in drain(backlog(large, second, small))]
    assert owners == [[large] * 2, [second] * 2, [small], [large] * 2, [second], [large] * 2, [large] * 2]


def test_a_turn_ends_with_as_many_prompts_as_a_step_holds() -> None:
    large, second, small = request(*[1] * 12), request(*[1] * 6), request(2)
    owners = [[chunk.prompt.request for chunk in plan.chunks] for plan in drain(backlog(large, second, small))]
    assert owners == [[large] * 4, [second] * 4, [small], [large] * 4, [second] * 2 + [large] * 2, [large] * 2]


@pytest.mark.parametrize("max_num_seqs", [1, 8, 64])
def test_behind_a_request_of_many_short_prompts_a_small_one_runs_in_the_second_step(max_num_seqs: int) -> None:
    limits = Limits(max_num_seqs=max_num_seqs, max_num_batched_tokens=1024, max_waiting_tokens=32768, chunk_tokens=1024)
    small, made = request(2), backlog(request(*[2] * 2048), limits=limits)
    made.take()
    made.add(small)
    made.take()
    assert [chunk.prompt.request for chunk in made.take().chunks] == [small]


def test_long_prompts_of_different_requests_take_turns() -> None:
    large, small = request(*[25] * 3), request(15)
    owners = [plan.chunks[0].prompt.request for plan in drain(backlog(large, small))]
    assert owners == [large] * 3 + [small] * 2 + [large] * 6


def test_a_request_that_leaves_in_its_turn_takes_none_of_the_next() -> None:
    first, second, third, long = request(10, 5, 5), request(10, 10, 5), request(7), request(25)
    made = backlog(first, second, third, long)
    made.take()
    made.remove(first)
    owners = [[chunk.prompt.request for chunk in plan.chunks] for plan in drain(made)]
    assert owners == [[long], [second], [long], [second], [long], [second, third]]


def test_tokens_are_counted_until_they_are_in_a_step() -> None:
    made = backlog(request(25, 3))
    counts = [made.num_tokens]
    while made:
        made.take()
        counts.append(made.num_tokens)
    assert counts == [28, 25, 15, 5, 0]


def test_a_removed_prompt_does_not_leave_its_progress_to_the_next() -> None:
    first, second = request(25), request(24, 2)
    made = backlog(first, second)
    made.take()
    made.take()
    made.remove(first)
    assert made.num_tokens == 24
    assert spans(drain(made)) == [[(0, 10)], [(10, 20)], [(20, 24)]]


def test_a_cleared_backlog_is_empty() -> None:
    made = backlog(request(25, 3))
    made.take()
    made.take()
    made.clear()
    assert not made
    assert (made.num_tokens, made.take()) == (0, StepPlan(()))
    made.add(request(12))
    assert spans(drain(made)) == [[(0, 10)], [(10, 12)]]


arrivals = st.lists(
    st.one_of(st.just("step"), st.just("remove"), st.lists(st.integers(1, 45), min_size=1, max_size=6)), max_size=30
)


@given(arrivals)
def test_whatever_arrives_is_computed_once_and_a_request_in_its_order(events: list[str | list[int]]) -> None:
    made, kept, plans = Backlog(LIMITS), list[Request](), list[StepPlan]()
    for event in events:
        if event == "step":
            plans.append(made.take())
        elif event == "remove":
            if kept:
                made.remove(kept.pop())
        else:
            kept.append(request(*map(int, event)))
            made.add(kept[-1])
        assert made.num_tokens == sum(item.num_tokens for item in kept) - sum(
            chunk.num_tokens for plan in plans for chunk in plan.chunks if chunk.prompt.request in kept
        )
    plans += drain(made)
    done: dict[Prompt, list[Span]] = {}
    for plan in plans:
        assert len(plan.chunks) <= LIMITS.max_num_seqs
        assert plan.num_tokens <= LIMITS.max_num_batched_tokens
        for chunk in plan.chunks:
            done.setdefault(chunk.prompt, []).append((chunk.begin, chunk.end))
    for item in kept:
        for index, token_ids in enumerate(item.prompts):
            bounds = [0, *range(CHUNK, len(token_ids), CHUNK), len(token_ids)]
            assert done[Prompt(item, index)] == list(pairwise(bounds))
    for is_long, item in product((True, False), kept):
        steps = {
            chunk.prompt.index: number
            for number, plan in enumerate(plans)
            for chunk in plan.chunks
            if chunk.prompt.request is item and (chunk.prompt.num_tokens > CHUNK) is is_long
        }
        assert [steps[index] for index in sorted(steps)] == sorted(steps.values())


def turns_of(lengths: list[int]) -> int:
    turns = [[lengths[0]]]
    for length in lengths[1:]:
        if len(turns[-1]) == LIMITS.max_num_seqs or sum(turns[-1]) + length > LIMITS.max_num_batched_tokens:
            turns.append([])
        turns[-1].append(length)
    return len(turns)


@given(st.lists(st.integers(1, CHUNK), min_size=1, max_size=60), st.lists(st.integers(1, CHUNK), min_size=1))
def test_beside_a_large_request_a_small_one_gets_every_other_turn(large: list[int], small: list[int]) -> None:
    first, second = request(*large), request(*small)
    plans = drain(backlog(first, second))
    until = max(index for index, plan in enumerate(plans) if any(c.prompt.request is second for c in plan.chunks))
    beside = sum(chunk.num_tokens for plan in plans[: until + 1] for chunk in plan.chunks)
    assert beside - sum(small) <= (turns_of(small) + 1) * (LIMITS.max_num_batched_tokens + CHUNK)


@given(st.lists(st.integers(1, CHUNK), min_size=1, max_size=40), st.integers(CHUNK + 1, 100))
def test_a_long_prompt_takes_at_most_twice_its_steps_and_a_short_one_waits_for_one_chunk(
    shorts: list[int], long: int
) -> None:
    made, big = backlog(request(long)), -(-long // CHUNK)
    made.take()
    for length in shorts:
        made.add(request(length))
    is_chunk = [plan.chunks[0].prompt.num_tokens > CHUNK for plan in drain(made)]
    assert sum(is_chunk) == big - 1
    assert all(not (first and second) for first, second in pairwise(is_chunk[: 2 * is_chunk.count(False)]))
    while_long = is_chunk[: len(is_chunk) - is_chunk[::-1].index(True)] if any(is_chunk) else []
    assert len(while_long) <= 2 * (big - 1)

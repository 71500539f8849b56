"""The request queue: order, budget, accounting, refusal and the end."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from vllm_probe.runtime.sched.backlog import Limits
from vllm_probe.runtime.sched.queue import RequestQueue
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, Request, RequestError, StepPlan

LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=30)


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(*lengths: int) -> Request:
    """Of a byte per token."""
    return Request(prompts=tuple(tuple(range(length)) for length in lengths), num_bytes=sum(lengths))


def queue(*requests: Request, clock: Clock | None = None) -> RequestQueue:
    made = RequestQueue(LIMITS, clock or Clock())
    for item in requests:
        made.submit(item)
    return made


def step(made: RequestQueue) -> StepPlan:
    plan = made.next_step(0)
    assert plan is not None
    return plan


def test_a_step_takes_prompts_in_order_of_arrival_up_to_the_token_budget() -> None:
    made = queue(request(6, 4), request(1))
    assert step(made).lengths == (4, 6)
    assert step(made).lengths == (1,)


def test_a_step_holds_at_most_max_num_seqs_prompts() -> None:
    assert step(queue(request(1, 1, 1, 1, 1, 1))).lengths == (1, 1, 1, 1)


def test_a_prompt_that_does_not_fit_is_not_overtaken() -> None:
    made = queue(request(6), request(9), request(1))
    assert [step(made).lengths for _ in range(2)] == [(6,), (1, 9)]


def test_a_prompt_longer_than_the_budget_runs_alone() -> None:
    made = queue(request(25), request(1))
    assert [step(made).lengths for _ in range(2)] == [(25,), (1,)]


def test_prompts_of_a_step_are_sorted_by_length_and_keep_their_index() -> None:
    plan = step(queue(request(3, 1, 2)))
    assert [(chunk.prompt.index, chunk.num_tokens) for chunk in plan.chunks] == [(1, 1), (2, 2), (0, 3)]


@pytest.mark.parametrize(
    ("max_tokens", "parts"),
    [(1, [(1,), (2,), (3,), (4,)]), (3, [(1, 2), (3,), (4,)]), (7, [(1, 2, 3), (4,)]), (10, [(1, 2, 3, 4)])],
)
def test_a_plan_is_split_into_parts_of_whole_prompts(max_tokens: int, parts: list[tuple[int, ...]]) -> None:
    assert [part.lengths for part in step(queue(request(4, 2, 3, 1))).split(max_tokens)] == parts


def test_scheduling_needs_no_torch() -> None:
    code = "import sys, vllm_probe.runtime.sched.queue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_request_is_complete_with_its_last_prompt() -> None:
    long = request(8, 8)
    made = queue(long)
    assert made.finish(step(made), 1.0) == ()
    assert made.finish(step(made), 1.0) == (long,)


def test_a_full_queue_refuses_with_the_time_that_it_needs() -> None:
    made = queue(request(10))
    made.finish(step(made), 2.0)  # 5 tokens per second
    made.submit(request(10, 10, 8))
    with pytest.raises(QueueFull, match="28 tokens are waiting, the limit is 30") as refused:
        made.submit(request(3))
    assert refused.value.retry_after_s == 6
    made.submit(request(2))


def test_after_a_refusal_nothing_as_large_is_read_until_the_queue_is_half_empty() -> None:
    made = queue(request(10), request(10), request(10))
    made.check_room(2)  # full to the brim, and nobody was refused
    with pytest.raises(QueueFull):
        made.submit(request(2))
    for num_bytes in (2, 3):
        with pytest.raises(QueueFull, match="30 tokens are waiting, the limit is 30"):
            made.check_room(num_bytes)
    made.check_room(1)
    step(made)
    with pytest.raises(QueueFull, match="20 tokens are waiting"):
        made.check_room(2)
    step(made)
    made.check_room(2)
    made.submit(request(15))
    made.check_room(2)


def test_the_smallest_refusal_is_remembered() -> None:
    made = queue(request(10, 10, 8))
    for num_tokens in (5, 3, 4):
        with pytest.raises(QueueFull):
            made.submit(request(num_tokens))
    with pytest.raises(QueueFull):
        made.check_room(3)
    made.check_room(2)
    made.submit(request(2))


def test_a_large_request_that_is_refused_keeps_no_small_one_from_being_read() -> None:
    made = queue(request(10, 10))
    with pytest.raises(QueueFull, match="20 tokens are waiting, the limit is 30"):
        made.submit(request(31))
    made.check_room(10)
    made.submit(request(10))


def test_beside_a_large_request_another_is_refused_unread() -> None:
    made = queue(request(10, 10, 20))
    with pytest.raises(QueueFull):
        made.submit(request(50))
    with pytest.raises(QueueFull, match="40 tokens of another large request are waiting"):
        made.check_room(480)
    made.check_room(479)  # may be 29 tokens and a half
    made.submit(request(15))
    step(made)
    with pytest.raises(QueueFull, match="30 tokens of another large request are waiting"):
        made.check_room(480)
    while made.state().waiting_tokens:
        step(made)
    made.check_room(480)
    made.submit(request(50))


def test_what_becomes_too_large_while_it_is_read_is_not_read_to_its_end() -> None:
    made = queue(request(40))
    made.check_room(999, num_tokens=30)  # may still be a small one
    with pytest.raises(QueueFull, match="40 tokens of another large request are waiting"):
        made.check_room(999, num_tokens=31)
    with pytest.raises(QueueFull):
        made.check_room(999)
    made.check_room(998)


def test_a_large_request_of_few_bytes_that_was_refused_keeps_no_other_from_being_read() -> None:
    made = queue(request(40))
    with pytest.raises(QueueFull):
        made.submit(request(31))
    made.check_room(479)


def test_what_would_take_too_long_is_not_read_to_its_end() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=30, max_request_s=60.0))
    made.submit(request(10))
    made.finish(step(made), 5.0)  # 2 tokens per second
    made.check_room(999, num_tokens=120)
    with pytest.raises(RequestError, match="more than 120 tokens take more than 60 s here"):
        made.check_room(999, num_tokens=121)


def test_after_a_refusal_everything_is_read_once_nothing_waits() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=5))
    made.submit(request(4))
    with pytest.raises(QueueFull):
        made.submit(request(4))
    with pytest.raises(QueueFull):
        made.check_room(4)
    step(made)
    made.check_room(4)


def test_nothing_is_read_by_a_closed_queue() -> None:
    made = queue()
    made.close()
    with pytest.raises(QueueClosed):
        made.check_room(0)


def test_retry_after_is_never_longer_than_clients_accept() -> None:
    made = queue(request(10, 10, 10))
    made.finish(step(made), 100.0)  # a token in ten seconds
    with pytest.raises(QueueFull, match="20 tokens are waiting") as refused:
        made.submit(request(1))
    assert refused.value.retry_after_s == 120


def test_what_waits_is_bounded_by_its_time_at_the_measured_rate() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=1000, max_waiting_s=24.0)
    made = RequestQueue(limits)
    made.submit(request(10))
    made.finish(step(made), 5.0)  # 2 tokens per second
    made.submit(request(10, 10, 8))
    made.submit(request(10, 10))
    with pytest.raises(QueueFull, match="48 tokens are waiting, the limit is 48") as refused:
        made.submit(request(1))
    assert refused.value.retry_after_s == 24


def test_what_passes_between_steps_counts_unless_nothing_waited() -> None:
    clock = Clock()
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=1000, max_waiting_s=10.0)
    made = RequestQueue(limits, clock)
    clock.now = 1000.0
    made.submit(request(10))
    made.finish(step(made), 1.0)  # 10 tokens per second
    clock.now = 2000.0
    made.submit(request(*[10] * 9))
    for _ in range(2):
        plan = step(made)
        clock.now += 5.0
        made.finish(plan, 1.0)  # and 4 s more: 2 tokens per second
    with pytest.raises(QueueFull, match="70 tokens are waiting, the limit is 40"):
        made.submit(request(1))


def test_the_step_that_runs_takes_of_the_time_for_what_waits() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=1000, max_waiting_s=24.0))
    made.submit(request(10))
    made.finish(step(made), 5.0)  # 2 tokens per second
    made.submit(request(10))
    plan = step(made)
    made.submit(request(10, 10, 10, 8))
    with pytest.raises(QueueFull, match="38 tokens are waiting, the limit is 38"):
        made.submit(request(1))
    made.finish(plan, 5.0)
    made.submit(request(10))


def test_the_rate_is_that_of_steps_behind_which_more_waits() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=1000, max_waiting_s=10.0))
    for _ in range(2):
        made.submit(request(10))
        made.finish(step(made), 1.0)  # 10 tokens per second
    for _ in range(50):
        made.submit(request(1))
        made.finish(step(made), 1.0)  # small, and so it says nothing
    made.submit(request(100))
    with pytest.raises(QueueFull, match="the limit is 100"):
        made.submit(request(1))


def test_a_rate_that_falls_under_load_is_followed_but_not_at_once() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=1000, max_waiting_s=10.0))
    made.submit(request(10))
    made.finish(step(made), 1.0)
    made.submit(request(*[10] * 8))
    limits = []
    for seconds in (1000.0, 10.0, 10.0, 10.0, 10.0, 10.0):
        made.finish(step(made), seconds)
        with pytest.raises(QueueFull) as refused:
            made.submit(request(*[10] * 10))
        limits.append(int(str(refused.value).rpartition(" ")[2]))
    assert limits == [50, 30, 20, 15, 12, 11]


def test_a_request_larger_than_the_queue_is_admitted_and_locks_nobody_out() -> None:
    large, small = request(*[10] * 8), request(5, 5)
    made = queue(large)
    made.submit(small)
    assert made.state().waiting_tokens == 90
    assert [step(made).lengths for _ in range(2)] == [(10,), (5, 5)]


def test_beside_a_large_request_half_as_much_may_wait() -> None:
    made = queue(request(*[10] * 8), request(10))
    with pytest.raises(QueueFull, match="10 tokens are waiting, the limit is 15"):
        made.submit(request(6))
    made.submit(request(5))
    alone = queue(request(*[10] * 8))
    alone.submit(request(16))  # as large as it may be without a large one, and nothing else waits
    with pytest.raises(QueueFull):
        alone.submit(request(1))


def test_large_requests_are_admitted_one_at_a_time() -> None:
    made = queue(request(16))
    with pytest.raises(QueueFull, match="16 tokens are waiting"):
        made.submit(request(31))
    step(made)
    made.submit(request(31))
    with pytest.raises(QueueFull, match="31 tokens of another large request"):
        made.submit(request(31))
    made.check_room(30)  # small ones are read
    step(made)
    made.submit(request(31))


def test_a_request_that_would_take_too_long_alone_is_refused_for_good() -> None:
    made = RequestQueue(Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=30, max_request_s=60.0))
    made.submit(request(10))
    made.finish(step(made), 5.0)  # 2 tokens per second
    with pytest.raises(
        RequestError, match="more than 120 tokens take more than 60 s here, the limit of a request: send fewer"
    ):
        made.submit(request(121))
    made.submit(request(120))


def test_a_request_that_was_possible_once_is_never_refused_for_good() -> None:
    clock = Clock()
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=10, max_waiting_tokens=30, max_request_s=60.0)
    made = RequestQueue(limits, clock)
    made.submit(request(10))
    made.finish(step(made), 5.0)  # 2 tokens per second
    made.submit(request(10, 10, 10))
    for _ in range(2):
        plan = step(made)
        clock.now += 100.0
        made.finish(plan, 100.0)  # 0.1 tokens per second
    with pytest.raises(QueueFull, match="at the present rate more than 34 tokens take more than 60 s here") as refused:
        made.submit(request(120))
    assert 1 <= refused.value.retry_after_s <= 120
    with pytest.raises(RequestError, match="more than 120 tokens take more than 60 s here"):
        made.submit(request(121))
    step(made)
    made.submit(request(120))  # nothing waits any more: it runs, and shows what the rate is


def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    first, second = request(8, 8), request(2)
    made = queue(first, second)
    made.cancel(first)
    assert made.state().waiting_tokens == 2
    assert step(made).lengths == (2,)


def test_a_request_cancelled_while_it_runs_never_completes() -> None:
    item = request(8, 8)
    made = queue(item)
    plan = step(made)
    made.cancel(item)
    assert made.finish(plan, 1.0) == ()
    assert step(made).chunks == ()


def test_a_closed_queue_finishes_what_it_admitted_and_then_ends() -> None:
    made = queue(request(3))
    made.close()
    with pytest.raises(QueueClosed):
        made.submit(request(1))
    assert step(made).lengths == (3,)
    assert made.next_step(0) is None


def test_abort_gives_back_everything_incomplete() -> None:
    running, waiting = request(8), request(8)
    made = queue(running, waiting)
    step(made)
    assert made.abort() == (running, waiting)
    assert made.next_step(0) is None


def test_state_tells_waiting_from_running() -> None:
    clock = Clock()
    first, second = request(8), request(8)
    made = queue(first, second, clock=clock)
    clock.now = 3.0
    step(made)
    state = made.state()
    assert (state.running, state.waiting, state.waiting_tokens, state.closed) == (1, 1, 8, False)
    assert (first.started_s, second.started_s) == (3.0, None)


def test_a_submit_wakes_the_loop() -> None:
    made = RequestQueue(LIMITS)
    threading.Timer(0.02, made.submit, (request(1),)).start()
    plan = made.next_step(30.0)
    assert plan is not None
    assert plan.lengths == (1,)


class QueueMachine(RuleBasedStateMachine):
    """Any mixture of calls: nothing is lost, doubled, out of its order in a request or over budget."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.queue = RequestQueue(replace(LIMITS, max_waiting_s=1e9, max_request_s=1e9), Clock())
        self.waiting: list[tuple[Request, int]] = []
        self.running: list[StepPlan] = []
        self.open: dict[Request, int] = {}

    @rule(target=requests, lengths=st.lists(st.integers(1, 14), min_size=1, max_size=8))
    def submit(self, lengths: Iterable[int]) -> Request:
        item = request(*lengths)
        large = self.tokens_waiting(self.is_large)
        others = self.tokens_waiting() - large
        most = LIMITS.max_waiting_tokens // 2 if large else LIMITS.max_waiting_tokens
        fits = others + item.num_tokens <= most or not others
        if self.is_large(item):
            fits = not large and others <= LIMITS.max_waiting_tokens // 2
        try:
            self.queue.submit(item)
        except QueueFull:
            assert not fits
        else:
            assert fits
            self.waiting += [(item, index) for index in range(len(item.prompts))]
            self.open[item] = len(item.prompts)
        return item

    @rule()
    def run(self) -> None:
        plan = step(self.queue)
        taken = [(chunk.prompt.request, chunk.prompt.index) for chunk in plan.chunks]
        assert bool(taken) == bool(self.waiting)
        for owner in {owner for owner, _ in taken}:
            mine = [index for each, index in self.waiting if each is owner]
            assert (
                sorted(index for each, index in taken if each is owner)
                == mine[: sum(each is owner for each, _ in taken)]
            )
        self.waiting = [entry for entry in self.waiting if entry not in taken]
        assert len(taken) <= LIMITS.max_num_seqs
        assert len(taken) == 1 or plan.num_tokens <= LIMITS.max_num_batched_tokens
        assert plan.lengths == tuple(sorted(plan.lengths))
        if taken:
            self.running.append(plan)

    @rule()
    def finish(self) -> None:
        if self.running:
            plan = self.running.pop(0)
            complete = []
            for owner in (chunk.prompt.request for chunk in plan.chunks):
                if owner in self.open:
                    self.open[owner] -= 1
                    if not self.open[owner]:
                        del self.open[owner]
                        complete.append(owner)
            assert list(self.queue.finish(plan, 1.0)) == complete

    @rule(item=consumes(requests))
    def cancel(self, item: Request) -> None:
        self.queue.cancel(item)
        self.open.pop(item, None)
        self.waiting = [(owner, index) for owner, index in self.waiting if owner is not item]

    @invariant()
    def the_counts_agree(self) -> None:
        state = self.queue.state()
        assert state.waiting_tokens == self.tokens_waiting()
        assert state.waiting + state.running == len(self.open)

    def tokens_waiting(self, of: Callable[[Request], bool] = lambda _: True) -> int:
        return sum(len(owner.prompts[index]) for owner, index in self.waiting if of(owner))

    @staticmethod
    def is_large(item: Request) -> bool:
        return item.num_tokens > LIMITS.max_waiting_tokens


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(stateful_step_count=40)

"""The request queue: many threads submit, one takes steps."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vllm_probe.runtime.sched.backlog import Backlog, Limits
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, Request, RequestError, StepPlan, retry_after_s

_CLOSED = "the engine is shutting down"
_RATE_MEMORY_S = 5.0
_BYTES_PER_TOKEN = 16
"""Of JSON, at most but for text that is cut: English has about 4, and a character that is escaped 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The queue at one moment.

    Attributes:
        waiting: requests of which no prompt has run.
        waiting_tokens: tokens not yet in a step.
        running: requests of which a prompt runs or has run.
        closed: nothing more is admitted.
    """

    waiting: int
    waiting_tokens: int
    running: int
    closed: bool


class RequestQueue:
    """Requests of many threads, taken by one in the order of a `Backlog`, in which none can starve.

    What waits is bounded in tokens, and in time at the rate that was measured. A request that is larger than that bound
    alone is admitted all the same, but one at a time: the others have their turns beside it and half the bound, because
    it can take half of the steps.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._backlog = Backlog(limits)
        self._left: dict[Request, int] = {}
        self._large: Request | None = None
        self._step_tokens = 0
        self._since_s = 0.0
        self._tokens_per_s: float | None = None
        self._best_tokens_per_s = 0.0
        self._refused: dict[bool, int] = {}
        self._closed = False

    def submit(self, request: Request) -> None:
        """Admits `request` behind all others.

        Raises:
            QueueFull: its tokens do not fit into the queue now, or would take longer now than a request may.
            QueueClosed: the queue drains or is closed.
            RequestError: alone it would take longer than a request may, at the best rate that was ever measured.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed(_CLOSED)
            self._check_size(request.num_tokens)
            is_large = request.num_tokens > self._capacity()
            if not (self._fits_large() if is_large else self._fits(request.num_tokens)):
                raise self._refuse(request.num_bytes, is_large)
            if is_large:
                self._large = request
            request.submitted_s = self._clock()
            if not (self._backlog or self._step_tokens):
                self._since_s = request.submitted_s
            self._backlog.add(request)
            self._left[request] = len(request.prompts)
            self._changed.notify()

    def check_room(self, num_bytes: int, num_tokens: int = 0) -> None:
        """Refuses as `submit` will, before more is spent on reading a request of `num_bytes`.

        Once one was refused, all that are as large are until the queue is half empty, or a large one until a large one
        fits: under overload nearly none is read in vain, and the tokenizer takes no time from what was admitted. Few
        bytes may be many tokens, so that a large one that was refused tells only of those that can hardly be small.

        Args:
            num_bytes: size of what is to be read.
            num_tokens: what was read of it so far.

        Raises:
            QueueFull: too much waits.
            QueueClosed: the queue drains or is closed.
            RequestError: alone it would take longer than a request may.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed(_CLOSED)
            for is_large, refused_bytes in [*self._refused.items()]:
                if self._fits_large() if is_large else 2 * self._waiting() <= self._room():
                    del self._refused[is_large]
                elif num_bytes >= max(refused_bytes, _BYTES_PER_TOKEN * self._capacity() if is_large else 0):
                    raise self._full(is_large)
            self._check_size(num_tokens)
            if num_tokens > self._capacity() and not self._fits_large():
                raise self._refuse(num_bytes, is_large=True)

    def next_step(self, timeout_s: float) -> StepPlan | None:
        """The next prompts within the budget; an empty plan after `timeout_s`, null once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._backlog or self._closed, timeout_s)
            if self._closed and not self._backlog:
                return None
            plan = self._backlog.take()
            self._step_tokens = plan.num_tokens
            for chunk in plan.chunks:
                if chunk.prompt.request.started_s is None:
                    chunk.prompt.request.started_s = self._clock()
            return plan

    def finish(self, plan: StepPlan, seconds: float) -> tuple[Request, ...]:
        """Records that `plan` ran in `seconds`; gives the requests that are complete with it.

        Its rate is that from the end of the step before: between them the processor reads and answers requests.
        """
        with self._changed:
            now_s = self._clock()
            self._measure(plan.num_tokens, max(seconds, now_s - self._since_s))
            self._since_s = now_s
            self._step_tokens = max(0, self._step_tokens - plan.num_tokens)
            complete = []
            for request in (chunk.prompt.request for chunk in plan.chunks if chunk.is_last):
                if request in self._left:
                    self._left[request] -= 1
                    if not self._left[request]:
                        del self._left[request]
                        complete.append(request)
            return tuple(complete)

    def cancel(self, request: Request) -> bool:
        """Forgets `request`: what waits of it is dropped, what runs is no longer counted; whether it was known."""
        with self._changed:
            if self._left.pop(request, None) is None:
                return False
            self._backlog.remove(request)
            return True

    def close(self) -> None:
        """Admits nothing more; what was admitted still runs."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def abort(self) -> tuple[Request, ...]:
        """Admits nothing more and forgets everything; gives the requests that were not complete."""
        with self._changed:
            dropped = tuple(self._left)
            self._closed = True
            self._backlog.clear()
            self._left.clear()
            self._changed.notify()
            return dropped

    def state(self) -> QueueState:
        """Counts now."""
        with self._changed:
            running = sum(request.started_s is not None for request in self._left)
            return QueueState(
                waiting=len(self._left) - running,
                waiting_tokens=self._backlog.num_tokens,
                running=running,
                closed=self._closed,
            )

    def _measure(self, tokens: int, seconds: float) -> None:
        """Notes the rate of a step.

        A step behind which nothing waits may be slow only because it is small: it counts where it is faster than what
        is known. The others are averaged over their time.
        """
        if seconds <= 0:
            return
        rate, known = tokens / seconds, self._tokens_per_s
        if known is None or (rate > known and not self._backlog):
            known = rate
        elif self._backlog:
            weight = min(seconds / (seconds + _RATE_MEMORY_S), 0.5)  # one stall is not taken for the rate
            known += weight * (rate - known)
        self._tokens_per_s = known
        self._best_tokens_per_s = max(self._best_tokens_per_s, known)

    def _capacity(self, before: int = 0) -> int:
        """Tokens that may wait behind `before` that are in a step."""
        if self._tokens_per_s is None:
            return self.limits.max_waiting_tokens
        in_time = int(self._tokens_per_s * self.limits.max_waiting_s) - before
        return max(0, min(self.limits.max_waiting_tokens, in_time))

    def _room(self) -> int:
        """Tokens that may wait now, beside a large request if there is one."""
        capacity = self._capacity(self._step_tokens)
        return capacity // 2 if self._has_large() else capacity

    def _fits(self, tokens: int) -> bool:
        return not self._waiting() or self._waiting() + tokens <= self._room()

    def _fits_large(self) -> bool:
        return not self._has_large() and 2 * self._waiting() <= self._capacity()

    def _has_large(self) -> bool:
        return self._large is not None and self._backlog.tokens_of(self._large) > 0

    def _waiting(self) -> int:
        """Tokens that wait, without those of a large request."""
        return self._backlog.num_tokens - (self._backlog.tokens_of(self._large) if self._large else 0)

    def _check_size(self, tokens: int) -> None:
        """Refuses for good what takes too long at the best rate, and for now what does at that of the last steps.

        While nothing waits the last steps say little, and a request runs, so that their rate can rise again.
        """
        if self._tokens_per_s is None:
            return
        if needed := self._too_long(tokens, self._best_tokens_per_s):
            raise RequestError(f"{needed}: send fewer inputs at a time")
        if self._backlog and (needed := self._too_long(tokens, self._tokens_per_s)):
            raise QueueFull(
                f"at the present rate {needed}", retry_after_s(self._backlog.num_tokens, self._tokens_per_s)
            )

    def _too_long(self, tokens: int, tokens_per_s: float) -> str | None:
        most = max(int(tokens_per_s * self.limits.max_request_s), self.limits.max_num_batched_tokens)
        if tokens <= most:
            return None
        return f"more than {most} tokens take more than {self.limits.max_request_s:.0f} s here, the limit of a request"

    def _refuse(self, num_bytes: int, is_large: bool) -> QueueFull:
        """The refusal, which is remembered for those of `num_bytes` and more."""
        self._refused[is_large] = min(num_bytes, self._refused.get(is_large, num_bytes))
        return self._full(is_large)

    def _full(self, is_large: bool) -> QueueFull:
        """The refusal; what waits is counted once more where it takes turns with a large request."""
        waiting, large = self._waiting(), self._backlog.num_tokens - self._waiting()
        message = f"{waiting} tokens are waiting, the limit is {self._room()}"
        if is_large and large:
            message = f"{large} tokens of another large request are waiting"
        before = waiting + large if is_large else waiting + min(waiting, large)
        return QueueFull(message, retry_after_s(before, self._tokens_per_s))

"""The request queue: many threads submit, one takes steps."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vllm_probe.runtime.sched.backlog import Backlog, Limits
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, Request, StepPlan

_CLOSED = "the engine is shutting down"
_RATE_WEIGHT = 0.2
_MAX_RETRY_AFTER_S = 120  # the openai client ignores a longer Retry-After


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
    """Requests of many threads, taken by one in the order of a `Backlog`, in which none can starve."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._backlog = Backlog(limits)
        self._left: dict[Request, int] = {}
        self._tokens_per_s: float | None = None
        self._overflowed = False
        self._closed = False

    def submit(self, request: Request) -> None:
        """Admits `request` behind all others.

        Raises:
            QueueFull: its tokens do not fit into the queue now.
            QueueClosed: the queue drains or is closed.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed(_CLOSED)
            tokens = request.num_tokens
            if self._backlog and self._backlog.num_tokens + tokens > self.limits.max_waiting_tokens:
                self._overflowed = True
                raise self._full()
            request.submitted_s = self._clock()
            self._backlog.add(request)
            self._left[request] = len(request.prompts)
            self._changed.notify()

    def check_room(self) -> None:
        """Refuses as `submit` does, before anything is spent on reading a request.

        Once one was refused, all are until the queue is half empty, so that under overload nearly none is read in
        vain, and the tokenizer takes no time from the requests that were admitted.

        Raises:
            QueueFull: too much waits.
            QueueClosed: the queue drains or is closed.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed(_CLOSED)
            if self._overflowed and self._backlog and 2 * self._backlog.num_tokens > self.limits.max_waiting_tokens:
                raise self._full()
            self._overflowed = False

    def next_step(self, timeout_s: float) -> StepPlan | None:
        """The next prompts within the budget; an empty plan after `timeout_s`, null once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._backlog or self._closed, timeout_s)
            if self._closed and not self._backlog:
                return None
            plan = self._backlog.take()
            for chunk in plan.chunks:
                if chunk.prompt.request.started_s is None:
                    chunk.prompt.request.started_s = self._clock()
            return plan

    def finish(self, plan: StepPlan, seconds: float) -> tuple[Request, ...]:
        """Records that `plan` ran in `seconds`; gives the requests that are complete with it."""
        with self._changed:
            if seconds > 0:
                rate = plan.num_tokens / seconds
                known = self._tokens_per_s
                self._tokens_per_s = rate if known is None else known + _RATE_WEIGHT * (rate - known)
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

    def _full(self) -> QueueFull:
        message = f"{self._backlog.num_tokens} tokens are waiting, the limit is {self.limits.max_waiting_tokens}"
        return QueueFull(message, self._retry_after_s())

    def _retry_after_s(self) -> int:
        """Whole seconds until what waits should have started, at the measured rate."""
        if self._tokens_per_s is None:
            return 1
        return min(_MAX_RETRY_AFTER_S, math.ceil(self._backlog.num_tokens / self._tokens_per_s))

"""What waits, and what of it runs next."""

from collections import deque
from dataclasses import dataclass

from vllm_probe.runtime.sched.request import Chunk, Prompt, Request, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one step and the queue may hold.

    Attributes:
        max_num_seqs: prompts in one step.
        max_num_batched_tokens: tokens in one step; a longer prompt that is not cut runs alone.
        max_waiting_tokens: tokens that may wait; a larger request is admitted only when nothing waits.
        chunk_tokens: longer prompts run in chunks of so many tokens, null where prompts cannot be cut.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting_tokens: int
    chunk_tokens: int | None = None


class Backlog:
    """Prompts in the order of arrival; long ones, which run in chunks, and short ones, which do not, take turns.

    One long prompt is computed at a time, so that the keys and values of one are held. While it is, a step of short
    prompts has no more tokens than a chunk: a short prompt waits for one chunk, a long one at most doubles.
    The chunks of a prompt are the same whatever else waits, and so are its vectors.

    Attributes:
        num_tokens: tokens that are not in a step yet.
    """

    def __init__(self, limits: Limits) -> None:
        self.num_tokens = 0
        self._limits = limits
        self._short: deque[Prompt] = deque()
        self._long: deque[Prompt] = deque()
        self._begin = 0
        self._owes_long = False

    def __bool__(self) -> bool:
        return bool(self._short or self._long)

    def add(self, request: Request) -> None:
        """Puts the prompts of `request` behind all others."""
        chunk = self._limits.chunk_tokens
        for index, token_ids in enumerate(request.prompts):
            waiting = self._short if chunk is None or len(token_ids) <= chunk else self._long
            waiting.append(Prompt(request, index))
        self.num_tokens += request.num_tokens

    def remove(self, request: Request) -> None:
        """Forgets the prompts of `request`, one that is half computed included."""
        if self._long and self._long[0].request is request:
            self._begin = 0
        self._short = deque(prompt for prompt in self._short if prompt.request is not request)
        self._long = deque(prompt for prompt in self._long if prompt.request is not request)
        self.num_tokens = sum(prompt.num_tokens for prompt in (*self._short, *self._long)) - self._begin

    def clear(self) -> None:
        """Forgets everything."""
        self._short.clear()
        self._long.clear()
        self.num_tokens = self._begin = 0

    def take(self) -> StepPlan:
        """The next step; empty when nothing waits."""
        plan = StepPlan(self._chunk() if self._long and (self._owes_long or not self._short) else self._prompts())
        self.num_tokens -= plan.num_tokens
        return plan

    def _chunk(self) -> tuple[Chunk, ...]:
        prompt, begin, size = self._long[0], self._begin, self._limits.chunk_tokens
        assert size is not None
        end = self._begin = min(begin + size, prompt.num_tokens)
        if end == prompt.num_tokens:
            self._long.popleft()
            self._begin = 0
        self._owes_long = False
        return (Chunk(prompt, begin, end),)

    def _prompts(self) -> tuple[Chunk, ...]:
        taken: list[Chunk] = []
        budget = self._limits.max_num_batched_tokens
        if self._long and self._limits.chunk_tokens:
            budget = min(budget, self._limits.chunk_tokens)
        while self._short and len(taken) < self._limits.max_num_seqs:
            tokens = self._short[0].num_tokens
            if taken and tokens > budget:
                break
            budget -= tokens
            taken.append(Chunk.whole(self._short.popleft()))
        self._owes_long = True
        return tuple(sorted(taken, key=lambda chunk: chunk.num_tokens))

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
        max_waiting_tokens: tokens that may wait.
        max_waiting_s: seconds that they may take at the measured rate.
        max_request_s: seconds that a request may take alone.
        chunk_tokens: longer prompts run in chunks of so many tokens, null where prompts cannot be cut.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting_tokens: int
    max_waiting_s: float = 24.0
    max_request_s: float = 480.0
    chunk_tokens: int | None = None


class _Line:
    """Prompts of requests that take turns: one that got the prompts or tokens of a step goes behind the others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turn_prompts = self._turn_tokens = 0
        self._waiting: dict[Request, deque[Prompt]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, prompt: Prompt) -> None:
        self._waiting.setdefault(prompt.request, deque()).append(prompt)

    def next(self) -> Prompt:
        return next(iter(self._waiting.values()))[0]

    def pop(self) -> Prompt:
        request, prompts = next(iter(self._waiting.items()))
        prompt = prompts.popleft()
        self._turn_prompts += 1
        self._turn_tokens += prompt.num_tokens
        if not prompts or self._ends_turn(prompts[0]):
            self._begin_turn()
            del self._waiting[request]
            if prompts:
                self._waiting[request] = prompts
        return prompt

    def remove(self, request: Request) -> None:
        if self._waiting and self.next().request is request:
            self._begin_turn()
        self._waiting.pop(request, None)

    def num_prompts(self, request: Request) -> int:
        return len(self._waiting.get(request, ()))

    def _begin_turn(self) -> None:
        self._turn_prompts = self._turn_tokens = 0

    def _ends_turn(self, following: Prompt) -> bool:
        is_full = self._turn_prompts >= self._limits.max_num_seqs
        return is_full or self._turn_tokens + following.num_tokens > self._limits.max_num_batched_tokens


class Backlog:
    """Prompts in the order of arrival, but that no request gets more than a step before others have had a turn.

    Those of less than a step do not wait for one that is filled with a larger request.
    Long prompts, which run in chunks, and short ones, which do not, take turns as well. One long prompt is computed at
    a time, so that the keys and values of one are held. While it is, a step of short prompts has no more tokens than a
    chunk: a short prompt waits for one chunk, a long one at most doubles.
    The chunks of a prompt are the same whatever else waits, and so are its vectors.

    Attributes:
        num_tokens: tokens that are not in a step yet.
    """

    def __init__(self, limits: Limits) -> None:
        self.num_tokens = 0
        self._limits = limits
        self._tokens: dict[Request, int] = {}
        self._short = _Line(limits)
        self._long = _Line(limits)
        self._begun: Prompt | None = None
        self._begin = 0
        self._owes_long = False

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def tokens_of(self, request: Request) -> int:
        """Tokens of `request` that are not in a step yet."""
        return self._tokens.get(request, 0)

    def add(self, request: Request) -> None:
        """Puts the prompts of `request` behind all others."""
        chunk = self._limits.chunk_tokens
        for index, token_ids in enumerate(request.prompts):
            line = self._short if chunk is None or len(token_ids) <= chunk else self._long
            line.add(Prompt(request, index))
        self._tokens[request] = request.num_tokens
        self.num_tokens += request.num_tokens

    def remove(self, request: Request) -> None:
        """Forgets the prompts of `request`, one that is half computed included."""
        if self._begun and self._begun.request is request:
            self._begun = None
        self._short.remove(request)
        self._long.remove(request)
        self.num_tokens -= self._tokens.pop(request, 0)

    def clear(self) -> None:
        """Forgets everything."""
        for request in [*self._tokens]:
            self.remove(request)

    def take(self) -> StepPlan:
        """The next step; empty when nothing waits."""
        has_long = self._begun is not None or bool(self._long)
        plan = StepPlan(self._chunk() if has_long and (self._owes_long or not self._short) else self._prompts(has_long))
        self.num_tokens -= plan.num_tokens
        for chunk in plan.chunks:
            request = chunk.prompt.request
            self._tokens[request] -= chunk.num_tokens
            if not self._tokens[request]:
                del self._tokens[request]
        return plan

    def _chunk(self) -> tuple[Chunk, ...]:
        size = self._limits.chunk_tokens
        assert size is not None
        if self._begun is None:
            self._begun, self._begin = self._long.pop(), 0
        prompt, begin = self._begun, self._begin
        end = self._begin = min(begin + size, prompt.num_tokens)
        if end == prompt.num_tokens:
            self._begun = None
        self._owes_long = False
        return (Chunk(prompt, begin, end),)

    def _prompts(self, has_long: bool) -> tuple[Chunk, ...]:
        taken: list[Chunk] = []
        budget = self._limits.max_num_batched_tokens
        if has_long and self._limits.chunk_tokens:
            budget = min(budget, self._limits.chunk_tokens)
        while self._short and len(taken) < self._limits.max_num_seqs:
            prompt = self._short.next()
            if taken and (prompt.num_tokens > budget or self._begins_turns(prompt.request, taken[-1])):
                break
            budget -= prompt.num_tokens
            taken.append(Chunk.whole(self._short.pop()))
        self._owes_long = True
        return tuple(sorted(taken, key=lambda chunk: chunk.num_tokens))

    def _begins_turns(self, request: Request, before: Chunk) -> bool:
        """Whether `request` has more than a step, and so would only fill the step of those `before` it."""
        is_large = self._tokens[request] > self._limits.max_num_batched_tokens
        is_large = is_large or self._short.num_prompts(request) > self._limits.max_num_seqs
        return is_large and request is not before.prompt.request

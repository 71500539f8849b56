"""What waits and what runs: requests, their prompts and the step plan."""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

_MAX_RETRY_AFTER_S = 120  # the openai client ignores a longer Retry-After


def retry_after_s(amount: float, per_s: float | None) -> int:
    """Whole seconds that `amount` takes at `per_s`, as many as clients wait at most; 1 where that is unknown."""
    return max(1, min(_MAX_RETRY_AFTER_S, math.ceil(amount / per_s))) if per_s else 1


class RequestError(ValueError):
    """A request that means nothing to this model; nothing of it was run.

    Attributes:
        param: field of the request that is at fault.
    """

    def __init__(self, message: str, param: str = "input") -> None:
        super().__init__(message)
        self.param = param


class QueueFull(RuntimeError):
    """The request was not admitted because too much waits before it.

    Attributes:
        retry_after_s: when it is worth trying again.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueClosed(RuntimeError):
    """The request was not admitted, or was dropped, because the engine stops."""


class RequestFailed(RuntimeError):
    """The engine could not compute the request; others are not affected.

    Attributes:
        reason: one word for metrics: `step`, `non_finite` or `stopped`.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """Prompts that one caller waits for.

    Attributes:
        prompts: token ids of each prompt, at least one prompt and one token.
        num_bytes: size of what it was read from.
        num_truncated: prompts that were cut to their length.
        dimensions: width of the vectors that are wanted, null for the model's.
        normalizes: whether they are scaled to unit length, null as the model does.
        outputs: what was computed for each prompt so far.
        future: what the caller waits on; cancelling it gives up.
        submitted_s: clock when it was admitted.
        started_s: clock when its first prompt began to run.
    """

    prompts: tuple[Sequence[int], ...]
    num_bytes: int = 0
    num_truncated: int = 0
    dimensions: int | None = None
    normalizes: bool | None = None
    outputs: dict[int, bytes] = field(default_factory=dict, init=False)
    future: Future[Any] = field(default_factory=Future, init=False)
    submitted_s: float = field(default=0.0, init=False)
    started_s: float | None = field(default=None, init=False)

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt number `index` of a request: the unit that is scheduled."""

    request: Request
    index: int

    @property
    def token_ids(self) -> Sequence[int]:
        """Its tokens."""
        return self.request.prompts[self.index]

    @property
    def num_tokens(self) -> int:
        """How many."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of a prompt that one step computes: all, or those from `begin` to `end`, behind those before them."""

    prompt: Prompt
    begin: int
    end: int

    @classmethod
    def whole(cls, prompt: Prompt) -> "Chunk":
        """All of `prompt`."""
        return cls(prompt, 0, prompt.num_tokens)

    @property
    def token_ids(self) -> Sequence[int]:
        """Its tokens."""
        return self.prompt.token_ids[self.begin : self.end]

    @property
    def num_tokens(self) -> int:
        """How many."""
        return self.end - self.begin

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the prompt."""
        return self.num_tokens == self.prompt.num_tokens

    @property
    def is_last(self) -> bool:
        """Whether the prompt is computed with it."""
        return self.end == self.prompt.num_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What runs together: one chunk of a longer prompt, or whole prompts, none on an idle tick.

    Whole prompts are sorted by length, so that equal lengths stand side by side.
    """

    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of the step."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each chunk."""
        return tuple(chunk.num_tokens for chunk in self.chunks)

    def split(self, max_tokens: int) -> "tuple[StepPlan, ...]":
        """The same work in parts of at most `max_tokens`, or of one chunk where that is longer."""
        parts: list[list[Chunk]] = []
        room = 0
        for chunk in self.chunks:
            if chunk.num_tokens > room:
                parts.append([])
                room = max_tokens
            parts[-1].append(chunk)
            room -= chunk.num_tokens
        return tuple(StepPlan(tuple(part)) for part in parts)

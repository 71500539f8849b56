"""What is in front of the queue: requests that are received, and then read."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from fastapi import Request

from vllm_probe.runtime.sched.request import QueueFull, retry_after_s
from vllm_probe.runtime.server.schema import ApiError

_LARGEST = 4
_SMALL_BYTES = 64 << 10
"""What uvicorn's flow control buffers of a connection (`HIGH_WATER_LIMIT`) whether it is looked at or not."""

_STALL_S = 10.0
"""Silence of a client behind which what it sent of a large body is given up."""

_Read = TypeVar("_Read")
Parts: TypeAlias = Generator[int, None, _Read]
"""Reads a body part by part; gives the tokens so far after each, and what was read at the end."""


@dataclass(eq=False, slots=True)
class Place:
    """A request that is received or read.

    Attributes:
        number: how many came before it.
        num_bytes: size of its body, as far as it was received.
        body: that, until it was read.
    """

    number: int
    num_bytes: int = 0
    body: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Last(Generic[_Read]):
    value: _Read


class Front:
    """Receives and reads requests; for one event loop.

    Bodies of more than 64 KiB share the room of four of the largest; smaller ones always have room.
    One thread reads, so that parsing and tokenizing never take more than one core from the forward pass. It reads a
    part of a body at a time, and the smallest and the oldest have turns: a small request waits for one part of a large
    one, and none starves. What the queue would refuse, or nobody waits for any more, is not read further.

    Attributes:
        num_bytes: of all bodies, as far as they were received and until they are read.
    """

    def __init__(
        self,
        check_room: Callable[[int, int], None],
        max_body_bytes: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Asks `check_room` before each part, with the bytes of the body and the tokens that were read of it."""
        self.num_bytes = 0
        self._check_room = check_room
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self._arrived = 0
        self._places: set[Place] = set()
        self._line: dict[Place, asyncio.Future[None]] = {}
        self._reads: Place | None = None
        self._read_oldest = False
        self._read_bytes = 0
        self._read_s = 0.0

    @property
    def num_requests(self) -> int:
        """Requests that are received or read."""
        return len(self._places)

    @contextmanager
    def enter(self) -> Iterator[Place]:
        """A place for a request, until its body is read or the context ends."""
        self._arrived += 1
        place = Place(self._arrived)
        self._places.add(place)
        try:
            yield place
        finally:
            self._leave(place)

    async def receive(self, place: Place, request: Request) -> None:
        """Fills `place` with the body of `request`.

        The rest of one that is refused is received and forgotten behind the answer: many clients look for an answer
        only once they have sent everything, and would find the connection reset.

        Raises:
            ApiError: 413, it is larger than a body may be; 408, nothing more came of one that takes room from others.
            QueueFull: there is no room for it beside the others.
            ClientDisconnect: the client hung up.
        """
        parts = request.stream()
        while True:
            try:
                async with asyncio.timeout(_STALL_S if place.num_bytes > _SMALL_BYTES else None):
                    part = await anext(parts)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ApiError(408, f"nothing of the body came for {_STALL_S:g} s") from None
            self._make_room(place, place.num_bytes + len(part))
            place.body += part

    async def read(self, place: Place, parse: Callable[[bytearray], Parts[_Read]]) -> _Read:
        """What `parse` makes of the body in `place`, which is left then.

        Raises:
            QueueFull: the queue would refuse it.
            QueueClosed: the queue drains or is closed.
            RequestError: the queue would never take it.
        """
        loop = asyncio.get_running_loop()
        parts, num_tokens, seconds = parse(place.body), 0, 0.0
        self._check_room(place.num_bytes, num_tokens)
        try:
            while True:
                await self._next_turn(place)
                self._check_room(place.num_bytes, num_tokens)
                begun_s = self._clock()
                part = await loop.run_in_executor(self._thread, _next_part, parts)
                seconds += self._clock() - begun_s
                if isinstance(part, _Last):
                    break
                num_tokens = part
        finally:
            del self._line[place]
            self._end_turn(place)
        self._read_bytes += place.num_bytes
        self._read_s += seconds
        self._leave(place)
        return part.value

    async def _next_turn(self, place: Place) -> None:
        turn = self._line[place] = asyncio.get_running_loop().create_future()
        self._end_turn(place)
        await turn

    def _end_turn(self, place: Place) -> None:
        """Gives the turn to the next where `place` or nobody has it: the smallest after the oldest, else that."""
        if self._reads not in (None, place):
            return
        self._reads = None
        if waiting := [place for place, turn in self._line.items() if not turn.done()]:  # others are cancelled
            oldest = min(waiting, key=lambda place: place.number)
            smallest = min(waiting, key=lambda place: (place.num_bytes, place.number))
            self._reads = smallest if self._read_oldest else oldest
            self._read_oldest = self._reads is oldest
            self._line[self._reads].set_result(None)

    def _make_room(self, place: Place, num_bytes: int) -> None:
        if num_bytes > self._max_body_bytes:
            raise ApiError(413, f"the body is larger than {self._max_body_bytes} bytes")
        others = self.num_bytes - place.num_bytes
        if num_bytes > _SMALL_BYTES and others + num_bytes > _LARGEST * self._max_body_bytes:
            per_s = self._read_bytes / self._read_s if self._read_s else None
            raise QueueFull(f"{others} bytes of other requests are being read", retry_after_s(others, per_s))
        self.num_bytes = others + num_bytes
        place.num_bytes = num_bytes

    def _leave(self, place: Place) -> None:
        if place in self._places:
            self._places.remove(place)
            self.num_bytes -= place.num_bytes
            place.body = bytearray()


def _next_part(parts: Parts[_Read]) -> int | _Last[_Read]:
    try:
        return next(parts)
    except StopIteration as end:
        return _Last(end.value)

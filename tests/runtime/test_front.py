"""What is in front of the queue: room for bodies, turns at reading, and what is not read to its end."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi import Request

from vllm_probe.runtime.sched.request import QueueClosed, QueueFull
from vllm_probe.runtime.server.front import Front, Parts, Place
from vllm_probe.runtime.server.schema import ApiError

SMALL = 64 << 10


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def admit(_bytes: int, _tokens: int) -> None:
    """A queue that takes everything."""


def front(check_room: Callable[[int, int], None] = admit, max_body_bytes: int = 1000, **options: Any) -> Front:
    return Front(check_room, max_body_bytes, **options)


async def fill(made: Front, place: Place, *sizes: int) -> None:
    """Receives parts of `sizes`."""
    parts = [{"type": "http.request", "body": b"a" * size, "more_body": True} for size in sizes]
    parts[-1]["more_body"] = False

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    await made.receive(place, Request({"type": "http", "method": "POST", "headers": []}, receive))


class Readings:
    """Bodies that are read in numbered parts, in the order in which that happened."""

    def __init__(self, made: Front, stack: ExitStack) -> None:
        self.done: list[str] = []
        self._front = made
        self._stack = stack

    async def read(self, name: str, size: int, num_parts: int, before: Callable[[int], Any] = lambda _: None) -> str:
        """Receives a body of `size` and reads it in parts of a token, each after `before`."""
        place = self._stack.enter_context(self._front.enter())
        await fill(self._front, place, size)

        def parse(body: bytearray) -> Parts[str]:
            for part in range(1, num_parts + 1):
                before(part)
                self.done.append(f"{name}{part}")
                if part < num_parts:
                    yield part
            return f"{name} of {len(body)}"

        return await self._front.read(place, parse)


def test_a_small_body_waits_for_one_part_of_a_large_one() -> None:
    async def run() -> None:
        with ExitStack() as stack:
            readings = Readings(front(), stack)
            asked = [readings.read("large", 900, 4), readings.read("other", 900, 2), readings.read("small", 9, 1)]
            assert await asyncio.gather(*asked) == ["large of 900", "other of 900", "small of 9"]
            assert readings.done == ["large1", "small1", "large2", "large3", "large4", "other1", "other2"]

    asyncio.run(run())


def test_the_oldest_body_has_every_other_turn() -> None:
    async def run() -> None:
        with ExitStack() as stack:
            readings = Readings(front(), stack)
            small = [readings.read(f"s{index}-", 9, 1) for index in range(6)]
            await asyncio.gather(readings.read("large", 900, 3), *small)
            assert readings.done[:6] == ["large1", "s0-1", "large2", "s1-1", "large3", "s2-1"]

    asyncio.run(run())


def test_a_body_that_nobody_waits_for_is_read_no_further() -> None:
    async def run() -> None:
        with ExitStack() as stack:
            readings, begun, gate = Readings(front(), stack), threading.Event(), threading.Event()

            def hold(_: int) -> None:
                begun.set()
                assert gate.wait(30)

            large = asyncio.create_task(readings.read("large", 900, 3, hold))
            waits = asyncio.create_task(readings.read("waits", 800, 1))
            small = asyncio.create_task(readings.read("small", 9, 1))
            assert await asyncio.to_thread(begun.wait, 30)
            large.cancel()
            waits.cancel()
            await asyncio.wait([large, waits])
            gate.set()
            assert await small == "small of 9"
            assert await readings.read("last", 9, 1) == "last of 9"
            assert readings.done == ["large1", "small1", "last1"]

    asyncio.run(run())


@pytest.mark.parametrize("leaves_before", [True, False])
def test_a_turn_that_comes_as_its_client_leaves_goes_to_the_next(leaves_before: bool) -> None:
    tasks: list[asyncio.Task[str]] = []

    def check_room(num_bytes: int, num_tokens: int) -> None:
        if (num_bytes, num_tokens) == (90, 1):
            if leaves_before:
                tasks[0].cancel()
            raise QueueFull("full", 1)

    async def run() -> None:
        with ExitStack() as stack:
            readings = Readings(front(check_room), stack)
            first = readings.read("first", 90, 3)

            async def refused() -> None:
                with pytest.raises(QueueFull):
                    await first
                tasks[0].cancel()  # which has its turn already

            asked = asyncio.create_task(refused())
            tasks.append(asyncio.create_task(readings.read("leaves", 95, 1)))
            tasks.append(asyncio.create_task(readings.read("stays", 99, 1)))
            await asyncio.wait_for(asyncio.wait([asked, *tasks]), 30)
            await asked
            assert readings.done == ["first1", "stays1"]

    asyncio.run(run())


def test_what_the_queue_would_refuse_is_not_read_to_its_end() -> None:
    seen: list[tuple[int, int]] = []

    def check_room(num_bytes: int, num_tokens: int) -> None:
        seen.append((num_bytes, num_tokens))
        if num_tokens == 2:
            raise QueueFull("full", 1)

    async def run() -> None:
        with ExitStack() as stack:
            readings = Readings(front(check_room), stack)
            with pytest.raises(QueueFull):
                await readings.read("large", 900, 9)
            assert readings.done == ["large1", "large2"]
            assert await readings.read("small", 9, 1) == "small of 9"

    asyncio.run(run())
    assert seen == [(900, 0), (900, 0), (900, 1), (900, 2), (9, 0), (9, 0)]


def test_what_the_queue_would_refuse_does_not_wait_for_its_turn() -> None:
    def check_room(num_bytes: int, _: int) -> None:
        if num_bytes == 9:
            raise QueueClosed("closed")

    async def run() -> None:
        with ExitStack() as stack:
            readings, gate = Readings(front(check_room), stack), threading.Event()
            large = asyncio.create_task(readings.read("large", 900, 1, lambda _: gate.wait(30)))
            with pytest.raises(QueueClosed):
                await readings.read("small", 9, 1)
            assert not large.done()
            gate.set()
            await large

    asyncio.run(run())


def test_a_body_that_cannot_be_read_keeps_no_other_waiting() -> None:
    def fail(_: int) -> None:
        raise ApiError(400, "no")

    async def run() -> None:
        with ExitStack() as stack:
            readings = Readings(front(), stack)
            asked = [readings.read("bad", 90, 1, fail), readings.read("good", 900, 1)]
            bad, good = await asyncio.gather(*asked, return_exceptions=True)
            assert (str(bad), good) == ("no", "good of 900")

    asyncio.run(run())


def test_a_body_is_counted_until_it_was_read_and_then_let_go_of() -> None:
    def parse(body: bytearray) -> Parts[int]:
        yield 0
        return len(body)

    async def run() -> None:
        made = front()
        with made.enter() as place, made.enter() as other:
            await fill(made, other, 7)
            await fill(made, place, 300, 200)
            assert (made.num_requests, made.num_bytes) == (2, 507)
            assert await made.read(place, parse) == 500
            assert (made.num_requests, made.num_bytes) == (1, 7)
            assert (len(place.body), place.num_bytes) == (0, 500)
        assert (made.num_requests, made.num_bytes) == (0, 0)

    asyncio.run(run())


def test_bodies_have_the_room_of_four_of_the_largest() -> None:
    async def run() -> None:
        made = front(max_body_bytes=2 * SMALL)
        with ExitStack() as stack:
            places = [stack.enter_context(made.enter()) for _ in range(6)]
            for place in places[:4]:
                await fill(made, place, SMALL, SMALL)
            with pytest.raises(QueueFull, match=f"{8 * SMALL} bytes of other requests are being read") as refused:
                await fill(made, places[4], SMALL, 1)
            assert refused.value.retry_after_s == 1  # nothing was read yet
            assert made.num_bytes == 9 * SMALL  # what is small always has room
            with pytest.raises(ApiError) as too_large:
                await fill(made, places[5], 2 * SMALL + 1)
            assert too_large.value.status == 413

    asyncio.run(run())


def test_without_room_a_client_is_told_how_long_the_others_are_read() -> None:
    clock = Clock()

    def parse(_: bytearray) -> Parts[None]:
        clock.now += 2.0
        yield 0
        clock.now += 2.0

    async def run() -> None:
        made = front(max_body_bytes=2 * SMALL, clock=clock)
        with made.enter() as place:
            await fill(made, place, SMALL)
            await made.read(place, parse)
        with ExitStack() as stack:
            places = [stack.enter_context(made.enter()) for _ in range(5)]
            for place in places[:4]:
                await fill(made, place, 2 * SMALL)
            with pytest.raises(QueueFull) as refused:
                await fill(made, places[4], 2 * SMALL)
            assert refused.value.retry_after_s == 32  # 8 times what took 4 s

    asyncio.run(run())

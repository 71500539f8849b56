"""The HTTP interface over ASGI: requests that are received or read, and clients that leave meanwhile."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Any, Unpack

import pytest

from tests.runtime.asgi import assert_error, call, metric, post, request
from tests.runtime.support import Load, ids
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.modeling.tokenizing import Input, PromptReader, Prompts, Reading
from vllm_probe.runtime.server import front
from vllm_probe.runtime.server.app import ServerOptions, create_app


def test_what_is_received_counts_and_is_bounded(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(max_body_bytes=200_000, served_model_names=("tiny",)))
    large = b'{"input": "' + b"a" * 199_000

    async def hold(sent_most: asyncio.Barrier, hung_up: asyncio.Event) -> int:
        """Sends most of a body, then hangs up."""
        sent: list[Any] = []
        parts = [{"type": "http.request", "body": large, "more_body": True}]

        async def receive() -> Any:
            if not parts:
                await sent_most.wait()
                await hung_up.wait()
                return {"type": "http.disconnect"}
            return parts.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": [], "query_string": b""}
        await app(scope | {"root_path": ""}, receive, send)
        return int(sent[0]["status"])

    async def run() -> None:
        sent_most, hung_up = asyncio.Barrier(5), asyncio.Event()
        held = [asyncio.create_task(hold(sent_most, hung_up)) for _ in range(4)]
        await sent_most.wait()
        assert (await request(app, "GET", "/load")).json() == {"server_load": 4}
        text = (await request(app, "GET", "/metrics")).text
        assert 'probe:reading_requests{engine="0",model_name="tiny"} 4.0' in text
        assert f'probe:reading_bytes{{engine="0",model_name="tiny"}} {float(4 * len(large))}' in text
        refused = await request(app, "POST", "/v1/embeddings", large)
        assert_error(refused, 429, "bytes of other requests are being read")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await request(app, "POST", "/v1/embeddings", b'{"input": "a"}')).status_code == 200
        hung_up.set()
        assert await asyncio.gather(*held) == [499] * 4
        assert (await request(app, "GET", "/load")).json() == {"server_load": 0}

    asyncio.run(asyncio.wait_for(run(), 30))
    assert metric(app, "probe:request_failures_total") == 4
    assert metric(app, "vllm:admission_rejections_total") == 1


def test_a_large_body_that_stops_coming_gives_its_room_back(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_STALL_S", 0.01)
    app = create_app(tiny_engine, ServerOptions(served_model_names=("tiny",)))

    async def run() -> None:
        parts: list[Any] = [{"type": "http.request", "body": b'{"input": "' + b"a" * 70_000, "more_body": True}]
        sent: list[Any] = []

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": [], "query_string": b""}
        await app(scope | {"root_path": ""}, receive, send)
        assert sent[0]["status"] == 408
        assert b"nothing of the body came" in sent[1]["body"]
        assert (await request(app, "GET", "/load")).json() == {"server_load": 0}

    asyncio.run(asyncio.wait_for(run(), 60))


class HeldReader(PromptReader):
    """Holds what it reads until the gate opens."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.spec, engine.config.max_model_len, "mean")
        self.begun = threading.Event()
        self.gate = threading.Event()

    def read(self, inputs: Sequence[Input], **reading: Unpack[Reading]) -> Generator[int, None, Prompts]:
        self.begun.set()
        assert self.gate.wait(30)
        return (yield from super().read(inputs, **reading))


def test_a_client_that_goes_away_while_it_is_read_is_not_waited_for(load: Load) -> None:
    engine, adapter = load()
    app = create_app(engine, ServerOptions())
    held = engine.reader = HeldReader(engine)

    async def until_read() -> AsyncIterator[None]:
        assert await asyncio.to_thread(held.begun.wait, 30)
        assert (await request(app, "GET", "/load")).json() == {"server_load": 1}
        yield

    content = json.dumps({"input": ids(33)}).encode()
    gone = request(app, "POST", "/v1/embeddings", content, until=until_read())
    assert asyncio.run(asyncio.wait_for(gone, 20)).status_code == 499
    assert call(app, "GET", "/load").json() == {"server_load": 0}
    assert metric(app, "probe:request_failures_total") == 1
    held.gate.set()
    assert post(app, {"input": ids(9)}).status_code == 200
    assert (33,) not in adapter.steps

"""The HTTP interface over ASGI: what it refuses, and what it does when it is full, failing, closing or left alone."""

import asyncio
import json
import shutil
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.runtime.asgi import assert_error, body_schema, call, metric, post, request
from tests.runtime.support import FaultyAdapter, ids, load_engine, wait_until
from vllm_probe.core.errors import BadUsage
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app


@pytest.fixture
def faulty(tiny: Path) -> Iterator[tuple[FastAPI, Engine, FaultyAdapter]]:
    adapter = FaultyAdapter()
    engine = load_engine(tiny, adapter, queue=100, max_num_batched_tokens=64)
    yield create_app(engine, ServerOptions()), engine, adapter
    engine.close()


def test_token_ids_are_refused_where_only_texts_are_taken(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(reject_token_input=True))
    for given in ([4, 5], [[4], [5]]):
        assert_error(post(app, {"input": given}), 400, "token ids are not taken here: send text", "input")
    assert post(app, {"input": ["a", "b"]}).status_code == 200
    forms = body_schema(app, "/v1/embeddings")["properties"]["input"]["anyOf"]
    assert [form["type"] for form in forms] == ["string", "array"]


def test_a_server_that_would_take_nothing_is_refused(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "wordless")
    (tmp_path / "wordless" / "tokenizer.json").unlink()
    engine = load_engine(tmp_path / "wordless")
    try:
        with pytest.raises(BadUsage, match="has no tokenizer, and token ids are to be refused"):
            create_app(engine, ServerOptions(reject_token_input=True))
        app = create_app(engine, ServerOptions())
        forms = body_schema(app, "/v1/embeddings")["properties"]["input"]["anyOf"]
        assert [form["items"]["type"] for form in forms] == ["integer", "array"]
        for path, field, value in (("/tokenize", "prompt", "a"), ("/detokenize", "tokens", [4])):
            response = call(app, "POST", path, json={field: value})
            assert_error(response, 400, "the model has no tokenizer.json here", field)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"input": ""}, "input 0 is empty", "input"),
        ({"input": []}, "input is empty", "input"),
        ({"input": ["a", ""]}, "input 1 is empty", "input"),
        ({"input": [[]]}, "input 0 is empty", "input"),
        ({"input": None}, "must be a string", "input"),
        ({"input": {"a": 1}}, "must be a string", "input"),
        ({"input": [1, 2.5]}, "item 1 of input is not a token id", "input"),
        ({"input": [[4], [5, True]]}, "item 1 of input 1 is not a token id", "input"),
        ({"input": "a", "truncate_prompt_tokens": True}, "valid integer", "truncate_prompt_tokens"),
        ({"input": "a", "dimensions": True}, "valid integer", "dimensions"),
        ({"input": ["a", 1]}, "must be a string", "input"),
        ({"input": [1.5]}, "must be a string", "input"),
        ({"input": [True]}, "must be a string", "input"),
        ({"input": [99]}, "token ids outside 0 to 15", "input"),
        ({"input": ["a"] * 2049}, "2049 inputs, the limit is 2048", "input"),
        ({"input": "a " * 63}, "64 tokens, but input 0 has 65", "input"),
        ({}, "Field required", "input"),
        ([], "should be an object", None),
        ({"input": "a", "encoding_format": "int8"}, "'float' or 'base64'", "encoding_format"),
        ({"input": "a", "embed_dtype": "fp8_e4m3"}, "'float32', 'float16' or 'bfloat16'", "embed_dtype"),
        ({"input": "a", "endianness": "middle"}, "'native', 'little' or 'big'", "endianness"),
        ({"input": "a", "normalize": "no"}, "valid boolean", "normalize"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages are not taken here: send input", "messages"),
        ({"input": "a", "messages": []}, "messages are not taken here: send input", "messages"),
        ({"input": "a", "input_type": "query"}, "no prompt 'query'", "input_type"),
        ({"input": "a", "dimensions": 16}, "32 dimensions", "dimensions"),
        ({"input": "a", "dimensions": 0}, "greater than or equal to 1", "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 65}, "between 3 and 64", "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "greater than or equal to -1", "truncate_prompt_tokens"),
        ({"input": "a", "model": 3}, "valid string", "model"),
    ],
)
def test_a_bad_request_is_400(app: FastAPI, body: Any, message: str, param: str | None) -> None:
    assert_error(post(app, body), 400, message, param)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"input": "\\ud800"}', b'{"input": "\xff"}', b"[" * 100_000, b'{"input": "a"} x']
)
def test_what_is_not_json_is_400(app: FastAPI, body: bytes) -> None:
    assert_error(call(app, "POST", "/v1/embeddings", content=body), 400, "Invalid JSON")


@pytest.mark.parametrize("item", [1.5, [], {}, None, "a"])
def test_what_is_wrong_many_times_is_refused_without_an_error_for_each(app: FastAPI, item: Any) -> None:
    tracemalloc.start()
    try:
        content = b'{"input": [' + json.dumps(item).encode() + f", {json.dumps(item)}".encode() * 200_000 + b"]}"
        assert_error(call(app, "POST", "/v1/embeddings", content=content), 400, "input", "input")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_failure_is_500_that_clients_do_not_retry(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, _, adapter = faulty
    adapter.faults |= {7: float("inf"), 8: RuntimeError("/secret/path")}
    response = post(app, {"input": ids(7)})
    assert_error(response, 500, "input 0 gave a vector that is not finite")
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in post(app, {"input": ids(8)}).text
    assert post(app, {"input": ids(9)}).status_code == 200
    assert metric(app, "probe:request_failures_total") == 2


def test_a_request_larger_than_the_queue_locks_nobody_out(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    large = engine.submit(engine.prepare(ids(64) * 40))
    wait_until(lambda: engine.queue_state().running == 1)
    small = engine.submit(engine.prepare(ids(30)))
    order: list[Any] = []
    for future in (large, small):
        future.add_done_callback(order.append)
    response = post(app, {"input": ids(64) * 4})
    assert_error(response, 429, "tokens of another large request are waiting")
    assert int(response.headers["retry-after"]) >= 1
    done = len(adapter.steps)
    adapter.gate.set()
    large.result(60)
    assert order == [small, large]
    assert (30,) in adapter.steps[: done + 3]


def test_a_full_queue_is_429_with_a_time(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    for given in (ids(40), "a " * 38):  # as ids and as text
        response = post(app, {"input": given})
        assert_error(response, 429, "64 tokens are waiting, the limit is 100")
        assert 1 <= int(response.headers["retry-after"]) <= 120
    adapter.gate.set()
    assert [future.result(60).prompt_tokens for future in futures] == [64, 64]
    assert metric(app, "vllm:admission_rejections_total") == 2


def test_after_a_refusal_a_request_is_refused_unread(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    assert_error(call(app, "POST", "/v1/embeddings", content=b"not JSON"), 400, "Invalid JSON")
    assert post(app, {"input": ids(40)}).status_code == 429
    large = b"not JSON" * 100
    for path in ("/v1/embeddings", "/tokenize", "/detokenize"):
        assert_error(call(app, "POST", path, content=large), 429, "64 tokens are waiting")
        assert_error(call(app, "POST", path, content=b"not JSON"), 400, "Invalid JSON")
    adapter.gate.set()
    for future in futures:
        future.result(60)
    assert_error(call(app, "POST", "/v1/embeddings", content=large), 400, "Invalid JSON")


def test_load_counts_what_waits_and_runs(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    assert call(app, "GET", "/load").json() == {"server_load": 2}
    adapter.gate.set()
    for future in futures:
        future.result(60)


def test_a_draining_server_is_503_and_closes(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, _ = faulty
    engine.stop_admitting()
    response = post(app, {"input": "a"})
    assert_error(response, 503, "shutting down")
    assert (response.headers["retry-after"], response.headers["connection"]) == ("1", "close")
    assert call(app, "GET", "/health").status_code == 503
    live = call(app, "GET", "/live")
    assert (live.status_code, live.headers["connection"]) == (200, "close")


def test_a_stalled_engine_is_503(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    engine.stall_s = 0.05
    adapter.gate.clear()
    future = engine.submit(engine.prepare(ids(5)))
    wait_until(lambda: call(app, "GET", "/health").status_code == 503)
    assert "has not moved" in call(app, "GET", "/health").text
    adapter.gate.set()
    future.result(60)


def test_a_client_that_hangs_up_while_it_sends_is_counted_and_nothing_more(
    faulty: tuple[FastAPI, Engine, FaultyAdapter], caplog: pytest.LogCaptureFixture
) -> None:
    app = faulty[0]
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": b'{"input": ', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": [], "query_string": b""}
    asyncio.run(app(scope | {"root_path": ""}, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [499]
    assert not caplog.records
    assert metric(app, "probe:request_failures_total") == 1


def test_a_client_that_goes_away_leaves_the_queue(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    running = engine.submit(engine.prepare(ids(64)))
    wait_until(lambda: engine.queue_state().running == 1)

    async def until_queued() -> AsyncIterator[None]:
        while engine.queue_state().waiting_tokens != 33:
            await asyncio.sleep(0.005)
            yield

    content = json.dumps({"input": ids(33)}).encode()
    gone = request(app, "POST", "/v1/embeddings", content, until=until_queued())
    assert asyncio.run(asyncio.wait_for(gone, 60)).status_code == 499
    assert engine.queue_state().waiting_tokens == 0
    adapter.gate.set()
    running.result(60)
    assert (33,) not in adapter.steps
    assert metric(app, "probe:request_failures_total") == 1

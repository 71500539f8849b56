"""What every request passes first: key, request id, size."""

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI

from tests.runtime.asgi import assert_error, call, post
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app

OPEN = ("/health", "/live")
FACTS = ("/v1/models", "/metrics", "/version", "/load", "/ping", "/openapi.json", "/docs")
ROUTES = (*FACTS, "/nothing", "/v1/embeddings", "/tokenize", "/detokenize")


def test_the_request_id_is_echoed_or_made(app: FastAPI) -> None:
    assert post(app, {"input": "a"}, headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "abc"
    assert post(app, {"input": ""}).headers["x-request-id"] != post(app, {"input": ""}).headers["x-request-id"]


def test_a_request_that_the_server_gives_up_gets_an_error_object(app: FastAPI) -> None:
    sent: list[Any] = []
    waits = asyncio.Event()

    async def receive() -> Any:
        if waits.is_set():
            await asyncio.Future()
        waits.set()
        return {"type": "http.request", "body": b'{"input": ', "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async def give_up() -> None:
        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": [], "query_string": b""}
        task = asyncio.ensure_future(app(scope | {"root_path": ""}, receive, send))
        await waits.wait()
        task.cancel()
        await task

    asyncio.run(give_up())
    start, body = sent
    assert start["status"] == 503
    assert json.loads(body["body"])["error"] == {
        "message": "the server has shut down",
        "type": "ServiceUnavailableError",
        "param": None,
        "code": 503,
    }


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "secret", "Bearer s\u00e9cret"])
def test_every_route_needs_the_key(tiny_engine: Engine, path: str, header: str | None) -> None:
    app = create_app(tiny_engine, ServerOptions(api_key="secret"))
    headers = {} if header is None else {"Authorization": header.encode()}
    for method in ("GET", "POST"):
        response = call(app, method, path, headers=headers)
        assert_error(response, 401, "API key")
        assert "x-request-id" in response.headers


def test_with_the_key_every_route_answers_and_health_needs_none(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(api_key="secret"))
    headers = {"Authorization": "Bearer secret"}
    assert [call(app, "GET", path, headers=headers).status_code for path in FACTS] == [200] * len(FACTS)
    assert post(app, {"input": "a"}, headers=headers).status_code == 200
    assert [call(app, "GET", path).status_code for path in OPEN] == [200, 200]


@pytest.mark.parametrize("key", ["secret", "s\u00e9cret \u20ac", "\udcff"])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
def test_the_key_is_compared_by_its_bytes_and_the_scheme_without_case(
    tiny_engine: Engine, key: str, scheme: str
) -> None:
    app = create_app(tiny_engine, ServerOptions(api_key=key))
    given = scheme.encode() + key.encode(errors="surrogateescape")
    assert call(app, "GET", "/version", headers={"Authorization": given}).status_code == 200
    assert call(app, "GET", "/version", headers={"Authorization": given + b"x"}).status_code == 401
    assert call(app, "GET", "/version", headers={"Authorization": given.replace(b" ", b"")}).status_code == 401


def test_the_openapi_document_says_where_the_key_is_needed(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(api_key="secret"))
    document = call(app, "GET", "/openapi.json", headers={"Authorization": "Bearer secret"}).json()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation, "401" in operation["responses"]) == (path not in OPEN,) * 2


def test_a_body_over_the_limit_is_413(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(max_body_bytes=1000))
    assert_error(post(app, {"input": "a " * 500}), 413, "larger than 1000 bytes")
    assert post(app, {"input": "a " * 60}).status_code == 200
    app = create_app(tiny_engine, ServerOptions())
    assert_error(post(app, {"input": "a" * (8 << 20)}), 413, "larger than 8388608 bytes")
    assert_error(post(app, {"input": "a" * (7 << 20)}), 400, "7340032 characters", "input")

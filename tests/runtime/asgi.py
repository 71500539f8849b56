"""Requests to an ASGI application, without a server or an HTTP client, and what must hold of their answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Application = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Response:
    """What came back."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


async def request(
    app: Application,
    method: str,
    path: str,
    content: bytes = b"",
    headers: dict[str, str | bytes] | None = None,
    until: AsyncIterator[None] | None = None,
) -> Response:
    """Sends a request in two parts; the client stays until `until` ends, or until it has its response."""
    given = [
        (name.lower().encode(), value.encode() if isinstance(value, str) else value)
        for name, value in (headers or {}).items()
    ]
    scope = {"type": "http", "method": method, "path": path, "headers": given, "query_string": b"", "root_path": ""}
    parts = [content[len(content) // 2 :], content[: len(content) // 2]]
    sent: list[Any] = []
    answered = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": bool(parts)}
        if until is None:
            await answered.wait()
        else:
            async for _ in until:
                pass
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()

    await app(scope, receive, send)
    start, *bodies = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Response(start["status"], found, b"".join(body["body"] for body in bodies))


def call(app: Application, method: str, path: str, **options: Any) -> Response:
    """As `request`, with `json` as content."""
    if "json" in options:
        options["content"] = json.dumps(options.pop("json")).encode()
    return asyncio.run(request(app, method, path, **options))


def post(app: Application, body: Any, **options: Any) -> Response:
    return call(app, "POST", "/v1/embeddings", json=body, **options)


def body_schema(app: Application, path: str) -> Any:
    """What the OpenAPI document says about the body."""
    operation = call(app, "GET", "/openapi.json").json()["paths"][path]["post"]
    return operation["requestBody"]["content"]["application/json"]["schema"]


def assert_error(response: Response, status: int, message: str, param: str | None = None) -> None:
    """One error object, the same for every failure."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert (error["param"], error["code"]) == (param, status)


def metric(app: Application, name: str) -> float:
    lines = call(app, "GET", "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] == name)

"""One request to an ASGI application, without a server or an HTTP client."""

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

"""What every request passes before a route sees it: key, request id."""

import asyncio
import hmac
import uuid
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_probe.runtime.server.schema import ApiError

OPEN_PATHS = frozenset({"/health", "/live"})
_MAX_ID_LENGTH = 128


class Gate:
    """Middleware that asks for the API key, echoes `X-Request-Id` and puts `marks` on every response.

    While `is_closing`, responses close their connection, so that no client writes its next request on one that the
    server is about to close. A request that is cancelled gets 503.
    """

    def __init__(
        self, app: ASGIApp, api_key: str | None, marks: Mapping[str, str], is_closing: Callable[[], bool]
    ) -> None:
        self._app = app
        self._marks = marks
        self._is_closing = is_closing
        # As the argument or variable held it, which need not be UTF-8.
        self._key = api_key.encode(errors="surrogateescape") if api_key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")[:_MAX_ID_LENGTH] or uuid.uuid4().hex

        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                closing = {"connection": "close"} if self._is_closing() else {}
                MutableHeaders(scope=message).update({**self._marks, **closing, "x-request-id": request_id})
            await send(message)

        if not self._is_allowed(scope["path"], headers):
            refusal = ApiError(401, "a valid API key is needed in `Authorization: Bearer`", www_authenticate="Bearer")
            await refusal.response()(scope, receive, send_with_id)
            return
        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:  # the server ends, and has waited long enough for this client
            if not started:
                refusal = ApiError(503, "the server has shut down", retry_after="1", connection="close")
                await refusal.response()(scope, receive, send_with_id)

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        """Whether the key is there, byte for byte; the scheme has no case (RFC 9110, section 11.1)."""
        if self._key is None or path in OPEN_PATHS:
            return True
        scheme, _, key = headers.get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(key.strip(b" "), self._key) and scheme.lower() == b"bearer"

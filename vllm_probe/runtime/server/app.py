"""The routes, and the server around them."""

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from vllm_probe.core.version import __version__
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.executor.result import Embeddings
from vllm_probe.runtime.modeling.tokenizing import Prompts
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, RequestError, RequestFailed
from vllm_probe.runtime.server.gate import Gate, read_body
from vllm_probe.runtime.server.lifecycle import bind, run
from vllm_probe.runtime.server.metrics import Metrics
from vllm_probe.runtime.server.schema import (
    ApiError,
    EmbeddingRequest,
    json_response,
    parse_request,
    render_embeddings,
)

_CLIENT_CLOSED_REQUEST = 499  # nginx's status; nobody reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the server listens and what it accepts.

    Attributes:
        host: address to listen on.
        port: TCP port, 0 for a free one.
        api_key: bearer token that every route but /health and /live needs, null for none.
        served_model_names: names that requests may give; the first is answered with; default the model's own
            and the one in the config.
        max_body_bytes: largest request body; 2048 inputs of 4 KiB by default.
        drain_timeout_s: how long admitted requests may take after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    served_model_names: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    drain_timeout_s: float = 30.0


def serve(
    engine: Engine,
    options: ServerOptions,
    listener: socket.socket | None = None,
    on_ready: Callable[[str, bool], object] = lambda _url, _reads_text: None,
) -> int:
    """Serves `engine` until SIGTERM or SIGINT, then drains; a second signal aborts.

    Args:
        engine: a loaded engine; the caller closes it.
        options: address, key and limits.
        listener: what `lifecycle.bind` gave; without it the address is bound now.
        on_ready: called with the base URL and whether texts are understood, once requests are accepted.

    Returns:
        0 after everything admitted was answered, 130 when it was aborted.

    Raises:
        PortInUse: another process listens on the address.
    """
    app = create_app(engine, options)
    listener = listener or bind(options.host, options.port)
    return run(app, engine, listener, options.drain_timeout_s, lambda url: on_ready(url, engine.reads_text))


def create_app(engine: Engine, options: ServerOptions) -> FastAPI:
    """The ASGI application for a loaded `engine`."""
    routes = _Routes(engine, options)
    app = FastAPI(title="vllm-probe", version=__version__)
    schema = {"content": {"application/json": {"schema": EmbeddingRequest.model_json_schema()}}, "required": True}
    app.post("/v1/embeddings", openapi_extra={"requestBody": schema})(routes.embeddings)
    app.get("/v1/models/{name:path}")(routes.model)
    for path in ("/v1/models", "/health", "/live", "/metrics", "/version"):
        app.get(path)(getattr(routes, path.rpartition("/")[2]))
    for kind in (ApiError, HTTPException, RequestError, QueueFull, QueueClosed, RequestFailed, Exception):
        app.add_exception_handler(kind, routes.failure)
    marks = {"x-dummy-weights": "true"} if engine.has_dummy_weights else {}
    app.add_middleware(Gate, api_key=options.api_key, marks=marks)
    return app


class _Routes:
    """The handlers, named after their paths."""

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        self._engine = engine
        self._options = options
        self._names = options.served_model_names or tuple(dict.fromkeys((engine.spec.name, engine.config.model)))
        self._created = int(time.time())
        self._metrics = Metrics(engine, self._names[0])
        # One thread parses and tokenizes, so that it never takes more than one core from the forward pass.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="reader")

    async def embeddings(self, request: Request) -> Response:
        """Vectors of the inputs."""
        begun_s = time.perf_counter()
        body = await read_body(request, self._options.max_body_bytes)
        asked, prompts = await asyncio.get_running_loop().run_in_executor(self._reader, self._read, body)
        tokenized_s = time.perf_counter()
        result = await self._compute(prompts, request)
        if result is None:
            self._metrics.failed("disconnected")
            return Response(status_code=_CLIENT_CLOSED_REQUEST)
        response = render_embeddings(result, self._names[0], asked.encoding_format)
        self._metrics.answered(result, tokenized_s - begun_s, time.perf_counter() - begun_s)
        return response

    def _read(self, body: bytes) -> tuple[EmbeddingRequest, Prompts]:
        asked = parse_request(body)
        if asked.model is not None and asked.model not in self._names:
            raise _unknown_model(asked.model)
        prompts = self._engine.prepare(
            asked.input,
            dimensions=asked.dimensions,
            truncate_prompt_tokens=asked.truncate_prompt_tokens,
            truncation_side=asked.truncation_side,
            prompt_name=asked.prompt_name or asked.input_type,
        )
        return asked, prompts

    async def _compute(self, prompts: Prompts, request: Request) -> Embeddings | None:
        """The vectors, or null when the client went away first; then what waits of it is dropped."""
        answer = asyncio.wrap_future(self._engine.submit(prompts))
        gone = asyncio.create_task(_disconnected(request))
        waited: list[asyncio.Future[Any]] = [answer, gone]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            gone.cancel()

    async def models(self) -> Response:
        """The names that this server answers to."""
        return json_response({"object": "list", "data": [self._facts(name) for name in self._names]})

    async def model(self, name: str) -> Response:
        """One of them."""
        if name not in self._names:
            raise _unknown_model(name)
        return json_response(self._facts(name))

    def _facts(self, name: str) -> dict[str, Any]:
        config = self._engine.config
        facts = {"id": name, "object": "model", "created": self._created, "owned_by": "vllm-probe"}
        return {**facts, "root": config.model, "max_model_len": config.max_model_len}

    async def health(self) -> Response:
        """Whether requests will be answered: 503 while draining and when the engine does not move."""
        reason = self._engine.unhealthy()
        return json_response({"status": reason or "ready"}, 503 if reason else 200)

    async def live(self) -> Response:
        """Whether the process answers at all."""
        return json_response({"status": "alive"})

    async def metrics(self) -> Response:
        """Prometheus metrics."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def version(self) -> Response:
        """The version of vllm-probe."""
        return json_response({"version": __version__})

    async def failure(self, _: Request, error: Exception) -> Response:
        """The error object for anything that a handler raised."""
        match error:
            case ApiError():
                answer = error
            case RequestError():
                answer = ApiError(400, str(error), error.param)
            case QueueFull():
                self._metrics.rejected("queue_full")
                answer = ApiError(429, str(error), retry_after=str(error.retry_after_s))
            case QueueClosed():
                self._metrics.rejected("draining")
                answer = ApiError(503, str(error), retry_after="1", connection="close")
            case RequestFailed():
                self._metrics.failed(error.reason)
                answer = ApiError(500, str(error), x_should_retry="false")
            case HTTPException():
                answer = ApiError(error.status_code, error.detail, **(error.headers or {}))
            case _:
                answer = ApiError(500, "internal error")
        if answer.status < 500 and answer.status != 429:
            self._metrics.failed("refused")
        return answer.response()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _unknown_model(name: str) -> ApiError:
    return ApiError(404, f"The model `{name[:200]}` does not exist.", "model")

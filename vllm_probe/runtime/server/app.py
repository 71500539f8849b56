"""The application, and the server around it."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from vllm_probe.core.errors import BadUsage
from vllm_probe.core.version import __version__
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, RequestError, RequestFailed
from vllm_probe.runtime.server import openapi
from vllm_probe.runtime.server.gate import OPEN_PATHS, Gate
from vllm_probe.runtime.server.lifecycle import bind, run
from vllm_probe.runtime.server.routes import Routes
from vllm_probe.runtime.server.schema import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the server listens and what it accepts.

    Attributes:
        host: address to listen on.
        port: TCP port, 0 for a free one.
        api_key: bearer token that every route but /health and /live needs, null for none.
        served_model_names: names that requests may give; the first is answered with; default the model's own
            and the one in the config.
        reject_token_input: take texts only, for clients that send the ids of another model's tokenizer.
        max_body_bytes: largest request body; 2048 inputs of 4 KiB by default.
        drain_timeout_s: how long admitted requests may take after SIGTERM, at most; as long as the official client
            waits for an answer.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    served_model_names: tuple[str, ...] = ()
    reject_token_input: bool = False
    max_body_bytes: int = 8 << 20
    drain_timeout_s: float = 600.0


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
        0 after everything admitted was answered, 1 where the time for that was over, 130 when it was aborted.

    Raises:
        PortInUse: another process listens on the address.
        BadUsage: neither texts nor token ids would be taken.
    """
    app = create_app(engine, options)
    listener = listener or bind(options.host, options.port)
    return run(app, engine, listener, options.drain_timeout_s, lambda url: on_ready(url, engine.reads_text))


def create_app(engine: Engine, options: ServerOptions) -> FastAPI:
    """The ASGI application for a loaded `engine`.

    Raises:
        BadUsage: neither texts nor token ids would be taken.
    """
    takes_token_ids = not options.reject_token_input
    if not (takes_token_ids or engine.reads_text):
        message = f"{engine.spec.name} has no tokenizer, and token ids are to be refused"
        raise BadUsage(message, hint="leave out --reject-token-input")
    names = options.served_model_names or tuple(dict.fromkeys((engine.spec.name, engine.config.model)))
    routes = Routes(engine, names, max_body_bytes=options.max_body_bytes, takes_token_ids=takes_token_ids)
    app = FastAPI(title="vllm-probe", version=__version__)
    _add_questions(app, routes, openapi.bodies(engine, names, takes_token_ids=takes_token_ids))
    _add_facts(app, routes, names)
    for kind in (ApiError, HTTPException, RequestError, QueueFull, QueueClosed, RequestFailed, Exception):
        app.add_exception_handler(kind, routes.failure)
    app.add_exception_handler(ClientDisconnect, routes.gone)
    marks = {"x-dummy-weights": "true"} if engine.has_dummy_weights else {}
    is_closing = lambda: engine.queue_state().closed  # noqa: E731
    app.add_middleware(Gate, api_key=options.api_key, marks=marks, is_closing=is_closing)
    if options.api_key is not None:
        openapi.require_key(app, OPEN_PATHS)
    return app


def _add_questions(app: FastAPI, routes: Routes, schemas: dict[str, dict[str, Any]]) -> None:
    """What takes a body."""
    for path, handler, answer, errors in (
        ("/v1/embeddings", routes.embeddings, openapi.EmbeddingAnswer, (500,)),
        ("/tokenize", routes.tokenize, openapi.Tokens, ()),
        ("/detokenize", routes.detokenize, openapi.Text, ()),
    ):
        body = {"content": {"application/json": {"schema": schemas[path]}}, "required": True}
        described = openapi.operation(answer, 400, 404, 408, 413, 429, 503, *errors, requestBody=body)
        app.add_api_route(path, handler, methods=["POST"], **described)


def _add_facts(app: FastAPI, routes: Routes, names: tuple[str, ...]) -> None:
    """What is only read."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "enum": list(names)}}
    app.add_api_route("/v1/models", routes.models, **openapi.operation(openapi.ModelList))
    app.add_api_route(
        "/v1/models/{name:path}", routes.model, **openapi.operation(openapi.ModelFacts, 404, parameters=[name])
    )
    health = openapi.operation(openapi.Status)
    health["responses"][503] = {"model": openapi.Status, "description": "It is not ready, and why."}
    app.add_api_route("/health", routes.health, **health)
    app.add_route("/ping", routes.health, methods=["GET", "POST"], include_in_schema=False)
    app.add_api_route("/live", routes.live, **openapi.operation(openapi.Status))
    for path, probe in (("/health", routes.health), ("/live", routes.live)):
        app.add_route(path, probe, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/load", routes.load, **openapi.operation(openapi.Load))
    app.add_api_route("/version", routes.version, **openapi.operation(openapi.Version))
    app.add_api_route("/metrics", routes.metrics, response_class=PlainTextResponse)
